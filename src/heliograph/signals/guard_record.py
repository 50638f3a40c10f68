"""Read the result of a guard as a log has it, which may be damaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heliograph.types import Json

GUARD_PLACE = "/payload/guard/raised_at"  # the line of the code, which changes without any effect


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


def place_of_guard(guard: Mapping[str, Any] | None) -> str:
    """Return ` at FILE.py:12` for a guard that raised there, or an empty string."""
    place = None if guard is None else guard.get("raised_at")
    return f" at {place}" if isinstance(place, str) else ""


def without_place(payload: Json) -> Json:
    """Return the payload of a skip without the line of its guard."""
    if (guard := recorded_guard(payload)) is None or not isinstance(payload, dict):
        return payload
    return {**payload, "guard": {key: value for key, value in guard.items() if key != "raised_at"}}
