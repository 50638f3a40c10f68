"""The world that a plan drives: `heliograph.world.seam.World` over a backend, one instance for each simulated process.

All faults are injected here. A kernel call may be lost before it is sent, or its
reply after the commit. A process may crash or freeze before a call, after its
commit, at a named failpoint or in its sleep, and may be cut off from the database
for a while. Bells and published messages may be lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from heliograph.errors import StoreUnavailable
from heliograph.outbox_records import Event
from heliograph.testing.kernel.jsonb import encode
from heliograph.testing.simulator.event_loop import Process
from heliograph.testing.simulator.shared_state import SimSubscription, Stage
from heliograph.world.seam import BellKey
from heliograph.world.user_code import within

T = TypeVar("T")


BEFORE_CALL = ("crash", "freeze", "cut", "lost", "slow")
AFTER_CALL = ("crash", "freeze", "cut_reply", "lost_reply", "cut_for_long")
_PATIENCE_SECONDS = 32.0  # longer than any call of the ledger is tried again
EARLY = ("early_report",)
AT_POINT = ("crash_at_point", "freeze_at_point")
IN_SLEEP = ("crash_in_sleep", "freeze_in_sleep")


class SimTransaction:
    """See `heliograph.world.seam.Transaction`. Its effects happen when the kernel call that ends it has been executed."""

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
        """Report the result of a command before its turn suspends."""
        project, items = args
        for item in items:
            for call in item["calls"]:
                if call["kind"] == "tool" and self.stage.fault(self.slot, f"{self.slot}/early", EARLY) is not None:
                    report = {"turn_id": item["turn_id"], "call_id": call["call_id"], "token": call["token"],
                              "status": "success", "result": 1}  # fmt: skip
                    self.stage.execute("early", "report", (project, [report]))

    def subscribe(self, keys: Iterable[BellKey]) -> SimSubscription:
        return SimSubscription(self.stage, self.process, tuple(keys))

    @property
    def is_observed(self) -> bool:
        """False: no simulated process watches the wire."""
        return False

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        """Do nothing."""

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        if self.process.is_dead:  # a coroutine that is dropped at the end still runs its `finally`
            return
        lost = "bell_lost" if self.stage.polls else "bell_lost_often"
        for key in keys:
            for subscription in list(self.stage.subscriptions.get(key, ())):
                is_own = subscription.process is self.process
                if is_own or self.stage.fault(self.slot, f"{self.slot}/bell", (lost,)) is None:
                    subscription.ring()

    async def publish(self, _project: str, events: Sequence[Event]) -> None:
        for event in events:
            await self._travel(f"{self.slot}/publish")
            if self.stage.fault(self.process.name, f"{self.slot}/publish", ("wire_down",)):
                raise StoreUnavailable(f"the simulator lost event {event.key}")
            body = encode(event.body).decode()
            self.stage.record(self.process.name, f"published {event.subject} {event.key} {body}")
            self.stage.judge.published(event.subject, event.key, event.body)
            if event.subject.startswith("cmd."):
                self.stage.commands.append(event.body)

    async def failpoint(self, name: str) -> None:
        if self.is_mortal:
            await self._suffer(name, AT_POINT)

    async def crash(self) -> None:
        """Kill this process; it runs no further line."""
        for subscriptions in self.stage.subscriptions.values():
            subscriptions[:] = [each for each in subscriptions if each.process is not self.process]
        self.stage.loop.kill(self.process)
        await self.stage.loop.create_future()

    async def _travel(self, site: str) -> None:
        await asyncio.sleep(self.stage.plan.between(f"{site}/latency", 0.0005, 0.004) * self.stage.distance)

    async def _suffer(self, where: str, kinds: tuple[str, ...]) -> None:
        """Inject the faults of this place. Raises StoreUnavailable."""
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
