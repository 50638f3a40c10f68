"""Check the lines of a recording that somebody may have edited: each entry has the parts that a replay reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from heliograph.error_text import safe_repr

DEPTH_MAX = 250  # containers inside each other; the ledger accepts 100
_NUMBER, _TEXT, _OBJECT, _ANY = (int, float), (str,), (dict,), (object,)
_NUMBERED = (int,)
_ANSWER: tuple[Any, ...] = (_NUMBERED, _ANY)
# By the kind of an entry: the types of what follows it. See heliograph.execution.tape.
_SHAPES: Mapping[str, tuple[Any, ...]] = {
    "now": (_TEXT,), "monotonic": (_NUMBER,), "id": (_TEXT, _TEXT), "harness": (_ANY,), "cost": (_ANY,), "credentials": (_ANY,),
    "view": (_ANY,), "call": (_NUMBERED, _TEXT, _OBJECT, _OBJECT), "step": (_NUMBERED, _TEXT),
    "model": (_NUMBERED, _TEXT, _TEXT, _OBJECT), "sleep": (_NUMBERED, _NUMBER), "thread": (_NUMBERED,), "tools": (_NUMBERED,),
    "cleanup": (_NUMBERED,), "answer": _ANSWER, "raised": (_NUMBERED, _OBJECT), "text": (_NUMBERED, _TEXT),
    "thinking": (_NUMBERED, _TEXT), "reply": (_NUMBERED, _OBJECT), "timeout": (_NUMBERED,), "stop": (_TEXT,),
    "progress": (_OBJECT, _TEXT),
}  # fmt: skip


def problem_of_entry(entry: list[Any]) -> str | None:
    """The problem of an entry of a part; None if a replay can read it."""
    kind = entry[0] if entry else None
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return f"an entry of kind {safe_repr(kind)} is not known"
    if len(entry) <= len(shape) or not all(map(_is_of_type, entry[1:], shape)):
        return f"the entry {safe_repr(entry)} is incomplete or has a wrong type"
    if kind == "call" and "first" in entry[4] and not all(type(entry[4].get(key)) is int for key in ("first", "count")):
        return f"the place of the call {safe_repr(entry[4])} is not in the log"
    if kind in ("now", "progress"):
        try:
            datetime.fromisoformat(entry[-1] if kind == "progress" else entry[1])
        except ValueError:
            return f"the entry {safe_repr(entry)} has no time"
    return None


def check_part(name: Any, data: Any, before: Collection[str]) -> None:
    """Check the first line of a part. before: the names of the parts before it. Raises KeyError, TypeError, ValueError."""
    if not isinstance(name, str) or not isinstance(data, dict):
        raise TypeError("part and data")
    if name in before:
        raise ValueError(f"part {name} is there twice")
    keys = ("claimed",) if "claimed" in data else ("pending",) if "pending" in data else ("run_id", "state", "caller")
    for key in keys:
        if not isinstance(data[key], str if key == "run_id" else dict):
            raise TypeError(f"data/{key}")
    ledger = data.get("ledger", {})
    if not isinstance(ledger, dict):
        raise TypeError("data/ledger")
    if (
        ledger
        and "claimed" in data
        and not all(isinstance(data["claimed"][key], str) for key in ("agent", "turn_id", "activation_id"))
    ):
        raise TypeError("data/claimed")
    if ledger and "claimed" not in data and not is_texts(ledger["agents"]):
        raise TypeError("data/ledger/agents")


def is_too_deep(line: bytes, value: Any) -> bool:
    """Whether a value has so many containers inside each other that a comparison of two would exhaust the stack."""
    if line.count(b"[") + line.count(b"{") <= DEPTH_MAX:
        return False
    level, depth = [value], 0
    while level and depth <= DEPTH_MAX:
        level = [
            each
            for container in level
            for each in (container.values() if isinstance(container, dict) else container)
            if isinstance(each, dict | list)
        ]
        depth += 1
    return depth > DEPTH_MAX


def is_texts(value: Any) -> bool:
    """Whether a value is a list of texts."""
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_of_type(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, types) and (not isinstance(value, bool) or types == _ANY)
