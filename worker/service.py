"""The worker: what it does about each control message, and the loop of its decode thread."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from protocol import codec
from protocol.channel import ControlMessage
from protocol.control import Cancel, EndReasoning, Forecast, Park, SetThreads, Shutdown, Sleep, Wakeup
from protocol.errors import ErrorKind, ExitCode, ProtocolViolation, WireError
from protocol.generate import Failed, Parked, ResumePoint
from protocol.lanes import Lane, WorkLane
from protocol.load import Dying, Load, Loaded
from protocol.slots import SetAdapters, SlotAction
from protocol.status import WorkerState
from worker.embedding_loop import EmbeddingLoop
from worker.engine import Engine, Threads, choose_threads
from worker.held import HeldRequests
from worker.llama_context import EngineFailure
from worker.llama_log import EngineLog
from worker.llama_model import LoadAborted, LoadError
from worker.llama_parameters import UnusableParameter
from worker.llama_sampler import new_seed
from worker.loop import DecodeLoop
from worker.preparation import Preparation, Ready
from worker.prepared import PreparedCount, PreparedGeneration, PreparedInputs
from worker.status import NUMBERS_INTERVAL, StatusBoard, StatusReporter
from worker.step_watch import StepWatch
from worker.tally import Tally
from worker.vocabularies import ComingVocabulary, Vocabularies


class Wire(Protocol):
    """What the worker uses of the channel."""

    control: Lane[ControlMessage]
    work: WorkLane[codec.Work]

    def send(self, message: codec.FromChild) -> None: ...


class WorkerEnds(Exception):
    """The worker must end with this exit code; `reason` is None for an orderly shutdown."""

    def __init__(self, code: ExitCode, reason: WireError | None = None) -> None:
        super().__init__(reason.message if reason else code.name)
        self.code = code
        self.reason = reason


class Worker:
    """Runs on the decode thread, which is the process's main thread; `run` returns the exit code."""

    def __init__(self, wire: Wire, board: StatusBoard, held: HeldRequests, watch: StepWatch, log: EngineLog) -> None:
        self._wire = wire
        self._board = board
        self._held = held
        self._watch = watch
        self._log = log
        self._reporter = StatusReporter(board, wire.send)
        self._tally = Tally()
        self._control: deque[ControlMessage] = deque()
        self._inbox: deque[Ready] = deque()
        self._unreported = False
        """Whether numbers have changed since the last report."""
        self._load: Load | None = None
        self._threads = Threads(1, 1)
        self._engine: Engine | None = None
        self._loop: DecodeLoop | EmbeddingLoop | None = None
        self._vocabularies = Vocabularies(log)
        self._vocabulary: ComingVocabulary | None = None
        board.counters = self._tally.counters
        self._preparation = Preparation(wire.work, held.add, self._answer, self._deliver, self._prepared, new_seed)

    def run(self) -> ExitCode:
        """Serve until the end. A reason to die is sent before."""
        self._preparation.start()
        self._reporter.report()
        try:
            while True:
                self._handle_control()
                if not self._work():
                    self._wait()
        except WorkerEnds as end:
            if end.reason is not None:
                self._wire.send(Dying(end.reason, end.code))
            return end.code
        except Exception as error:
            reason = WireError(ErrorKind.INTERNAL, f"{type(error).__name__}: {error}")
            self._wire.send(Dying(reason, ExitCode.CRASH))
            raise
        finally:
            self._preparation.stop()
            self._free()
            self._vocabularies.expect(())
            if self._vocabulary is not None:
                self._vocabulary.close()

    # Called by the preparation thread

    def _answer(self, message: codec.Answer) -> None:
        self._wire.send(message)
        self._held.remove(message.request)

    def _deliver(self, ready: Ready) -> None:
        self._inbox.append(ready)
        with self._wire.control.activity:
            self._wire.control.activity.notify()

    def _prepared(self) -> None:
        self._board.preparation += 1

    # The decode thread

    def _wait(self) -> None:
        """Until something arrives; the numbers that the last step has left behind are sent before long."""
        with self._wire.control.activity:
            timeout = NUMBERS_INTERVAL if self._unreported else None
            woken = self._wire.control.activity.wait_for(lambda: bool(self._wire.control or self._inbox), timeout)
        if not woken:
            self._report()

    def _report(self) -> None:
        self._unreported = False
        self._reporter.report()

    def _work(self) -> bool:
        """Take over what is prepared and compute one step; False if there was nothing to do."""
        while self._inbox:
            if self._loop is None:
                self._wake("a request came while it slept")
            self._take(self._inbox.popleft())
        loop = self._loop
        if loop is None or self._engine is None:
            return False
        self._engine.share_cores()
        try:
            stepped = loop.step()
        except EngineFailure as failure:
            raise WorkerEnds(ExitCode.ENGINE_FAILED, WireError(ErrorKind.INTERNAL, str(failure))) from failure
        self._board.step = self._tally.steps
        if loop.take_changed():
            self._report()
        elif stepped:
            self._unreported = not self._reporter.tick()
        return stepped

    def _take(self, ready: Ready) -> None:
        assert self._loop is not None
        if self._held.is_cancelled(ready.request):
            self._answer(Failed(ready.request, WireError(ErrorKind.CANCELLED, "cancelled")))
        elif self._held.is_parked(ready.request):
            self._answer(Parked(ready.request, ResumePoint(())))
        elif isinstance(ready, PreparedCount | PreparedGeneration) and ready.prompt.waits_for_media:
            self._encode(ready)
        elif isinstance(ready, PreparedGeneration | PreparedInputs):
            self._loop.submit(ready)
        elif isinstance(self._loop, EmbeddingLoop):
            message = "this model is loaded for embeddings: it has no slots or adapters to act on"
            self._answer(Failed(ready.request, WireError(ErrorKind.NOT_SUPPORTED, message)))
        elif isinstance(ready, SlotAction):
            self._loop.slot_action(ready)
        elif isinstance(ready, SetAdapters):
            self._loop.set_adapters(ready)
        else:
            self._loop.list_adapters(ready.request)

    def _pull_control(self) -> None:
        while (message := self._wire.control.pop()) is not None:
            self._control.append(message)

    def _handle_control(self) -> None:
        self._pull_control()
        while self._control:
            self._handle(self._control.popleft())
            self._pull_control()

    def _handle(self, message: ControlMessage) -> None:
        match message:
            case Load():
                self._begin(message)
            case Forecast():
                self._vocabularies.expect(message.files)
            case Cancel():
                self._cancel(message.request)
            case Park():
                self._park(message.request)
            case EndReasoning():
                if self._loop is not None:
                    self._loop.end_reasoning(message.request)
            case Sleep():
                self._sleep()
            case Wakeup():
                self._wake("")
            case SetThreads():
                self._set_threads(Threads(message.threads, message.threads_batch))
            case Shutdown():
                self._shut_down()
            case _:
                raise ProtocolViolation("router", f"{type(message).__name__} is nothing to send to a worker")

    def _cancel(self, request: int) -> None:
        if self._loop is not None and request in self._loop.requests:
            self._loop.cancel(request)
        elif self._withdraw(request):
            self._answer(Failed(request, WireError(ErrorKind.CANCELLED, "cancelled")))
        else:
            self._held.cancel(request)

    def _park(self, request: int) -> None:
        if self._loop is not None and request in self._loop.requests:
            self._loop.park(request)
        elif self._withdraw(request):
            self._answer(Parked(request, ResumePoint(())))
        elif self._wire.work.remove(request):
            self._wire.send(Parked(request, ResumePoint(())))
        else:
            self._held.park(request)

    def _encode(self, ready: PreparedCount | PreparedGeneration) -> None:
        """Have the files of a request encoded; it comes back to the inbox."""
        assert self._engine is not None
        assert self._engine.media is not None, "a model without a projector refuses files in preparation"
        self._engine.media.submit(ready)

    def _withdraw(self, request: int) -> bool:
        """Take a request back whose files are being encoded."""
        return self._engine is not None and self._engine.media is not None and self._engine.media.withdraw(request)

    def _set_threads(self, threads: Threads) -> None:
        self._threads = threads
        self._board.threads = threads.single
        if self._engine is not None:
            self._engine.set_threads(threads)

    def _shut_down(self) -> None:
        if self._loop is not None:
            self._loop.stop(WireError(ErrorKind.CANCELLED, "the worker is shut down"))
        self._reporter.change(WorkerState.STOPPING)
        if self._engine is not None:
            self._engine.keep_state()
        raise WorkerEnds(ExitCode.OK)

    # Loading, sleeping, waking

    def _begin(self, load: Load) -> None:
        if self._load is not None:
            raise ProtocolViolation("router", "a second Load")
        self._load = load
        self._threads = choose_threads(load)
        self._board.threads = self._threads.single
        self._reporter.change(WorkerState.LOADING)
        self._vocabulary = vocabulary = self._vocabularies.take(load.parameters)
        engine = self._open(load, vocabulary)
        self._preparation.use(engine.texts(load))
        self._ready(engine)

    def _open(self, load: Load, vocabulary: ComingVocabulary) -> Engine:
        self._log.forget_buffers()
        try:
            return Engine(load, self._threads, self._log, self._load_progress, vocabulary)
        except LoadError as error:
            raise WorkerEnds(error.exit_code, WireError(ErrorKind.LOAD_FAILED, str(error))) from error
        except UnusableParameter as error:
            raise WorkerEnds(ExitCode.USAGE, WireError(ErrorKind.LOAD_FAILED, str(error))) from error
        except EngineFailure as error:
            raise WorkerEnds(ExitCode.LOAD_FAILED, WireError(ErrorKind.LOAD_FAILED, str(error))) from error
        except LoadAborted as aborted:
            self._reporter.change(WorkerState.STOPPING)
            raise WorkerEnds(ExitCode.OK) from aborted

    def _load_progress(self, stage: str, fraction: float) -> bool:
        self._board.set_progress(stage, fraction)
        self._reporter.tick()
        self._pull_control()
        return not any(isinstance(message, Shutdown) for message in self._control)

    def _free(self) -> None:
        """Free what was loaded, but for the vocabulary."""
        self._watch.guard(None)
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _ready(self, engine: Engine) -> None:
        assert self._load is not None
        self._engine = engine
        self._loop = loop = self._make_loop(engine, self._load)
        engine.open_media(self._load.settings, self._deliver, self._answer)
        if engine.media is not None:
            self._board.media = engine.media.pulse
        engine.set_threads(self._threads)
        self._board.devices = engine.memory()
        self._board.slots = loop.slot_status
        self._board.kv_total = engine.context.n_ctx
        self._board.kv_used = lambda: loop.cells_used
        self._wire.send(Loaded(self._load.name, engine.info(self._load)))
        self._reporter.change(WorkerState.READY)

    def _make_loop(self, engine: Engine, load: Load) -> DecodeLoop | EmbeddingLoop:
        if load.parameters.embeddings:
            return EmbeddingLoop(
                context=engine.context,
                n_slots=engine.n_slots,
                width=engine.embedding_width,
                pooled=engine.pools,
                watch=self._watch,
                tally=self._tally,
                answer=self._answer,
            )
        return DecodeLoop(engine, load.settings, self._watch, self._tally, self._wire.send, self._answer)

    def _sleep(self) -> None:
        if self._engine is None or self._load is None:
            self._reporter.report()
            return
        if self._held or self._wire.work or self._inbox:
            self._reporter.change(WorkerState.READY, "declined to sleep: it holds work")
            return
        self._engine.keep_state()
        self._board.slots, self._board.kv_used, self._board.kv_total = tuple, lambda: 0, 0
        self._free()
        self._board.devices = ()
        self._reporter.change(WorkerState.SLEEPING)

    def _wake(self, reason: str) -> None:
        if self._engine is not None or self._load is None or self._vocabulary is None:
            self._reporter.report()
            return
        self._reporter.change(WorkerState.WAKING, reason)
        self._ready(self._open(self._load, self._vocabulary))
