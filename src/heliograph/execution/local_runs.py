"""Runs with turns in this process, and the callers here that wait for their ends: they need not read what this process has just committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from heliograph.execution.packed_commit import as_jsonb
from heliograph.redaction import redacted_json
from heliograph.signals.model import Draft
from heliograph.signals.run_end import END

_HANDED_BYTES_MAX = 65_536


class LocalEnd(msgspec.Struct, frozen=True):
    """An end that this process has committed. target: the application of the run. payload: that of `workflow:end`; None if it is long."""

    target: str
    payload: bytes | None

    def read(self) -> Any:
        """The payload, with keys and numbers in the form in which PostgreSQL returns them."""
        return None if self.payload is None else as_jsonb(msgspec.json.decode(self.payload))


class EndWaiter:
    """A caller that waits for the end of a run. end: set when this process commits it."""

    end: LocalEnd | None = None


class LocalRuns:
    """What the workers of one process do with runs. A run is its project and its id.

    While a worker here executes a turn of a run, a caller that waits does not read. The run can still end without that turn: by a stop, a
    timeout, or another worker that took over its lease. So the caller reads after some time without a ring.
    """

    def __init__(self) -> None:
        self._turns: dict[tuple[str, str], int] = {}  # of runs that have any
        self._waiters: dict[tuple[str, str], list[EndWaiter]] = {}

    def execution_started(self, project: str, run_id: str) -> None:
        """Count a turn of the run that a worker of this process executes from here on."""
        run = project, run_id
        self._turns[run] = self._turns.get(run, 0) + 1

    def execution_ended(self, project: str, run_id: str) -> None:
        """Count one turn less, however its execution ended."""
        run = project, run_id
        left = self._turns.pop(run, 0) - 1  # `record_end` may have removed it
        if left > 0:
            self._turns[run] = left

    def has_turn(self, project: str, run_id: str) -> bool:
        """Whether a worker of this process executes a turn of the run. False once the end of the run is recorded, while that turn finishes."""
        return (project, run_id) in self._turns

    @contextmanager
    def waiter(self, project: str, run_id: str) -> Iterator[EndWaiter]:
        """Register a caller for the duration of the block. It looks at `end` after each ring of the run's log."""
        run, waiter = (project, run_id), EndWaiter()
        waiters = self._waiters.setdefault(run, [])
        waiters.append(waiter)
        try:
            yield waiter
        finally:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[run]

    def record_end(self, project: str, run_id: str, target: str, drafts: Sequence[Draft]) -> None:
        """Hand the end of a run to the callers that wait for it. Call it after the commit with these signals, and before the ring of its log.

        Each caller reads a long payload itself, so that many of them do not delay the turns of this process.
        """
        run = project, run_id
        self._turns.pop(run, None)
        if waiters := self._waiters.get(run):
            payload = redacted_json(next(draft.payload for draft in reversed(drafts) if draft.name == END))
            end = LocalEnd(target, payload if len(payload) <= _HANDED_BYTES_MAX else None)
            for waiter in waiters:
                waiter.end = end
