"""The recording of one part of a run: the values from outside that it read, and its kernel calls, in their order.

A part is one claim of a turn, the start of a run, or one reaction. Each entry is a list, [kind, ...], of one of three sorts.
A value is read at once. A call begins, and has a number. An answer belongs to the call with its number:

| Entry | Sort |
|---|---|
| now T · monotonic S · id KIND ID · harness NAME · cost USD · credentials PROBLEM · view RUN FOLLOWED | value |
| call N FUNCTION ITEM SIGNALS · step N CALL · model N NAME HASH REQUEST · sleep N SECONDS · thread N · tools N · cleanup N | call |
| answer N VALUE · raised N ERROR · text N CONTENT · thinking N CONTENT · reply N REPLY · timeout N · stop REASON | answer |
| progress PAYLOAD TIME, which the function of a step has reported | answer |

A replay gives an answer at its place in this order, so it repeats the order in which tasks ran (decision 0067).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

from heliograph.error_text import is_network_error
from heliograph.errors import HeliographError
from heliograph.execution.packed_commit import (
    RECORDED,
    commit_text,
)
from heliograph.records import BeginResult, PendingRun, RunFailure, WriteResult
from heliograph.redaction import redacted_text
from heliograph.signals.error_payload import details_of
from heliograph.types import JsonObject

R = TypeVar("R", BeginResult, WriteResult)

ANSWERS = frozenset(("answer", "raised", "text", "thinking", "reply", "timeout", "stop", "progress"))
VALUES = frozenset(("now", "monotonic", "id", "harness", "cost", "credentials", "view"))
NUMBERLESS = frozenset(("timeout", "stop", "progress"))  # the answers that belong to no call

# Fields of kernel calls that their entries do not have: the owner and the signals; what a replay computes, a reaction without the limits of the turns that it wakes, and its version (decision 0174);
# the calls that follow, which have entries of their own; and the turn that an ending follows, which depends on other turns of the worker.
_OMITTED = frozenset((
    "agent_id", "turn_id", "epoch", "signals", "recording", "run_id", "signals_emitted", "version", "reaction", "intents",
    "follows",
))  # fmt: skip
_unrecorded: ContextVar[bool] = ContextVar("heliograph_unrecorded", default=False)
is_unrecorded = _unrecorded.get  # whether the reads of the code that runs now are not recorded


def is_recorded(memory: Mapping[str, Any]) -> bool:
    """Whether the memory of a run lets its parts be recorded."""
    return RECORDED in memory


@contextmanager
def unrecorded() -> Iterator[None]:
    """Code whose reads are not recorded, because only its result is: the function of a step, or a cleanup."""
    before = _unrecorded.get()
    _unrecorded.set(True)
    try:
        yield
    finally:
        _unrecorded.set(before)  # not `reset`: a dropped coroutine is closed in another context


def resume_recording() -> None:
    """Let a new task, which a step has spawned for its turn, record its reads."""
    _unrecorded.set(False)


def tape_of_reaction(pending: PendingRun, failure: RunFailure | None) -> Tape:
    """The tape of a reaction to recorded signals."""
    return Tape(f"reaction:{pending.run.version}", {"pending": pending, "failure": failure})


class Tape:
    """The entries of one part that no commit is known to have kept.

    part: its name among the parts of the run; of a claim, its epoch. data: what it started from. withins: how many time limits it has set.
    """

    withins = 0
    gap: str | None = None
    _calls = 0
    _kept = 0  # how many entries commits have kept, which are no longer here
    _own: list[Any] | None = None  # the entry of the newest commit, while it has the whole item
    _repeated: int | None = None  # the call whose reply was lost, by its count of signals

    def __init__(self, part: str | int, data: Any):
        self.part = part
        self.data = data
        self.entries: list[Any] = []
        # records a value that was read at once, as a tuple; see `whole_entry` for the usual ones
        self.read = self.entries.append

    def begin(self, kind: str, *detail: Any) -> int:
        """Record the start of a call; return its number."""
        self._calls += 1
        self.entries.append((kind, self._calls, *detail))
        return self._calls

    def answer(self, number: int, value: Any, kind: str = "answer") -> None:
        self.entries.append((kind, number, value))

    def raised(self, number: int, error: BaseException) -> None:
        self.entries.append(("raised", number, error_item(error)))

    def called(self, function: str, item: Mapping[str, Any]) -> int:
        """Record a kernel call without a commit of signals; return its number."""
        return self.begin("call", function, without_owner(item), signals_of(item))

    def commit(self, function: str, item: Mapping[str, Any]) -> tuple[int, str | None]:
        """Record a kernel call that commits signals. Returns its number, and the body of its recording: the entries that no commit of
        this part has kept before."""
        if self._own is not None:
            self._settle()
        self._calls = number = self._calls + 1
        known = (self.part, self._kept, self.entries, number, function, without_owner(item))
        text, self.gap = commit_text(known if self._kept else (*known, self.data), self.gap)
        self._own = ["call", number, function, item]
        self.entries.append(self._own)
        return number, text

    def kept(self, number: int, signals_emitted: int | None) -> None:
        """Note that the commit of kernel call `number` has kept the entries before it.

        signals_emitted: by which the kernel recognizes a call that is repeated, because its reply was lost. It may have kept
        the first one, so the next commit has these entries again.
        """
        if signals_emitted is None or signals_emitted != self._repeated:
            entries, place = self.entries, len(self.entries) - 1
            while type(entries[place]) is not list or entries[place][1] != number:  # the commits alone are lists
                place -= 1
            if entries[place] is self._own:
                self._own = None
            self._kept += place + 1
            self.data = None
            del entries[: place + 1]

    def lost(self, signals_emitted: int | None) -> None:
        """Note that the reply to a kernel call was lost: nobody knows whether it was committed."""
        self._repeated = signals_emitted

    def _settle(self) -> None:
        """Give the newest commit, which may have failed, the entry of a call: another commit keeps it."""
        assert self._own is not None
        item = self._own[3]
        self._own[3:] = [without_owner(item), signals_of(item)]
        self._own = None


class WholeTape(Tape):
    """A tape that no commit keeps: it has all entries of its part at the end."""

    def commit(self, function: str, item: Mapping[str, Any]) -> tuple[int, str | None]:
        return self.called(function, item), None

    def kept(self, number: int, signals_emitted: int | None) -> None:
        """Nothing is stored elsewhere."""


def without_intents(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item of record_call without the intents of the calls that follow."""
    return {key: value for key, value in item.items() if key != "intents"}


