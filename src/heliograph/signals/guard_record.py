"""Read the result of a guard as a log has it, which may be damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def recorded_guard(payload: object) -> Mapping[str, Any] | None:
    """Return the `guard` of the payload of an activation or a skip; None if it has none."""
    guard = payload.get("guard") if isinstance(payload, dict) else None
    return guard if isinstance(guard, dict) else None


def recorded_reads(guard: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a guard read; without entries that have no key."""
    reads = guard.get("reads")
    if not isinstance(reads, list):
        return []
    return [each for each in reads if isinstance(each, dict) and isinstance(each.get("key"), str)]
