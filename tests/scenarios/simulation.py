"""One seeded history: random clients and commands, a scheduler, simulated workers, a virtual clock."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from router.scheduling import effects, events
from router.scheduling.effects import Effect
from router.scheduling.events import Child, Event
from router.scheduling.model import ModelEntry, Need, Policy
from router.scheduling.scheduler import Scheduler
from tests.scenarios.clock import Clock
from tests.scenarios.invariants import Invariants
from tests.scenarios.reference_fifo import Recorded
from tests.scenarios.worker import SimulatedWorker, Temper

LAST_EVENTS = 60

_OF_THE_LIVING = (events.ChildSpawned, events.ChildConnected, events.ChildReported, events.RequestEnded)
"""Events that the owner drops once the child has gone."""


@dataclass(slots=True)
class Client:
    """A request as its client sees it. `ended` counts the ends that reached it."""

    id: int
    model: str
    light: bool
    poison: bool
    arrived: float
    answered: bool = False
    left: bool = False
    ended: int = 0
    outcome: str = ""
    started: float | None = None
    """When it was sent to a worker first."""


@dataclass(frozen=True)
class Plan:
    """What a history is made of."""

    models: tuple[ModelEntry, ...]
    policy: Policy
    temper: Temper = field(default_factory=Temper)
    arrivals: int = 60
    clients: int = 0
    """So many clients send one request after the other; 0 = requests come whatever the answers do."""
    interval: float = 1.5
    """Mean seconds between two arrivals, or between an answer and the same client's next request."""
    leave: float = 0.05
    poison: float = 0.0
    light: float = 0.1
    deadlines: float = 0.0
    keep_alive: float = 0.0
    priorities: tuple[int, ...] = (0,)
    commands: float = 0.0
    stopped_early: bool = False
    """The router is told to stop while requests wait and run."""
    settle: float = 4000.0

    def patience(self) -> float | None:
        """Seconds within which a waiting model must get room; None where faults, pins or priorities have a say."""
        equal = len({(entry.pin, entry.priority) for entry in self.models}) == 1 and not self.models[0].pin
        if self.temper != Temper() or len(self.priorities) > 1 or self.commands or not equal:
            return None
        load, stop, asleep = self.temper.load[1], 1.0, 1.0
        policy = self.policy
        swap = policy.max_swap_wait if policy.max_swap_wait is not None else max(5.0, 6 * load)
        turn = load + max(swap, policy.min_residency) + policy.drain_timeout + stop + asleep
        return turn * len(self.models)


class Failed(AssertionError):
    """An invariant was broken; the message has the last events of the history."""


