"""What must hold after each event, and once everything has come to rest. The simulation knows what is really true."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from protocol.status import WorkerState
from router.scheduling import effects
from router.scheduling.effects import Effect
from router.scheduling.events import Child, ExitReason
from router.scheduling.states import WITHOUT_WORKER, State
from router.scheduling.views import ModelView, model_view

if TYPE_CHECKING:
    from tests.scenarios.simulation import Simulation

_TO_CHILD = (
    effects.SendLoad,
    effects.SendForecast,
    effects.SendSleep,
    effects.SendWakeup,
    effects.SendQuery,
    effects.SendThreads,
    effects.Stop,
    effects.Kill,
    effects.Dispatch,
    effects.CancelWork,
    effects.ParkWork,
)


class Invariants:
    """Keeps its own books of who has waited for room since when, and of what was sent where."""

    def __init__(self, simulation: Simulation) -> None:
        self._sim = simulation
        self._hungry: dict[str, float] = {}
        self._sent: dict[int, Child] = {}
        """Where each request was sent last."""
        self._patience = simulation.plan.patience()

    # Each effect

    def effect(self, effect: Effect) -> None:
        if isinstance(effect, _TO_CHILD):
            assert effect.child in self._sim.workers, f"{effect} for a child that is dead"
        match effect:
            case effects.Dispatch(request=request, child=child):
                self._dispatched(request, child)
            case effects.Stop(child=child, reason=reason):
                self._stopped(child, reason)
            case effects.Record(decision="unsettled", reason=reason):
                raise AssertionError(reason)
            case effects.EndRequest(request=request):
                client = self._sim.clients[request]
                assert not client.ended, f"request {request} ends twice: {client.outcome}, then {effect}"
            case effects.SendSleep(child=child):
                assert not self._live(child), f"{child} is sent to sleep under {self._live(child)}"

    def _dispatched(self, request: int, child: Child) -> None:
        client, worker = self._sim.clients[request], self._sim.workers[child]
        assert not client.ended, f"request {request} is dispatched after its end"
        assert worker.model == client.model, f"request {request} for {client.model} goes to {worker.model}"
        assert not worker.dying, f"request {request} goes to {child}, which stops"
        again = self._sent.get(request) == child
        self._sent[request] = child
        if again and worker.state is not WorkerState.READY:
            return  # the worker lost it, and is awaited
        assert worker.state in (WorkerState.READY, WorkerState.SLEEPING), f"{child} is {worker.state}"
        assert client.light or worker.state is WorkerState.READY or self._falls_asleep(child)

    def _falls_asleep(self, child: Child) -> bool:
        """Whether the worker sleeps and the scheduler cannot know it yet."""
        view = self._sim.scheduler.model(self._sim.workers[child].model or "")
        return view is not None and view.state is State.READY

    def _stopped(self, child: Child, reason: ExitReason) -> None:
        if reason in (ExitReason.EVICTED, ExitReason.IDLE):
            live = self._live(child)
            assert not live, f"{child} is stopped ({reason}) under requests {live}"

    def _live(self, child: Child) -> list[int]:
        """Requests that the worker holds and whose clients wait for an answer."""
        worker = self._sim.workers[child]
        held = (*worker.running, *worker.queued)
        return [request for request in held if not self._sim.clients[request].ended]

    # After each event

    def after_event(self) -> None:
        sim = self._sim
        views = sim.scheduler.models()
        ledger = sim.scheduler._ledger
        for view, model in zip(views, ledger.models.values(), strict=True):
            now = model_view(model)
            stale = [name for name in view.__struct_fields__ if getattr(view, name) != getattr(now, name)]
            assert not stale, f"what others see of {view.key} is out of date: {', '.join(stale)}"
        overlap = bool(sim.policy.budget)  # then memory is what limits those who stop
        resident = [view for view in views if view.resident and not (overlap and view.state is State.STOPPING)]
        limit = sim.policy.models_max
        if limit:
            assert len(resident) <= limit, f"{len(resident)} resident, {limit} allowed"
            loaded = [worker for worker in sim.workers.values() if worker.holds_memory and not worker.silent]
            loaded = [worker for worker in loaded if not (overlap and worker.dying)]
            assert len(loaded) <= limit, f"{len(loaded)} workers hold a model, {limit} allowed"
        self._budget()
        for view in views:
            entry = sim.entries[view.key]
            bound = sim.policy.in_flight_factor * entry.slots
            if view.child is not None and view.child in sim.workers:
                worker = sim.workers[view.child]
                held = len(worker.running) + len(worker.queued)
                assert held <= bound, f"{view.child} holds {held} requests, {bound} allowed"
            if view.state is State.READY and view.waiting:
                assert view.running, f"{view.key} is ready and runs nothing while {view.waiting} wait"
            if view.waiting and view.state in (*WITHOUT_WORKER, State.SLEEPING):
                assert view.blocked, f"{view.waiting} wait for {view.key} for no reason"
            self._starving(view)
            cooling = view.state is State.FAILED and view.retry_at > sim.clock.now
            assert not (cooling and view.waiting), f"requests wait for {view.key}, which failed"

    def _starving(self, view: ModelView) -> None:
        """Where nothing fails and all are equal, each model gets room within a bounded number of turns."""
        now = self._sim.clock.now
        if not view.waiting or view.state not in (State.UNLOADED, State.SLEEPING):
            self._hungry.pop(view.key, None)
        elif self._patience is not None:
            waited = now - self._hungry.setdefault(view.key, now)
            assert waited <= self._patience, f"{view.key} has waited {waited:.0f} s for room: {view.blocked}"

    def _budget(self) -> None:
        sim = self._sim
        if not sim.policy.budget:
            return
        private: Counter[str] = Counter()
        files: dict[tuple[str, str], int] = {}
        for worker in sim.workers.values():
            if worker.holds_memory and worker.model:
                for need in sim.entries[worker.model].needs:
                    private[need.device] += need.private
                    files.update({(need.device, file): size for file, size in need.shared})
        for (device, _), size in files.items():
            private[device] += size
        for device, limit in sim.policy.budget:
            assert private[device] <= limit, f"{private[device]} in use on {device}, the budget is {limit}"

    # At rest

    def at_rest(self) -> None:
        forgotten = [client.id for client in self._sim.clients.values() if not client.ended]
        assert not forgotten, f"requests {forgotten} never ended: {self._sim.scheduler.models()}"
        twice = [client.id for client in self._sim.clients.values() if client.ended > 1]
        assert not twice, f"requests {twice} ended more than once"

    def at_end(self) -> None:
        """After the stop no process is left, but those that cannot be killed."""
        assert self._sim.scheduler.stopped, f"the scheduler does not stop: {self._sim.scheduler.models()}"
        left = [worker.child for worker in self._sim.workers.values() if worker.alive and not worker.silent]
        assert not left, f"{left} are left after the stop"
