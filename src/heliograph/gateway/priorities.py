"""The priorities that other systems may choose for their tasks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.control.payloads import Priority
from heliograph.control.wildcard import Wildcard, compile_wildcard
from heliograph.definitions.agent import PRIORITIES
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput

_HIGH, _CRITICAL = PRIORITIES.index("high"), PRIORITIES.index("critical")


def read_sources(given: Any) -> tuple[Wildcard, ...]:
    """Read a list of sources, each a name or a wildcard. Raises InvalidInput (`wrong_type`, `invalid_wildcard`)."""
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f"critical_sources must be a list of names or wildcards, not {safe_repr(repr_of(given))}", code="wrong_type",
                           path="/critical_sources")  # fmt: skip
    try:
        return tuple(compile_wildcard(each) for each in given)
    except InvalidInput as error:
        raise InvalidInput(
            f"a source in critical_sources {error.message}", code=error.code, path="/critical_sources"
        ) from None


def choose_priority(chosen: Priority, source: str, critical_sources: Sequence[Wildcard]) -> int:
    """Return the priority of a task as a number: that which its sender chose, or `high` for a `critical` that it may not choose."""
    priority = PRIORITIES.index(chosen)
    is_allowed = priority < _CRITICAL or any(each.matches(source) for each in critical_sources)
    return priority if is_allowed else _HIGH
