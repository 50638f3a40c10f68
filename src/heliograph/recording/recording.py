"""A recording in memory: the log of a run, and the parts in which its workers read values from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliograph.signals.model import Signal
from heliograph.types import JsonObject

FORMAT = (2, 0)  # major: older programs cannot read it. minor: they can, and ignore its further keys
READ_MAJORS = (1, 2)  # entries of 1 have reactions (decision 0174)


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a recording.

    heliograph: the version that wrote it. loaded_from: the `FILE.py:app` from which `helio run` loaded the application; None if
    another program recorded the run.
    """

    application: str
    run_id: str
    outcome: str | None
    heliograph: str
    format: tuple[int, int] = FORMAT
    name: str | None = None
    tags: tuple[str, ...] = ()
    loaded_from: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """The start of the run, one claim of a turn, or one reaction; of a fork, also those of the runs that it shares.

    data, entries: see `heliograph.execution.tape`.

    A call of the ledger has the positions of its signals in the log, {first, count}, in place of their names.
    """

    name: str
    data: JsonObject
    entries: Sequence[Sequence[Any]]

    def calls(self) -> Iterator[Sequence[Any]]:
        """The calls of the ledger that it made."""
        return (entry for entry in self.entries if entry[0] == "call")


@dataclass(frozen=True, slots=True)
class Gap:
    """A part that the ledger does not hold, and why. Its signals are in the log, and are not reproduced."""

    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded run. signals: its log, in order. untrusted: the positions of the signals that follow from untrusted content."""

    header: Header
    signals: Sequence[Signal]
    parts: Sequence[Part]
    gaps: Sequence[Gap] = ()
    untrusted: frozenset[int] = field(default_factory=frozenset)

    @property
    def start(self) -> Part | None:
        """The start of the run; of a fork, that of the first run that it shares."""
        return next((part for part in self.parts if "caller" in part.data), None)

    def signals_of(self, place: Mapping[str, int]) -> list[Signal]:
        """The signals of one call of the ledger. place: {first, count}."""
        first = self.signals[0].seq if self.signals else 1
        start = place["first"] - first
        return list(self.signals[start : start + place["count"]])
