"""Convert drafts of signals to items of kernel calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from heliograph.ids import signal_id
from heliograph.signals.model import Draft
from heliograph.turn.untrusted import UNTRUSTED

_PLACE = re.compile("[1-9][0-9]{0,17}")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_NEAR = 10**13  # microseconds: a smaller number is the distance from the time of the first signal


def draft_items(drafts: Iterable[Draft], run_id: str = "") -> list[dict[str, object]]:
    """Drafts as the kernel's functions take them. run_id: the run to whose log they are added; a new run needs none.

    The log keeps them as they are sent, so they are short: without empty keys, with times as numbers, and parents without the id of the run.
    Times count from that of the first draft, and are left out where they are the same.
    """
    items: list[dict[str, object]] = []
    prefix = signal_id(run_id, 0)[:-1]
    first: datetime | None = None
    for draft in drafts:
        item: dict[str, object] = {"name": draft.name, "payload": draft.payload}
        if draft.agent is not None:
            item["agent"] = draft.agent
        if (parent := draft.parent) is not None:
            if not isinstance(parent, int) and parent.startswith(prefix) and _PLACE.fullmatch(parent, len(prefix)):
                parent = parent[len(prefix) :]
            item["parent"] = parent
        if not items and draft.at is not None:
            first = draft.at
            item["at"] = (first - _EPOCH) // _MICROSECOND
        elif draft.at != first:
            near = None if draft.at is None or first is None else (draft.at - first) // _MICROSECOND
            item["at"] = near if near is not None and -_NEAR < near < _NEAR else _far_time(draft.at)
        if draft.is_untrusted:
            item["trust"] = UNTRUSTED
        items.append(item)
    return items


def _far_time(at: datetime | None) -> int | str | None:
    """The time of a draft that is far from the first one: since 1970, or a text where that number would be a distance."""
    number = None if at is None else (at - _EPOCH) // _MICROSECOND
    return at.isoformat() if at is not None and number is not None and abs(number) < _NEAR else number


def absolute_time(items: Sequence[Mapping[str, Any]], place: int) -> int | str | None:
    """The time of an item: a number of microseconds since 1970, or a text; None for the time of its commit."""
    first = items[0].get("at")
    at = items[place].get("at", first)
    if place and "at" in items[place] and isinstance(at, int) and abs(at) < _NEAR:
        return first + at if isinstance(first, int) else None
    return at if isinstance(at, int | str) else None


def time_of(at: int | str) -> datetime:
    """An absolute time of an item."""
    return datetime.fromisoformat(at) if isinstance(at, str) else _EPOCH + at * _MICROSECOND


def parent_id(run_id: str, first: int, parent: object) -> str | None:
    """The id of an item's parent. first: the position of the first signal of its commit."""
    if isinstance(parent, int):
        return signal_id(run_id, first + parent)
    return (signal_id(run_id, int(parent)) if _PLACE.fullmatch(parent) else parent) if isinstance(parent, str) else None
