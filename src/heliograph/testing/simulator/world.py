"""The world that a plan drives: `heliograph.world.seam.World` over a backend, one instance for each simulated process.

All faults are injected here. A kernel call may be lost before it is sent, or its
reply after the commit. A process may crash or freeze before a call, after its
commit, at a named failpoint or in its sleep, and may be cut off from the database
for a while. Bells and published messages may be lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.records import Event
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.jsonb import encode
from heliograph.testing.kernel.tables import microseconds
from heliograph.testing.oracles.books import Books
from heliograph.testing.simulator.event_loop import Process, SimLoop
from heliograph.testing.simulator.plan import Plan
from heliograph.world.seam import BellKey
from heliograph.world.user_code import within

T = TypeVar("T")

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_BEGINNING = microseconds(BEGINNING)

BEFORE_CALL = ("crash", "freeze", "cut", "lost", "slow")
AFTER_CALL = ("crash", "freeze", "cut_reply", "lost_reply", "cut_for_long")
_PATIENCE_SECONDS = 32.0  # longer than any call of the ledger is tried again
EARLY = ("early_report",)
AT_POINT = ("crash_at_point", "freeze_at_point")
IN_SLEEP = ("crash_in_sleep", "freeze_in_sleep")


class Judge(Protocol):
    """Receives and records everything that happens; see `oracles.judge.Oracles`."""

    @property
    def books(self) -> Books: ...

    def called(self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int) -> None: ...

    def refused(self, who: str, function: str, error: KernelRejected) -> None: ...

    def published(self, subject: str, key: str, body: dict[str, Any]) -> None: ...

    def task_died(self, name: str, error: BaseException) -> None: ...


class Stage:
    """The shared parts of all simulated processes: loop, plan, kernel, bells and trace."""

    def __init__(
        self, loop: SimLoop, plan: Plan, backend: Backend, judge: Judge, *, lease_seconds: float, keeps_trace: bool
    ):
        self.loop = loop
        self.plan = plan
        self.backend = backend
        self.judge = judge
        self.lease_seconds = lease_seconds
        self.sends_commands = False  # workers put commands on the wire
        self.distance = 1.0  # to the database; far away, calls meet and are sent together
        self.polls = True  # False: no worker looks for work unless a bell rings
        self.calls = 0
        self.faults: Counter[str] = Counter()
        self.log: list[str] = []
        self._keeps_trace = keeps_trace
        self._hash = blake2b(digest_size=16)
        self.ears: dict[BellKey, list[SimSubscription]] = {}
        self.commands: list[dict[str, Any]] = []  # on the wire, for tools that listen there

    @property
    def micros(self) -> int:
        """Virtual time in whole microseconds, PostgreSQL's resolution."""
        return round(self.loop.time() * 1_000_000)

    @property
    def micros_of_date(self) -> int:
        """The same since 1970, as the kernel knows it."""
        return _BEGINNING + self.micros

    @property
    def is_calm(self) -> bool:
        """Whether faults have ended, so all work can finish."""
        return self.loop.time() > self.plan.horizon_seconds

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()

    def now(self) -> datetime:
        return BEGINNING + timedelta(microseconds=self.micros)

    def record(self, who: str, what: str) -> None:
        line = f"{self.micros / 1e6:.6f} {who} {what}"
        self._hash.update(line.encode())
        if self._keeps_trace:
            self.log.append(line)

    def fault(self, who: str, site: str, kinds: Iterable[str]) -> str | None:
        kind = self.plan.fault(site, kinds, self.loop.time())
        if kind is not None:
            self.faults[kind] += 1
            self.record(who, f"! {kind} @ {site}")
        return kind

    def execute(self, who: str, function: str, args: tuple[Any, ...]) -> Any:
        """One kernel call, judged and recorded."""
        self.calls += 1
        try:
            answer = self.backend.call(function, args, self.now())
        except KernelRejected as error:
            state = error.message[-7:]  # the SQLSTATE; the words are each kernel's own, and may end up in a log
            self.record(who, f"{function} {encode(args).decode()} refused {state}")
            self.judge.refused(who, function, error)
            raise KernelRejected(f"{function} refused {state}") from error
        self.record(who, f"{function} {encode(args).decode()} -> {encode(answer).decode()}")
        self.judge.called(who, function, args, answer, self.micros_of_date)
        return answer


