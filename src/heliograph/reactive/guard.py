"""Evaluate the guard of an agent (`when`), and record its verdict with the keys of the state that it read. Pure."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from types import CodeType
from typing import Any, NamedTuple

import msgspec

from heliograph.definitions.agent import AgentSpec, decided
from heliograph.error_text import format_exception
from heliograph.reactive.observed_state import ALL, RecordedReads, asks_for_type, observed
from heliograph.reactive.state import StateShape
from heliograph.reactive.state_taint import GUARD_RAISED, quotes_exception
from heliograph.redaction import redacted
from heliograph.signals.model import Draft
from heliograph.types import Json, JsonObject

READS_MAX = 20
VALUE_BYTES_MAX = 200


class GuardResult(NamedTuple):
    """The result of a guard.

    reason: why the agent is skipped; None if it may run. record: {guard: {verdict, reads}} for the payload of the signal that
    records the result, with `raised_at`, the file and the line, of a guard that raised; empty without a guard. is_untrusted: the record or the reason may contain an untrusted value.
    """

    reason: str | None
    record: JsonObject = {}  # noqa: RUF012  never changed
    is_untrusted: bool = False


NO_GUARD = GuardResult(None)


def evaluate_guard(
    agent: AgentSpec,
    shape: StateShape,
    state: Mapping[str, Json],
    untrusted: frozenset[str],
    signal: Callable[[], Draft],
) -> GuardResult:
    """Evaluate a guard against the state. untrusted: the keys of the state with untrusted values. signal: makes the second argument."""
    assert agent.when is not None
    verdict: bool | None = None
    raised_at: str | None = None
    is_observed = False
    with RecordedReads() as reads:
        try:
            loaded = shape.load(state)
            shown = None if asks_for_type(agent.when) else observed(loaded)
            is_observed = shown is not None
            given = loaded if shown is None else shown
            reads.clear()
            verdict = decided(agent.when(given) if agent.when_arity == 1 else agent.when(given, signal()))
            reason = None if verdict else "when guard false"
        except Exception as error:
            reason, raised_at = f"{GUARD_RAISED} {format_exception(error)}", _place_of(error, agent.when)
    guard: JsonObject = {"verdict": verdict}
    if raised_at is not None:
        guard["raised_at"] = raised_at
    keys = _keys_of(reads, state, shape) if is_observed else []
    if is_observed:
        guard["reads"] = [_read(key, state, untrusted) for key in keys[:READS_MAX]]
        if len(keys) > READS_MAX:
            guard["more_reads"] = len(keys) - READS_MAX
    is_untrusted = quotes_exception(reason) or not untrusted.isdisjoint(keys[:READS_MAX])
    return GuardResult(reason, {"guard": guard}, is_untrusted)


def _place_of(error: Exception, when: Callable[..., Any]) -> str | None:
    """`FILE.py:12`: the line of the guard's file at which it raised, or where it begins; None for a guard without code of its own.

    Only the name of the file, because the log may be read on another machine.
    """
    code = getattr(when, "__code__", None)
    if not isinstance(code, CodeType):
        return None
    own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code.co_filename]
    return f"{PurePath(code.co_filename).name}:{own[-1] if own else code.co_firstlineno}"


def _keys_of(reads: Collection[str], state: Mapping[str, Json], shape: StateShape) -> list[str]:
    """The keys among the names that were read, in order. A dict may lack a key that was read; a typed state has attributes beside keys."""
    if ALL in reads:
        return list(dict.fromkeys([*(name for name in reads if name in state), *state]))
    known = shape.keys
    return [
        name for name in reads
        if name in state or (len(name) <= VALUE_BYTES_MAX if known is None else name in known)
    ]  # fmt: skip


def _read(key: str, state: Mapping[str, Json], untrusted: Collection[str]) -> JsonObject:
    """{key, value, trust} of a key that was read. A large value is replaced by `bytes`; a missing key has neither."""
    read: JsonObject = {"key": key}
    if key in state:
        clean = redacted(state[key])
        size = len(msgspec.json.encode(clean))
        read |= {"value": clean} if size <= VALUE_BYTES_MAX else {"bytes": size}
    if key in untrusted:
        read["trust"] = "untrusted"
    return read
