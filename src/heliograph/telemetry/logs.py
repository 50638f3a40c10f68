"""The levels of loggers by name, and the turn that a record belongs to."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar
from difflib import get_close_matches

from msgspec import Struct

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.trace_context import trace_ids

ROOT = "heliograph"
FORMATS = ("text", "json")
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
_NAME = re.compile(r"heliograph(\.[A-Za-z0-9_-]+)*")
_FIELDS = {
    "run": "run_id",
    "turn": "turn_id",
    "agent": "agent",
    "phase": "phase",
    "signal": "signal_id",
    "name": "signal_name",
}  # of a line, by attributes of its record


class Turn(Struct, frozen=True):
    """The turn that runs in a task."""

    run_id: str
    turn_id: str
    agent: str


_turn: ContextVar[Turn | None] = ContextVar("turn", default=None)


def enter_turn(run_id: str, turn_id: str, agent: str) -> None:
    """Attribute the records of the current task, and of those that it starts, to a turn."""
    _turn.set(Turn(run_id, turn_id, agent))


def current_turn() -> Turn | None:
    """The turn that the current task belongs to."""
    return _turn.get()


def fields_of(record: logging.LogRecord) -> dict[str, str]:
    """The fields of a structured line: run, turn, agent, phase, signal and its name, trace and span, as far as the record or its task has them.

    Call it where the record is emitted, because another task may belong to another turn.
    """
    turn = _turn.get()
    found = {
        field: getattr(record, attribute, None) or getattr(turn, attribute, None)
        for field, attribute in _FIELDS.items()
    }
    own = getattr(record, "trace_id", None), getattr(record, "span_id", None)
    found["trace"], found["span"] = trace_ids() or (None, None) if own == (None, None) else own
    return {field: str(value) for field, value in found.items() if value is not None}


def read_levels(text: str) -> dict[str, int]:
    """Read levels like `info,heliograph.worker=debug`: by name, and the one without a name for all others.

    Raises InvalidInput (`invalid_log_level`).
    """
    levels: dict[str, int] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, is_named, level = entry.rpartition("=")
        name, level = name.strip() if is_named else ROOT, level.strip().lower()
        if level not in _LEVELS:
            raise _invalid(f"there is no level {safe_repr(level)}; {_nearest(level)}")
        if not _NAME.fullmatch(name):
            raise _invalid(f"{safe_repr(name)} is not the name of one of Heliograph's loggers, like heliograph.worker")
        levels[name] = _LEVELS[level]
    return levels


def read_format(text: str) -> str:
    """Read the format of the log: text, the default, or json. Raises InvalidInput (`invalid_enum`)."""
    if text not in ("", *FORMATS):
        raise InvalidInput(f"HELIOGRAPH_LOG_FORMAT must be text or json, not {safe_repr(text)}", code="invalid_enum",
                           path="HELIOGRAPH_LOG_FORMAT")  # fmt: skip
    return text or FORMATS[0]


def _nearest(level: str) -> str:
    similar = get_close_matches(level, _LEVELS, 1)
    return f"did you mean {similar[0]}?" if similar else f"there are {', '.join(_LEVELS)}"


def _invalid(problem: str) -> InvalidInput:
    return InvalidInput(f"HELIOGRAPH_LOG is malformed: {problem}", code="invalid_log_level", path="HELIOGRAPH_LOG",
                        hint="for example HELIOGRAPH_LOG=info,heliograph.worker=debug")  # fmt: skip
