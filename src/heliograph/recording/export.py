"""Make a recording of a run from the database: its log, and what its commits have recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import Rejected
from heliograph.execution.packed_commit import EarlierFormat, as_jsonb, unpacked_data, unpacked_text
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import RecordedCommitRow, RecordingRow
from heliograph.recording.entries import DEPTH_MAX, check_part, is_too_deep, problem_of_entry
from heliograph.recording.file import header_of
from heliograph.recording.ledger_parts import ledger_parts
from heliograph.recording.recording import Gap, Header, Part, Recording
from heliograph.signals.model import Signal
from heliograph.types import JsonObject

CLAIM_UNRECORDED = "its worker recorded nothing of it"
UNREADABLE = "what it started from is pruned or was damaged"
INCOMPLETE = "some of its commits are missing: the replies to them were lost"


async def export_recording(reader: Reader, run_id: str) -> Recording:
    """Read the recording of a run; of a fork, with what the runs that it shares have recorded.

    A run that was not recorded has its log, and the parts that the ledger has. The recording of a run that continues meanwhile ends with a commit.
    Raises NotFound; Rejected (`invalid_recording`) if what the database has was damaged.
    """
    run = await reader.run(run_id)
    named: RecordingRow | None = await reader.recording(run_id)
    # in this order: what a claim has logged is in the log, and what the log has was recorded
    claims = {f"{turn}:{epoch}": count for turn, epoch, count in await reader.claims_of_run(run_id)}
    signals, untrusted = await reader.signals_with_trust(run_id)
    parts, last = RecordedParts(run_id), signals[-1].seq if signals else 0
    async with aclosing(reader.recorded_commits(run_id)) as commits:
        async for commit in commits:
            if commit.seq > last:
                break
            parts.add(commit)
    header = header_of(run.target, run_id, run.outcome, named.name if named else None, named.tags if named else ())
    if not parts.has_start:
        log, positions, from_ledger, gaps = await ledger_parts(reader, run_id)
        return Recording(header, log, from_ledger, gaps, frozenset(positions))
    return parts.recording(header, signals, untrusted, claims)


class RecordedParts:
    """The parts of a run, from what its commits have recorded, in the order of its log."""

    def __init__(self, run_id: str):
        self._run_id = run_id
        self._found: dict[str, _Commits] = {}

    def add(self, commit: RecordedCommitRow) -> None:
        """Add the next commit. Raises Rejected (`invalid_recording`)."""
        body = _decoded(commit)
        name = body["part"] if commit.run_id == self._run_id else f"{commit.run_id}/{body['part']}"
        self._found.setdefault(name, _Commits(name)).add(commit, body)

    @property
    def has_start(self) -> bool:
        """Whether the run was recorded."""
        return any(name.rpartition("/")[2] == "start" for name in self._found)

    def recording(
        self, header: Header, signals: Sequence[Signal], untrusted: Iterable[int], claims: Mapping[str, int]
    ) -> Recording:
        """The recording. claims: how many signals each claim of a turn has logged before its end.

        A claim of a recorded run that has logged nothing is no gap: nothing depends on it.
        """
        found, log = self._found, _Log(signals, frozenset(untrusted))
        parts = [part for each in found.values() if (part := each.part(log)) is not None]
        gaps = [Gap(each.name, each.gap) for each in found.values() if each.gap is not None]
        gaps += [Gap(claim, CLAIM_UNRECORDED) for claim, count in claims.items() if claim not in found and count]
        return Recording(header, signals, parts, gaps, log.untrusted)


class _Log:
    """The log of the run, as the claims of its turns refer to it. starts: the state and the memory of runs after their start."""

    def __init__(self, signals: Sequence[Signal], untrusted: frozenset[int]):
        self._signals = {signal.id: signal for signal in signals}
        self.untrusted = untrusted
        self.starts: dict[str, tuple[JsonObject, JsonObject]] = {}

    def cause(self, identifier: str) -> JsonObject:
        """The cause of a turn as its claim had it. Raises KeyError."""
        signal = self._signals[identifier]
        cause: JsonObject = {"id": signal.id, "name": signal.name, "payload": signal.payload, "agent": signal.agent,
                             "turn_id": signal.turn_id}  # fmt: skip
        return {**cause, "trust": "untrusted"} if signal.seq in self.untrusted else cause

    def start(self, run_id: str) -> tuple[JsonObject, JsonObject]:
        """The state and the memory of a run after its start. Raises KeyError."""
        state, memory = self.starts[run_id]
        return as_jsonb(state), as_jsonb(memory)  # a copy for each claim


class _AnyLog:
    """Stands for the log where only the form of what a commit has recorded is checked."""

    def cause(self, identifier: str) -> JsonObject:
        return {"id": identifier}

    def start(self, run_id: str) -> tuple[JsonObject, JsonObject]:
        return {}, {}


def _decoded(commit: RecordedCommitRow) -> dict[str, Any]:
    """What a commit has recorded. Raises Rejected."""
    try:
        body = unpacked_text(commit.body, commit.turn_id)
        if is_too_deep(commit.body.encode(), body):
            raise ValueError(f"it has more than {DEPTH_MAX} containers inside each other")
        _check(body, commit)
    except EarlierFormat as error:
        raise Rejected(f"run {commit.run_id} cannot be exported: {error}; export it with that version, or record another run",
                       code="invalid_recording") from error  # fmt: skip
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Rejected(f"run {commit.run_id} cannot be exported: what it recorded with its signal {commit.seq} was damaged "
                       f"({safe_repr(str(error))}); restore the row of heliograph.signals from a backup, or record another run",
                       code="invalid_recording") from error  # fmt: skip
    return body


def _check(body: dict[str, Any], commit: RecordedCommitRow) -> None:
    for key, kind in (("part", str), ("from", int), ("call", int), ("entries", list)):
        if type(body[key]) is not kind:
            raise TypeError(f"{key} has a wrong type")
    if body["from"] < 0:
        raise ValueError("from is negative")
    if not isinstance(body.get("gap"), str | None):
        raise TypeError("gap has a wrong type")
    if body.get("data") is not None:
        check_part(body["part"], unpacked_data(body["data"], commit.run_id, commit.turn_id, _AnyLog()), ())
    *entries, own = body["entries"]  # the last one is the call that the commit is, without the names of its signals
    for entry in [*entries, [*own, {}]]:
        if not isinstance(entry, list):
            raise TypeError("an entry is no list")
        if (problem := problem_of_entry(entry)) is not None:
            raise ValueError(problem)


class _Commits:
    """The commits of one part, in the order of the log. gap: why the entries after some of them are missing."""

    def __init__(self, name: str):
        self.name = name
        self.gap: str | None = None
        self._data: Any = None
        self._ids: tuple[str, str | None] = "", None
        self._entries: list[Any] = []
        self._places: dict[int, dict[str, int]] = {}  # the calls of the ledger that were committed

    def add(self, commit: RecordedCommitRow, body: dict[str, Any]) -> None:
        """Add a commit. It has again the entries of an earlier one to which the reply was lost."""
        if self.gap is not None:
            return
        if (reason := body.get("gap")) is not None or body["from"] > len(self._entries):
            self.gap = reason or INCOMPLETE
            return
        self._data = body.get("data", self._data)
        self._ids = commit.run_id, commit.turn_id
        self._entries[body["from"] :] = body["entries"]
        self._places[body["call"]] = {"first": commit.seq, "count": commit.count}

    def part(self, log: _Log) -> Part | None:
        """The part as far as it was recorded; None if its beginning is missing."""
        if self._data is None:
            return None
        try:
            data: Any = unpacked_data(self._data, *self._ids, log)
            for entry in self._entries:
                if entry[0] == "call" and (place := self._places.get(entry[1])) is not None:
                    entry[4:] = [place]
            if "caller" in data:
                log.starts[self._ids[0]] = data["state"], data["memory"]
        except (KeyError, TypeError, AttributeError):
            self.gap = UNREADABLE
            return None
        return Part(self.name, data, self._entries)