class SimSubscription:
    """See `heliograph.world.seam.Subscription`."""

    def __init__(self, world: SimWorld, keys: tuple[BellKey, ...]):
        self.world = world
        self._keys = keys
        self._bell = asyncio.Event()
        for key in keys:
            world.stage.ears.setdefault(key, []).append(self)

    def clear(self) -> None:
        self._bell.clear()

    def ring(self) -> None:
        self._bell.set()

    def found(self) -> None:
        """The simulator forges no rings, so none has to be paced."""

    async def wait(self, timeout_seconds: float) -> bool:
        is_deaf = not self.world.stage.polls and self._keys[0].name.startswith("work:")
        try:
            async with asyncio.timeout(None if is_deaf else timeout_seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        for key in self._keys:
            if self in self.world.stage.ears[key]:
                self.world.stage.ears[key].remove(self)


class SimTransaction:
    """See `heliograph.world.seam.Transaction`: what is done in it happens when the kernel call that ends it has been executed."""

    def __init__(self, world: SimWorld):
        self._world = world
        self._effects: list[Callable[[], None]] = []
        self.is_open = True

    @property
    def connection(self) -> SimTransaction:
        return self

    def do(self, effect: Callable[[], None]) -> None:
        self._effects.append(effect)

    async def commit(self, function: str, *args: object) -> Any:
        if not self.is_open:
            raise StoreUnavailable(f"{function} was not done: its transaction has ended")
        self.is_open = False
        return await self._world.call(function, *args, effects=self._effects)

    async def was_committed(self) -> bool:
        return False


class SimWorld:
    """The world of one process. `slot` names it in the plan: a restarted worker is another process in the same slot."""

    def __init__(self, stage: Stage, process: Process, slot: str, *, is_mortal: bool):
        self.stage = stage
        self.process = process
        self.slot = slot
        self.is_mortal = is_mortal
        self._cut_until = 0.0

    def now(self) -> datetime:
        return self.stage.now()

    def monotonic(self) -> float:
        return self.stage.loop.time()

    def new_id(self, kind: str) -> str:
        return self.stage.plan.name(kind)

    async def sleep(self, seconds: float) -> None:
        if self.is_mortal:
            await self._suffer("sleep", IN_SLEEP)
        await asyncio.sleep(seconds)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.stage.loop.spawn(self.process, name, work)
        task.add_done_callback(self._reap)
        return task

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        return await within(seconds, work)

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        try:
            await self.sleep(0.001)
            return function(*args)
        finally:
            if ended is not None:
                ended()

    async def call(self, function: str, *args: object, effects: Iterable[Callable[[], None]] = ()) -> Any:
        site = f"{self.slot}/{function}"
        await self._travel(site)
        await self._suffer(f"{function}/before", BEFORE_CALL if self.is_mortal else ("lost",))
        if self.stage.loop.time() < self._cut_until:
            raise StoreUnavailable("the simulator cut this process off")
        if function == "suspend" and self.is_mortal:
            self._answer_early(args)
        answer = self.stage.execute(self.process.name, function, args)
        if effects and answer[0]["outcome"] == "ok":
            for effect in effects:
                effect()
        await self._suffer(f"{function}/after", AFTER_CALL if self.is_mortal else ("lost_reply",))
        await self._travel(site)
        return answer

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SimTransaction]:
        if self.stage.loop.time() < self._cut_until:
            raise StoreUnavailable("the simulator cut this process off")
        await self._travel(f"{self.slot}/transaction")
        transaction = SimTransaction(self)
        try:
            yield transaction
        finally:
            transaction.is_open = False

    def _answer_early(self, args: tuple[Any, ...]) -> None:
        """Somebody who knows a command before it is on its way reports its result before its turn suspends."""
        project, items = args
        for item in items:
            for call in item["calls"]:
                if call["kind"] == "tool" and self.stage.fault(self.slot, f"{self.slot}/early", EARLY) is not None:
                    report = {"turn_id": item["turn_id"], "call_id": call["call_id"], "token": call["token"],
                              "status": "success", "result": 1}  # fmt: skip
                    self.stage.execute("early", "report", (project, [report]))

    def subscribe(self, keys: Iterable[BellKey]) -> SimSubscription:
        return SimSubscription(self, tuple(keys))

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        """Nobody watches the wire."""

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        if self.process.is_dead:  # a coroutine that is dropped at the end still runs its `finally`
            return
        lost = "bell_lost" if self.stage.polls else "bell_lost_often"
        for key in keys:
            for ear in list(self.stage.ears.get(key, ())):
                is_here = ear.world.process is self.process
                if is_here or self.stage.fault(self.slot, f"{self.slot}/bell", (lost,)) is None:
                    ear.ring()

    async def publish(self, _project: str, events: Sequence[Event]) -> None:
        for event in events:
            await self._travel(f"{self.slot}/publish")
            if self.stage.fault(self.process.name, f"{self.slot}/publish", ("wire_down",)):
                raise StoreUnavailable(f"the simulator lost event {event.key}")
            said = encode(event.body).decode()
            self.stage.record(self.process.name, f"published {event.subject} {event.key} {said}")
            self.stage.judge.published(event.subject, event.key, event.body)
            if event.subject.startswith("cmd."):
                self.stage.commands.append(event.body)

    async def failpoint(self, name: str) -> None:
        if self.is_mortal:
            await self._suffer(name, AT_POINT)

    async def crash(self) -> None:
        """The process is gone; this line is the last it runs."""
        for ears in self.stage.ears.values():
            ears[:] = [ear for ear in ears if ear.world is not self]
        self.stage.loop.kill(self.process)
        await self.stage.loop.create_future()

    async def _travel(self, site: str) -> None:
        await asyncio.sleep(self.stage.plan.between(f"{site}/latency", 0.0005, 0.004) * self.stage.distance)

    async def _suffer(self, where: str, kinds: tuple[str, ...]) -> None:
        """Whatever goes wrong here. Raises StoreUnavailable."""
        site = f"{self.slot}/{where}"
        kind = self.stage.fault(self.process.name, site, kinds)
        if kind is None:
            return
        long = self.stage.plan.between(f"{site}/long", 0.1, 2.0) * self.stage.lease_seconds
        long += _PATIENCE_SECONDS if kind == "cut_for_long" else 0.0
        if kind.startswith("crash"):
            await self.crash()
        elif kind.startswith("freeze"):
            self.stage.loop.freeze(self.process, long)
            await asyncio.sleep(0)
        elif kind == "slow":
            await asyncio.sleep(long)
        else:
            if kind.startswith("cut"):
                self._cut_until = self.stage.loop.time() + long
            raise StoreUnavailable(f"the simulator did this: {kind}")

    def _reap(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.stage.judge.task_died(task.get_name(), error)
