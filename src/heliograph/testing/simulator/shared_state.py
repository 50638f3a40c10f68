"""The parts that all simulated processes share: the event loop, the plan, the kernel, the bells and the trace."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Protocol

from heliograph.errors import KernelRejected
from heliograph.testing.kernel.backend import Backend
from heliograph.testing.kernel.jsonb import encode
from heliograph.testing.kernel.tables import microseconds
from heliograph.testing.oracles.records import Books
from heliograph.testing.simulator.event_loop import Process, SimLoop
from heliograph.testing.simulator.plan import Plan
from heliograph.world.seam import BellKey

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
_BEGINNING = microseconds(BEGINNING)

_WHOLE = re.compile(r"(?<=[0-9])\.0(?=[,}\]])")  # a column of PostgreSQL writes 60 where the in-memory kernel has 60.0


class Judge(Protocol):
    """Receives and records everything that happens; see `oracles.kernel_calls.Oracles`."""

    @property
    def books(self) -> Books: ...

    def calling(self, function: str, args: tuple[Any, ...]) -> None:
        """Called before a kernel call."""
        ...

    def called(self, who: str, function: str, args: tuple[Any, ...], answer: Any, now: int) -> None: ...

    def rejected(self, who: str, function: str, error: KernelRejected) -> None: ...

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
        self.subscriptions: dict[BellKey, list[SimSubscription]] = {}
        self.commands: list[dict[str, Any]] = []  # on the wire, for tools that listen there

    @property
    def micros(self) -> int:
        """Virtual time in whole microseconds, PostgreSQL's resolution."""
        return round(self.loop.time() * 1_000_000)

    @property
    def micros_of_date(self) -> int:
        """Virtual microseconds since 1970, as the kernel counts them."""
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
        line = f"{self.micros / 1e6:.6f} {who} {_WHOLE.sub('', what)}"
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
        """Execute, record and judge one kernel call."""
        self.calls += 1
        self.judge.calling(function, args)
        try:
            answer = self.backend.call(function, args, self.now())
        except KernelRejected as error:
            state = error.message[-7:]  # the SQLSTATE; the words are each kernel's own, and may end up in a log
            self.record(who, f"{function} {encode(args).decode()} rejected {state}")
            self.judge.rejected(who, function, error)
            raise KernelRejected(f"{function} rejected the call {state}") from error
        self.record(who, f"{function} {encode(args).decode()} -> {encode(answer).decode()}")
        self.judge.called(who, function, args, answer, self.micros_of_date)
        return answer


class SimSubscription:
    """See `heliograph.world.seam.Subscription`: the bells that one process receives."""

    def __init__(self, stage: Stage, process: Process, keys: tuple[BellKey, ...]):
        self.process = process
        self._stage = stage
        self._keys = keys
        self._bell = asyncio.Event()
        for key in keys:
            stage.subscriptions.setdefault(key, []).append(self)

    def clear(self) -> None:
        self._bell.clear()

    def ring(self) -> None:
        self._bell.set()

    def found(self) -> None:
        """Does nothing: the simulator forges no rings, so it needs no rate limit."""

    async def wait(self, timeout_seconds: float) -> bool:
        waits_for_bell = not self._stage.polls and self._keys[0].name.startswith("work:")
        try:
            async with asyncio.timeout(None if waits_for_bell else timeout_seconds):
                await self._bell.wait()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        for key in self._keys:
            if self in self._stage.subscriptions[key]:
                self._stage.subscriptions[key].remove(self)
