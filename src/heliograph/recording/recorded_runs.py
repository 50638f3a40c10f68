"""The states and memories of runs that parts of a recording have read: those that the reactions before them had to make.

A recording has no reactions. Its signals show most of what a reaction does. What no signal shows, such as the members of a join that
still waits, is in the run that the next part reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from heliograph.execution.packed_commit import as_jsonb
from heliograph.reactive.run_memory import stored_memory
from heliograph.recording.compared_values import plain
from heliograph.recording.recording import Part
from heliograph.types import JsonObject


class RecordedRuns:
    """The runs that the parts of a recording have read, by their versions: each reaction makes the next version."""

    def __init__(self, parts: Iterable[Part]):
        self._runs: dict[tuple[str, int], JsonObject] = {}
        for part in parts:
            for run in _runs_of(part):
                with suppress(KeyError, TypeError):  # of a file that was edited
                    self._runs[run["run_id"], run["version"]] = run

    def compared(self, run_id: str, version: int, reaction: JsonObject) -> tuple[JsonObject, JsonObject]:
        """Return the state and the memory that a committed reaction changes, as recorded and as it makes them; nothing, if no part has read them.

        version: of the run from which the reaction was computed.
        """
        run: Any = self._runs.get((run_id, version + 1))
        keys = [] if run is None else [key for key in ("state", "memory") if key in reaction]
        recorded: JsonObject = {key: run[key] for key in keys}
        replayed: Any = as_jsonb(plain({key: reaction[key] for key in keys}))
        if "memory" in keys:
            before = stored_memory(run["memory"], is_over=run.get("status") == "ended")
            after = replayed["memory"]
            of_kernel = {"join_base"} if after.get("join_base", 0) is None else set()  # what the kernel sets
            for key in of_kernel | ({"untrusted_keys"} if "keeps_taint" in reaction else set()):
                before.pop(key, None)
                after.pop(key, None)
            recorded["memory"] = before
        return recorded, replayed


def _runs_of(part: Part) -> Iterator[Any]:
    """The committed runs that a part has read."""
    data: Any = part.data
    if "memory" in data:
        yield {**data, "version": 1}
    elif "claimed" in data or "pending" in data:
        yield data["claimed" if "claimed" in data else "pending"].get("run")
    view: Any = None
    for entry in part.entries:
        if entry[0] == "view":
            view = entry[1]
        elif entry[0] == "call" and entry[2] == "finish" and "first" in entry[4]:
            yield view  # which may be of an ending that this one follows: both were accepted
        elif entry[0] == "answer" and isinstance(entry[2], dict):
            yield entry[2].get("run")