@dataclass
class Simulation:
    plan: Plan
    seed: int
    clock: Clock = field(default_factory=Clock)
    clients: dict[int, Client] = field(default_factory=dict)
    workers: dict[Child, SimulatedWorker] = field(default_factory=dict)
    recorded: list[Recorded] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    handled: int = 0
    loads: int = 0
    sleeps: int = 0
    turns_cut: int = 0
    """How often something was parked at the end of a drain."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.temper = self.plan.temper
        self.policy = self.plan.policy
        self.entries = {entry.key: entry for entry in self.plan.models}
        self.scheduler = Scheduler(self.policy, random.Random(self.seed + 1))
        self.invariants = Invariants(self)
        self._timer: float | None = None
        self._history: list[tuple[float, Event, list[Effect]]] = []
        self._numbers = 0
        self._coming = 0

    # The run

    def run(self) -> Simulation:
        """Live through the arrivals, then let everything come to rest, and check that nobody was forgotten."""
        self.post(events.ModelsChanged(self.plan.models, self.policy))
        at = 0.0
        for _ in range(self.plan.clients or self.plan.arrivals):
            at += self.random.expovariate(1.0 / self.plan.interval)
            self.clock.at(at, self._arrive)
            if self.random.random() < self.plan.commands:
                self.clock.at(at, self._command)
        while self.clock.step(at):
            pass
        if self.plan.stopped_early:
            self.post(events.StopAsked(self.clock.now + self.random.uniform(0.0, 30.0)))
        end = at + self.plan.settle + (self.plan.arrivals * self.plan.interval if self.plan.clients else 0.0)
        while self._unfinished() and self.clock.step(end):
            pass
        self.check(self.invariants.at_rest)
        self.post(events.StopAsked(self.clock.now + 5.0))
        end = self.clock.now + self.plan.settle
        while not self.scheduler.stopped and self.clock.step(end):
            pass
        self.check(self.invariants.at_end)
        return self

    def _unfinished(self) -> bool:
        return self._coming > 0 or any(not client.ended for client in self.clients.values())

    def check(self, invariant: object) -> None:
        assert callable(invariant)
        try:
            invariant()
        except AssertionError as error:
            raise Failed(f"seed {self.seed} at {self.clock.now:.3f}: {error}\n{self.story()}") from error

    def story(self) -> str:
        lines = []
        for at, event, result in self._history[-LAST_EVENTS:]:
            lines.append(f"{at:10.3f} {event}")
            lines += [f"{'':14}{effect}" for effect in result]
        return "\n".join(lines)

    # Events and effects

    def post(self, event: Event) -> None:
        """Give an event to the scheduler, run its effects, check the invariants."""
        if isinstance(event, events.ChildExited | events.SpawnFailed):
            self.workers.pop(event.child, None)
        elif isinstance(event, _OF_THE_LIVING):
            if event.child not in self.workers:
                return
            if isinstance(event, events.RequestEnded):
                self._deliver_end(event)
        self.handled += 1
        try:
            result = self.scheduler.handle(event, self.clock.now)
        except Exception as error:
            raise Failed(f"seed {self.seed} at {self.clock.now:.3f}: {event}: {error!r}\n{self.story()}") from error
        self._history.append((self.clock.now, event, result))
        if len(self._history) > 4 * LAST_EVENTS:
            del self._history[:-LAST_EVENTS]
        for effect in result:
            self.check(lambda effect=effect: self.invariants.effect(effect))
            self._perform(effect)
        self.check(self.invariants.after_event)

    def _deliver_end(self, event: events.RequestEnded) -> None:
        """The end reaches the client, unless it has one already."""
        client = self.clients[event.request]
        if not event.parked and not client.ended:
            self._end(client, "answered" if event.error is None else "failed")

    def _end(self, client: Client, outcome: str) -> None:
        client.ended += 1
        client.outcome = outcome
        self.recorded.append(("leave" if client.left else "end", client.id, client.model))
        if self.plan.clients and len(self.clients) + self._coming < self.plan.arrivals:
            self._coming += 1
            self.clock.later(self.random.expovariate(1.0 / self.plan.interval), self._come_again)

    def _come_again(self) -> None:
        self._coming -= 1
        self._arrive()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case effects.Spawn(child=child):
                worker = SimulatedWorker(self, child)
                self.workers[child] = worker
                self.clock.later(0.0, worker.start)
            case effects.SendLoad(child=child, model=model):
                self.loads += 1
                worker, slots = self.workers[child], self.entries[model].slots
                worker.receive(lambda: worker.load(model, slots))
            case effects.Dispatch(request=request, child=child):
                client = self.clients[request]
                client.started = self.clock.now if client.started is None else client.started
                self._to(child, lambda worker: worker.work(request))
            case effects.CancelWork(request=request, child=child):
                self._to(child, lambda worker: worker.cancel(request))
            case effects.ParkWork(request=request, child=child):
                self._to(child, lambda worker: worker.park(request))
            case effects.SendSleep(child=child):
                self.sleeps += 1
                self._to(child, SimulatedWorker.sleep)
            case effects.SendWakeup(child=child):
                self._to(child, SimulatedWorker.wakeup)
            case effects.SendQuery(child=child):
                self._to(child, lambda worker: worker.report(answers=1))
            case effects.Stop(child=child, budget=budget):
                self.workers[child].stop(budget)
            case effects.Kill(child=child):
                self.workers[child].kill()
            case effects.EndRequest(request=request, error=error):
                self._end(self.clients[request], error.kind.value)
            case effects.SetTimer(at=at):
                self._timer = at
                self.clock.at(at + self.random.choice((-0.001, 0.0, 0.002)), lambda: self._ring(at))
            case effects.Record(decision="park"):
                self.turns_cut += 1
            case effects.ReadMemory():
                tight = self.random.random() < self.temper.tight
                free = tuple((device, limit // 3 if tight else limit) for device, limit in self.policy.budget)
                settled = self.random.random() < 0.7
                self.clock.later(0.01, lambda: self.post(events.MemoryRead(free, settled)))

    def _to(self, child: Child, action: object) -> None:
        worker = self.workers[child]
        assert callable(action)
        worker.receive(lambda: action(worker))

    def _ring(self, at: float) -> None:
        if self._timer == at:
            self._timer = None
            self.post(events.TimerFired())

    # Clients

    def _arrive(self) -> None:
        plan, source = self.plan, self.random
        self._numbers += 1
        model = source.choice([entry.key for entry in self.plan.models])
        poison = source.random() < plan.poison
        client = Client(self._numbers, model, source.random() < plan.light, poison, self.clock.now)
        self.clients[client.id] = client
        self.recorded.append(("arrive", client.id, model))
        deadline = self.clock.now + source.uniform(5.0, 100.0) if source.random() < plan.deadlines else None
        keep_alive = source.choice([0.0, 3.0, -1.0]) if source.random() < plan.keep_alive else None
        if source.random() < plan.leave:
            self.clock.later(source.expovariate(0.3), lambda: self._leave(client))
        self.post(
            events.RequestArrived(
                client.id,
                model,
                priority=source.choice(plan.priorities),
                deadline=deadline,
                keep_alive=keep_alive,
                needs_weights=not client.light,
                digest=f"d{client.id}",
                name=model,
            )
        )

    def _leave(self, client: Client) -> None:
        if not client.ended:
            client.left = True
            self._end(client, "left")
            self.post(events.RequestLeft(client.id))

    def _command(self) -> None:
        source = self.random
        model = source.choice([entry.key for entry in self.plan.models])
        fate = source.random()
        if fate < 0.35:
            self.post(events.LoadAsked(model))
        elif fate < 0.7:
            self.post(events.UnloadAsked(model, force=source.random() < 0.3))
        elif fate < 0.8:
            self.post(events.PinAsked(model, True))
            self.clock.later(source.uniform(1.0, 30.0), lambda: self.post(events.PinAsked(model, False)))
        else:
            self._reload()

    def _reload(self) -> None:
        """Take one model out of the configuration for a while, or have one replaced."""
        models = list(self.plan.models)
        gone = self.random.choice(models)
        if self.random.random() < 0.5:
            self.post(events.ModelsChanged(tuple(models), self.policy, restart=(gone.key,)))
            return
        rest = tuple(entry for entry in models if entry is not gone)
        self.post(events.ModelsChanged(rest, self.policy))
        back = events.ModelsChanged(tuple(models), self.policy)
        self.clock.later(self.random.uniform(0.1, 20.0), lambda: self.post(back))

    # What workers ask

    def needs_weights(self, request: int) -> bool:
        return not self.clients[request].light

    def poisonous(self, request: int) -> bool:
        return self.clients[request].poison

    def first_byte(self, request: int, child: Child) -> None:
        client = self.clients[request]
        if not client.answered and not client.ended and child in self.workers:
            client.answered = True
            self.post(events.RequestAnswered(request))


def random_plan(seed: int) -> Plan:
    """A history of any kind: sizes, budgets, policies, faults and habits are drawn from the seed."""
    source = random.Random(f"plan {seed}")
    count = source.randint(1, 5)
    by_memory = source.random() < 0.5
    shared = ("file", source.randint(1, 4))
    models = tuple(_random_entry(source, index, by_memory, shared) for index in range(count))
    policy = Policy(
        models_max=source.randint(1, 3) if not by_memory or source.random() < 0.3 else 0,
        budget=(("host", source.randint(4, 14)), ("gpu0", source.randint(4, 8))) if by_memory else (),
        spare_workers=source.randint(0, 2),
        max_swap_wait=source.choice([None, 0.5, 5.0, 20.0]),
        drain_timeout=source.choice([0.5, 5.0, 30.0]),
        min_residency=source.choice([0.0, 0.0, 10.0]),
        queue_limit=source.choice([512, 512, 5]),
        wait_limit=source.choice([0.0, 0.0, 40.0]),
        threads=source.choice([1, 2, 8]),
        wedge_after=source.choice([30.0, 60.0]),
        stable_after=source.choice([5.0, 30.0]),
        cooldown=source.choice([20.0, 300.0]),
    )
    calm = source.random() < 0.3
    temper = Temper() if calm else _random_temper(source)
    return Plan(
        models=models,
        policy=policy,
        temper=temper,
        arrivals=source.randint(30, 70),
        interval=source.choice([0.1, 0.5, 1.5, 5.0]),
        leave=source.choice([0.0, 0.05, 0.5]),
        poison=0.0 if calm else source.choice([0.0, 0.0, 0.02]),
        light=source.choice([0.0, 0.2]),
        deadlines=source.choice([0.0, 0.1]),
        keep_alive=source.choice([0.0, 0.2]),
        priorities=source.choice([(0,), (0, 0, 1, 5)]),
        commands=source.choice([0.0, 0.0, 0.1]),
        stopped_early=source.random() < 0.2,
    )


def _random_entry(source: random.Random, index: int, by_memory: bool, shared: tuple[str, int]) -> ModelEntry:
    host = Need("host", source.randint(1, 6), (shared,) if source.random() < 0.3 else ())
    gpu = (Need("gpu0", source.randint(1, 5)),) if source.random() < 0.3 else ()
    return ModelEntry(
        key=f"m{index}",
        names=(f"m{index}",),
        needs=(host, *gpu) if by_memory else (),
        slots=source.randint(1, 4),
        pin=source.random() < 0.03,
        priority=source.choice([0, 0, 0, 1]),
        home=source.random() < 0.1,
        default_environment=source.random() < 0.8,
        on_gpu=bool(gpu),
        sleep_idle=source.choice([0.0, 0.0, 0.3, 3.0]),
        unload_idle=source.choice([0.0, 0.0, 1.0, 10.0]),
        recycle_after=source.choice([0, 0, 0, 5]),
        stop_timeout=source.choice([1.0, 10.0]),
        load_on_startup=source.random() < 0.1,
    )


def _random_temper(source: random.Random) -> Temper:
    def maybe(probability: float) -> float:
        return probability if source.random() < 0.4 else 0.0

    return Temper(
        spawn_fails=maybe(0.05),
        dies_at_start=maybe(0.05),
        load_error=maybe(0.05),
        load_out_of_memory=maybe(0.1),
        load_crash=maybe(0.1),
        crash=maybe(0.03),
        hang=maybe(0.01),
        loses_work=maybe(0.02),
        loses_wakeup=maybe(0.2),
        stubborn=maybe(0.1),
        unkillable=maybe(0.05),
        stale_reports=maybe(0.5),
        tight=maybe(0.5),
        load=source.choice([(0.1, 1.0), (1.0, 20.0)]),
        service=source.choice([(0.1, 3.0), (1.0, 60.0)]),
    )
