"""Taint of the state: the keys of a run with untrusted values, and the reasons that may quote them. Pure.

The keys are recorded in the run's memory, in the same commit as the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

_UNTRUSTED_KEYS = "untrusted_keys"
GUARD_RAISED = "when guard raised"
END_WHEN_RAISED = "end_when raised"


def untrusted_keys(memory: Mapping[str, Any]) -> frozenset[str]:
    """The keys of a run's state whose values are untrusted."""
    return frozenset(memory.get(_UNTRUSTED_KEYS, ()))


def readable_untrusted_keys(memory: Mapping[str, Any], state: Collection[str]) -> frozenset[str]:
    """The untrusted keys from a memory that may be damaged; if they are unreadable, all keys of the state."""
    found = memory.get(_UNTRUSTED_KEYS, [])
    is_readable = isinstance(found, list) and all(isinstance(key, str) for key in found)
    return frozenset(found if is_readable else state)


def mark_untrusted(memory: dict[str, Any], keys: Collection[str]) -> None:
    """Record these keys, and no others, as untrusted."""
    memory[_UNTRUSTED_KEYS] = sorted(keys)


def is_value_untrusted(
    key: str, before: Collection[str], *, is_untrusted: bool, is_reduced: bool, is_derived: bool
) -> bool:
    """Whether the new value of a key is untrusted.

    before: the untrusted keys of the old state. is_untrusted: the output is untrusted. A reducer reads the old value of its
    key; without one, the new value replaces the old one. A validator of the state's type may derive a value from any key.
    """
    return is_untrusted or (is_reduced and key in before) or (is_derived and bool(before))


def quotes_exception(reason: str | None) -> bool:
    """Whether a reason contains the message of an exception of a guard, which may quote the state or the signal."""
    return reason is not None and (GUARD_RAISED in reason or END_WHEN_RAISED in reason)
