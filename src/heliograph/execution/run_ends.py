"""The ends of runs that this process has committed: a caller that waits here for such an end does not read it from the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from heliograph.execution.packed_commit import as_jsonb
from heliograph.redaction import redacted_json
from heliograph.signals.model import Draft
from heliograph.types import JsonObject

END = "workflow:end"


class AwaitedEnd:
    """What this process knows of the end of a run that a caller waits for. payload: that of its `workflow:end`, once it is committed."""

    payload: JsonObject | None = None


class RunEnds:
    """The ends of the runs of a process. A run is its project and its id.

    While a run has a turn in this process, it has not ended: only the end of that turn, or somebody's stop, can end it.
    """

    def __init__(self) -> None:
        self._turns: Counter[tuple[str, str]] = Counter()
        self._awaited: dict[tuple[str, str], list[AwaitedEnd]] = {}

    def turn_started(self, project: str, run_id: str) -> None:
        self._turns[project, run_id] += 1

    def turn_ended(self, project: str, run_id: str) -> None:
        run = project, run_id
        if self._turns[run] > 1:
            self._turns[run] -= 1
        else:
            del self._turns[run]

    def has_turn(self, project: str, run_id: str) -> bool:
        """Whether a turn of the run is in this process, as far as its end is not committed."""
        return self._turns[project, run_id] > 0

    @contextmanager
    def awaited(self, project: str, run_id: str) -> Iterator[AwaitedEnd]:
        """Wait for the end of a run in the block. Its subscription to the log of the run says when to look."""
        run, end = (project, run_id), AwaitedEnd()
        ends = self._awaited.setdefault(run, [])
        ends.append(end)
        try:
            yield end
        finally:
            ends.remove(end)
            if not ends:
                del self._awaited[run]

    def committed(self, project: str, run_id: str, drafts: Sequence[Draft]) -> None:
        """Record that this process has ended a run with these signals. The log rings afterwards."""
        run = project, run_id
        self._turns.pop(run, None)
        for end in self._awaited.get(run, ()):
            payload = next(draft.payload for draft in reversed(drafts) if draft.name == END)
            end.payload = as_jsonb(msgspec.json.decode(redacted_json(payload)))  # as the database has it
