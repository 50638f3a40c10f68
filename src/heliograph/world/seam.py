"""The one interface through which the runtime reaches the clock, ids, tasks and the kernel, so that a simulator can replace them.

Everything that may differ between two runs of the same program comes from a `World`: time, ids, waiting, tasks, the
kernel and the bells. Production uses `heliograph.world.real.RealWorld`, the simulator a world driven by a seed
(docs/internals/kernel.md). Execution and workers import only this module of the package.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from heliograph.outbox_records import Event

T = TypeVar("T")

# The bells of signals: a subscriber listens with a pattern, and a commit rings with a name (`heliograph.world.signal_bells`).
SIGNALS = "signals:"
SUBSCRIBERS = (
    "subscribers:"  # the announcements of patterns: without one, commits do not ring for it in other processes
)
ANNOUNCE_SECONDS = 5.0  # between two announcements


class Task(Protocol):
    """A spawned coroutine: the part of `asyncio.Task` that the runtime needs."""

    def cancel(self) -> bool: ...
    def done(self) -> bool: ...


class BellKey(NamedTuple):
    """The key of a bell in one project. `name` is `kind:name`, for example `work:newsroom` or `log:run_1`."""

    project: str
    name: str


def bell_keys(project: str, names: Iterable[str]) -> list[BellKey]:
    """The keys of these names in one project."""
    return [BellKey(project, name) for name in names]


class Subscription(Protocol):
    """Receives the rings of some keys. A ring between `clear` and `wait` is kept, so: clear, look, wait."""

    def clear(self) -> None: ...

    async def wait(self, timeout_seconds: float) -> bool:
        """Wait for a ring; return True, or False after the timeout."""
        ...

    def found(self) -> None:
        """Report that the look after a ring found work: such a ring does not count toward the rate limit.

        A ring that the rate limit delays is passed on at once.
        """
        ...

    def close(self) -> None: ...


class Transaction(Protocol):
    """A transaction on the kernel's database for an agent's effect and the record of its result."""

    @property
    def connection(self) -> Any:
        """The driver's connection, for the effect."""
        ...

    async def commit(self, function: str, *args: object) -> Any:
        """Call one kernel function for one item and commit; roll back unless the answer is 'ok'.

        Raises StoreUnavailable if it is unknown whether the commit happened, KernelRejected if the transaction has ended.
        """
        ...

    async def was_committed(self) -> bool:
        """Whether the effect committed the transaction itself, which is not allowed. Rolls back all other writes."""
        ...


class World(Protocol):
    """Time, ids, tasks, the kernel, the bells, and the failpoints of the simulator."""

    def now(self) -> datetime:
        """The time in UTC, for display and timestamps. The kernel compares only its own time."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; for durations."""
        ...

    def new_id(self, kind: str) -> str: ...

    async def sleep(self, seconds: float) -> None: ...

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> Task:
        """Run `work` concurrently. Its exceptions are logged, not raised here."""
        ...

    async def within(self, seconds: float | None, work: Awaitable[T]) -> T:
        """Return the result of `work`; raise TurnTimedOut after `seconds`. None waits forever."""
        ...

    async def run_sync(self, function: Callable[..., T], *args: object, ended: Callable[[], None] | None = None) -> T:
        """Run a blocking function without blocking the loop; return its result.

        ended: called when the function ends, which may be long after the caller was cancelled.
        """
        ...

    async def call(self, function: str, *args: object) -> Any:
        """Call one kernel function in one transaction, with JSON arguments and a JSON result. Raises StoreUnavailable."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction; without a commit it is rolled back. Raises StoreUnavailable."""
        ...

    def subscribe(self, keys: Iterable[BellKey]) -> Subscription: ...

    def ring(self, keys: Iterable[BellKey], agents: Iterable[str] = ()) -> None:
        """Ring in this process and in others, after the commit that it announces. A ring may be lost (decision 0009).

        agents: ids of agents that have work now, if known; a hint for observers of the wire, which no worker reads.
        """
        ...

    @property
    def is_observed(self) -> bool:
        """Whether a wire may have observers of events: without one, `publish_event` has no effect."""
        ...

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        """Send an event to observers of the wires, without a guarantee; wires without observers drop it."""
        ...

    async def publish(self, project: str, events: Sequence[Event]) -> None:
        """Publish a project's events on the wires, in order; an event's `key` is its message id.

        Raises StoreUnavailable; some events may have been published by then.
        """
        ...

    async def failpoint(self, name: str) -> None:
        """A named point where the simulator may crash, stall or disconnect (docs/internals/kernel.md)."""
        ...
