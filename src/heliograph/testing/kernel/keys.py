"""Reject unknown keys of requests in memory, like 07_keys.sql; the keys are those of `heliograph.requests`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from heliograph.records import Outcome, RunStatus
from heliograph.request_items import (
    ActivationItem,
    CallItem,
    CardItem,
    CauseItem,
    Command,
    ForkItem,
    OpenAs,
    ReactionItem,
    RecordingItem,
    SignalItem,
    StopsItem,
)
from heliograph.requests import (
    REQUESTS,
    BeginCall,
    ClaimTarget,
    Deferral,
    Finish,
    Intent,
    React,
    RecordCall,
    Report,
    StartRun,
    Suspension,
    ToolItem,
)
from heliograph.testing.kernel.jsonb import SqlError, get_text

STRINGS = ("mark_published", "redeliver_callbacks", "sweep_pending_reactions", "take_halts")
# The kernel checks these later, with their item: drafts and cards of a stale item remain unchecked.
_JUDGED_LATER: tuple[object, ...] = (SignalItem, CardItem)
_POSITION = re.compile("[1-9][0-9]{0,17}")
_COUNT = re.compile("[0-9]{1,9}")

# The types of keys that would otherwise be ignored.
_TYPES: Mapping[Any, Mapping[str, type]] = {
    StartRun: {"reaction": dict, "target": str, "request_hash": str, "fork": dict}, ForkItem: {"turns": list, "repeats_failed": bool}, Report: {"token": str, "actor": str, "may_still_run": bool},
    Finish: {"reaction": dict}, React: {"reaction": dict}, StopsItem: {"reason": str},
    ReactionItem: {"memory": dict, "keeps_taint": bool, "stops": dict, "status": str, "outcome": str}, Command: {"subject": str},
    ClaimTarget: {"agents": list},
    BeginCall: {"taint": list}, Intent: {"taint": list}, RecordCall: {"taint": list, "terminates": bool, "intents": list}, OpenAs: {"taint": list},
    Suspension: {"terminates": bool}, Deferral: {"terminates": bool},
    RecordingItem: {"part": str, "body": str, "name": str, "tags": list},
    CallItem: {"taint": list, "child": dict, "token": str}, ToolItem: {"tool": str},
}  # fmt: skip


def check_keys(function: str, request: Any) -> None:
    """Reject a request in which an object has an unknown key, or one of another type. Raises 22023."""
    if function in STRINGS:
        if isinstance(request, list) and any(isinstance(item, dict) for item in request):
            raise SqlError("22023", f"{function}: an object stands for a string")
        return
    if function not in REQUESTS or function == "react" or not isinstance(request, list):
        return
    for item in request:
        if (wrong := wrong_keys(REQUESTS[function], item)) is not None:
            raise SqlError("22023", wrong)


def wrong_keys(kind: Any, value: Any, path: str = "p_items[]") -> str | None:
    """Return the problem of an object or of an object inside it: a wrong key or type, or an invalid cause."""
    if not isinstance(value, dict):
        return None
    known = shape_of(kind)
    for key in sorted(value):
        if key not in known:
            return f"{path} has the unknown key {json.dumps(key[:60], ensure_ascii=False)}; its keys are {', '.join(known)}"
    if kind is CauseItem and not _POSITION.fullmatch(get_text(value, "seq") or ""):
        return _no_cause(path)
    if kind is ForkItem and (wrong := _wrong_fork(value, path)) is not None:
        return wrong
    if kind is ActivationItem and value.get("cause") is None:
        return _no_cause(f"{path}.cause")
    if (wrong := _wrong_type(kind, value, path)) is not None:
        return wrong
    for key, inner in known.items():
        if inner is None or inner in _JUDGED_LATER:
            continue
        below = value.get(key)
        for each in below if isinstance(below, list) else [below]:
            if (wrong := wrong_keys(inner, each, f"{path}.{key}")) is not None:
                return wrong
    return None


def _no_cause(path: str) -> str:
    return (f'{path} must be the index of a signal of this request, or {{"seq": n}} with the position of an earlier signal in the '
            "log of the run")  # fmt: skip


def _wrong_fork(value: Any, path: str) -> str | None:
    if not isinstance(value.get("run_id"), str):
        return f"{path}.run_id is the id of the run that is forked"
    if not _POSITION.fullmatch(get_text(value, "seq") or ""):
        return f"{path}.seq is the position of a signal of that run"
    if (count := get_text(value, "activations")) is not None and not _COUNT.fullmatch(count):
        return f"{path}.activations is the number of turns that were activated up to that signal"
    return None


def _wrong_type(kind: Any, value: Mapping[str, Any], path: str) -> str | None:
    for key, expected in _TYPES.get(kind, {}).items():
        if value.get(key) is not None and not isinstance(value[key], expected):
            return f"{path}.{key} has another type than {expected.__name__}"
    if kind is StopsItem and value.get("turns") not in ("all", "human_waits"):
        return f"{path}.turns is all or human_waits"
    return _wrong_status(value, path) if kind is ReactionItem else None


def _wrong_status(reaction: Mapping[str, Any], path: str) -> str | None:
    status, outcome = reaction.get("status"), reaction.get("outcome")
    if status not in (None, *get_args(RunStatus)):
        return f"{path}.status is running, terminating or ended"
    if outcome not in (None, *get_args(Outcome)):
        return f"{path}.outcome is success, failed, canceled, timeout or partial"
    if (status == "ended") != (outcome is not None):
        return f"{path}.outcome belongs to the status ended, and to no other"
    return None


@cache
def shape_of(kind: Any) -> Mapping[str, Any]:
    """The keys of a request, each with the kind of the objects below it; None for free or plain values."""
    return {key: _object_in(hint) for key, hint in get_type_hints(kind).items()}


def _object_in(hint: Any) -> Any:
    if is_typeddict(hint):
        return hint
    if get_origin(hint) in (list, Union, UnionType):
        return next((found for found in map(_object_in, get_args(hint)) if found is not None), None)
    return None