def without_owner(item: Mapping[str, Any]) -> JsonObject:
    """An item of a kernel call as an entry has it: without its owner and its signals; and without tokens, which are secret and random."""
    found = {**item}
    for key in _OMITTED.intersection(item):
        del found[key]
    if "calls" in found:
        found["calls"] = [_without_token(call) for call in found["calls"]]
    if "reaction" in item and (woken := item["reaction"]["activations"]):
        found |= limits_of(woken)
    return found


def limits_of(activations: Sequence[Mapping[str, Any]]) -> JsonObject:
    """The budgets and the pools of the turns that a reaction wakes, by their agents: no signal has them. Empty if no turn has one."""
    found: JsonObject = {}
    for each in activations:
        if "budget" in each or "pool" in each:
            found[each["agent"]] = {key: each[key] for key in ("budget", "pool") if key in each}
    return {"limits": found} if found else found


def _without_token(call: Mapping[str, Any]) -> JsonObject:
    kept = {**call, "token": call.get("token") is not None}
    command = kept.get("command")
    if isinstance(command, dict) and isinstance(command.get("body"), dict) and "trace" in command["body"]:
        kept["command"] = {**command, "body": {k: v for k, v in command["body"].items() if k != "trace"}}
    return kept


def signals_of(item: Mapping[str, Any]) -> JsonObject:
    """The names of the signals of a kernel call, and the time of the last: they identify its signals in the log."""
    signals = item.get("signals") or []
    return {} if not signals else {"names": [each["name"] for each in signals], "at": signals[-1].get("at")}


def error_item(error: BaseException) -> JsonObject:
    """An exception as an entry has it."""
    item: JsonObject = {"type": type(error).__name__, "message": redacted_text(str(error))}
    if is_network_error(error):
        item["base"] = "ConnectionError"
    elif isinstance(error, OSError):
        item["base"] = "OSError"
    if isinstance(error, HeliographError):
        item |= {"message": redacted_text(error.message), "code": error.code, "recoverable": error.recoverable}
        if error.hint:
            item["hint"] = error.hint
        if error.details:
            item["details"] = details_of(error.details)
        for name in ("tokens", "retry_after_seconds"):
            if getattr(error, name, None) is not None:
                item[name] = getattr(error, name)
    return item


def without_targets(result: R) -> R:
    """A result of the kernel without the queues for which its caller rings: a replay rings for none.

    The answers to its intents are entries of their own.
    """
    if isinstance(result, WriteResult) and (result.targets or result.begun):
        return msgspec.structs.replace(result, targets=[], begun=[])
    return result
