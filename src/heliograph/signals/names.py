"""The grammar of signal names, and the names that only the runtime may emit."""

# Requirements: SIG-11, bad-input rows 40-42.
from __future__ import annotations

import re
from typing import NoReturn

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, Rejected

LENGTH_MAX = 200
SEGMENTS_MAX = 16
CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")

GRAMMAR = (
    "segments joined by ':', each of letters A-Z a-z, digits, '_', '-' or '.', "
    f"at most {LENGTH_MAX} characters and {SEGMENTS_MAX} segments, such as 'analysis:complete'"
)

# Only the runtime emits names with these first segments: a forged one would falsify the log.
RESERVED_FIRST_SEGMENTS = frozenset(
    {"workflow", "kernel", "agent", "harness", "state", "text", "thinking", "tool"},
)
# The control signals and their responses (CTL-01). Tool calls have these names only on the wire: the log has `tool:call`.
CONTROL_NAMES = frozenset(
    {
        "tool_call",
        "tool_call_response",
        "delegation",
        "delegation_response",
        "halt",
        "error",
        "ready",
        "heartbeat",
    },
)
# These, and the signals of the lifecycle (LC-15..LC-55).
RESERVED_NAMES = CONTROL_NAMES | {"plan_ready", "action_complete", "reflection_complete", "terminated"}

# Segments contain no ':', so there is one way to match a name and the check takes linear time.
_NAME = re.compile(r"[A-Za-z0-9_.\-]+(?::[A-Za-z0-9_.\-]+)*")


def check_name(name: str) -> str:
    """Return `name` unchanged if it is a valid signal name.

    Raises InvalidInput: wrong_type, wildcard_in_name, invalid_character (with code point and position), invalid_signal_name
    (with the grammar).
    """
    if not isinstance(name, str):
        raise InvalidInput(f"the name of a signal must be a string, not {type(name).__name__}", code="wrong_type")
    if len(name) > LENGTH_MAX or name.count(":") >= SEGMENTS_MAX or not _NAME.fullmatch(name):
        _reject_name(name)
    return name


def check_emit_name(name: str) -> str:
    """Return `name` unchanged if an agent or a user may emit it.

    Raises the errors of `check_name`, and Rejected (reserved_name) for names that only the runtime emits.
    """
    check_name(name)
    first = name.partition(":")[0]
    if first in RESERVED_FIRST_SEGMENTS:
        raise Rejected(
            f"'{safe_repr(name)}' is reserved: only the runtime emits names that begin with '{first}'; "
            "choose another first segment",
            code="reserved_name",
        )
    if name in RESERVED_NAMES:
        family = "control signals, which other systems obey" if name in CONTROL_NAMES else "the lifecycle"
        raise Rejected(
            f"'{name}' is reserved for {family}; add a segment of your own, such as 'my:{name}'",
            code="reserved_name",
        )
    return name


def describe_character(text: str, position: int) -> str:
    """Describe a character for a message by its code point and its position, counted from 0."""
    return f"U+{ord(text[position]):04X} at position {position}"


def _reject_name(name: str) -> NoReturn:
    if "*" in name:
        raise InvalidInput(
            f"'{safe_repr(name)}' contains a *: a signal name has no wildcards, only patterns in activate_on do; write the whole name",
            code="wildcard_in_name",
        )
    for position, character in enumerate(name):
        if not character.isascii() or not character.isprintable():
            raise InvalidInput(
                f"'{safe_repr(name)}' has {describe_character(name, position)}; a name is {GRAMMAR}",
                code="invalid_character",
            )
    raise InvalidInput(f"'{safe_repr(name)}' is not the name of a signal: {GRAMMAR}", code="invalid_signal_name")


KEY_MAX = LENGTH_MAX - len("state::changed")


def check_key(key: str) -> str:
    """Return `key` unchanged if it can be a segment of `state:<key>:changed`. Raises InvalidInput (`invalid_state_key`)."""
    if not isinstance(key, str) or not 0 < len(key) <= KEY_MAX or not CHARACTERS.issuperset(key):
        raise InvalidInput(
            f"a key of the state must be 1 to {KEY_MAX} letters A-Z a-z, digits, '_', '-' or '.', not {safe_repr(repr_of(key))}: it is "
            "a part of the signal state:<key>:changed; put other names one level deeper",
            code="invalid_state_key", path="/state",
        )  # fmt: skip
    return key
