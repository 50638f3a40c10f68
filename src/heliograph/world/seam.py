"""The one seam between the runtime and the world.

Everything that could differ between two runs of the same program comes through
a `World`: time, ids, waiting, tasks, the kernel and the bell. Production passes
`heliograph.world.real.RealWorld`; the simulator passes one that is driven by a
seed (docs/internals/kernel.md). The runtime imports this file and never the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from heliograph.records import Event

T = TypeVar("T")


class Task(Protocol):
    """A spawned coroutine: what `asyncio.Task` is, as far as the runtime needs it."""

    def cancel(self) -> bool: ...
    def done(self) -> bool: ...


class BellKey(NamedTuple):
    """The subject of a bell in one project. `name` is `kind:name`, for example `work:newsroom` or `log:run_1`."""

    project: str
    name: str


def bell_keys(project: str, names: Iterable[str]) -> list[BellKey]:
    return [BellKey(project, name) for name in names]


class Subscription(Protocol):
    """Hears the rings of some keys. A ring between `clear` and `wait` is kept, so: clear, look, wait."""

    def clear(self) -> None: ...

    async def wait(self, timeout_seconds: float) -> bool:
        """True when it rang, False when the time ran out."""
        ...

    def found(self) -> None:
        """Report that the look after a ring found work: such a ring does not count toward the rate limit.

        A ring that the rate limit delays is passed on at once.
        """
        ...

    def close(self) -> None: ...


class Transaction(Protocol):
    """One transaction on the kernel's database that an agent's own effect shares with the record of it."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the effect."""
        ...

    async def commit(self, function: str, *args: object) -> Any:
        """One kernel function for one item, as the last of it, and then the commit. Undone unless the answer is 'ok'.

        Raises StoreUnavailable when it is not known whether it was committed, KernelRejected for one that has ended before.
        """
        ...

    async def was_committed(self) -> bool:
        """Whether the effect has committed it by itself, which is not its to do. What is not committed yet is undone."""
        ...


class World(Protocol):
    """Time, ids, tasks, the kernel, the bell, and the places where faults may be injected."""

    def now(self) -> datetime:
        """UTC, aware. For what is shown and stamped; no comparison in the kernel uses it (K20)."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; for durations."""
        ...

    def new_id(self, kind: str) -> str: ...

    async def sleep(self, seconds: float) -> None: ...

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        """Run `work` beside the caller. An exception in it is reported, not raised here."""
        ...

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        """The result of `work`, or TurnTimedOut after `seconds`; None waits for ever."""
        ...

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        """A blocking function's result, without blocking the loop. `ended` is called when it has ended, which may be long after
        nobody waits for it any more."""
        ...

    async def call(self, function: str, *args: object) -> Any:
        """One kernel function, one transaction. JSON in, JSON out. Raises StoreUnavailable when it may be tried again."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of one's own; left without its commit, it is undone. Raises StoreUnavailable."""
        ...

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription: ...

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        """Ring, here and in other processes. Never before the commit it tells of; may be lost (decision 0009).

        agents: the ids of those that have work now, as far as the caller knows: told to whoever watches the wire (G-72),
        and read by nobody here (S6).
        """
        ...

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        """Tell whoever watches the wire, soon and without a promise; where there is no such wire, nobody."""
        ...

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        """Put a project's events on the wires, in their order; an event's `key` is its message id. Some may have been published when it raises."""
        ...

    async def failpoint(self, name: str) -> None:
        """A named place where the simulator may crash, stall or cut (docs/internals/kernel.md)."""
        ...
