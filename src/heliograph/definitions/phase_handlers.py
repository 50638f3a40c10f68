"""The functions that observe the phases of turns, checked when they are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

_OF_TURN = ("agent_id", "agent", "run_id", "turn_id")
_OF_PHASE = ("phase", *_OF_TURN)

# The events, and the arguments that each one has.
PHASE_STARTED, PHASE_COMPLETED, METRIC, TURN_COMPLETED = "phase_started", "phase_completed", "metric", "turn_completed"
ARGUMENTS = {
    PHASE_STARTED: _OF_PHASE,
    PHASE_COMPLETED: (*_OF_PHASE, "duration_ms", "status"),
    METRIC: ("name", "value", *_OF_PHASE),
    TURN_COMPLETED: (*_OF_TURN, "duration_ms", "status", "result", "error"),
}


@dataclass(frozen=True, eq=False, slots=True)
class PhaseHandler:
    """A function that receives the event, and the names of the arguments that it takes."""

    event: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", type(self.function).__name__))


def check_event(event: Any) -> str:
    """Return the name of an event. Raises InvalidInput (`unknown_event`)."""
    if isinstance(event, str) and event in ARGUMENTS:
        return event
    if callable(event):
        raise InvalidInput('on_lifecycle needs the name of an event: write @app.on_lifecycle("phase_started")', code="unknown_event",
                           path="/lifecycle")  # fmt: skip
    similar = get_close_matches(event, ARGUMENTS, 1) if isinstance(event, str) else []
    known = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(ARGUMENTS)}"
    raise InvalidInput(
        f"there is no lifecycle event {safe_repr(repr_of(event))}; {known}", code="unknown_event", path="/lifecycle"
    )


def phase_handler(event: str, function: Any) -> PhaseHandler:
    """Return the handler of an event. Its parameters choose the arguments by name. Raises InvalidInput (`wrong_type`)."""
    what, path, known = f"the handler of {event}", f"/lifecycle/{event}", ARGUMENTS[event]
    if not callable(function):
        raise InvalidInput(
            f"{what} must be a function, not {safe_repr(repr_of(function))}", code="wrong_type", path=path
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some functions and types that are written in C
        raise InvalidInput(f"{what} must have known parameters, and {safe_repr(repr_of(function))} has none; wrap it in a function",
                           code="wrong_type", path=path) from None  # fmt: skip
    unknown = [
        p.name for p in parameters
        if p.kind is p.POSITIONAL_ONLY or (p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in known
                                           and p.default is p.empty)
    ]  # fmt: skip
    if unknown:
        raise InvalidInput(f"{what} needs the arguments {', '.join(unknown)}; it may take {', '.join(known)}, by name",
                           code="wrong_type", path=path)  # fmt: skip
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters}
    return PhaseHandler(event, function, tuple(name for name in known if takes_all or name in named))
