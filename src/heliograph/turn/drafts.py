"""Convert drafts of signals to items of kernel calls. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from heliograph.ids import signal_id
from heliograph.signals.model import Draft
from heliograph.turn.untrusted import UNTRUSTED

_PLACE = re.compile("[1-9][0-9]{0,17}")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def draft_items(drafts: Iterable[Draft], run_id: str = "") -> list[dict[str, object]]:
    """Drafts as the kernel's functions take them. run_id: the run to whose log they are added; a new run needs none.

    The log keeps them as they are sent, so they are short: without empty keys, with times as numbers, and parents without the id of the run.
    """
    items: list[dict[str, object]] = []
    prefix = signal_id(run_id, 0)[:-1]
    for draft in drafts:
        item: dict[str, object] = {"name": draft.name, "payload": draft.payload}
        if draft.agent is not None:
            item["agent"] = draft.agent
        if (parent := draft.parent) is not None:
            if not isinstance(parent, int) and parent.startswith(prefix) and _PLACE.fullmatch(parent, len(prefix)):
                parent = parent[len(prefix) :]
            item["parent"] = parent
        if draft.at is not None:
            item["at"] = (draft.at - _EPOCH) // _MICROSECOND
        if draft.is_untrusted:
            item["trust"] = UNTRUSTED
        items.append(item)
    return items


def time_of(at: int) -> datetime:
    """The time of an item."""
    return _EPOCH + at * _MICROSECOND


def parent_id(run_id: str, first: int, parent: object) -> str | None:
    """The id of an item's parent. first: the position of the first signal of its commit."""
    if isinstance(parent, int):
        return signal_id(run_id, first + parent)
    return (signal_id(run_id, int(parent)) if _PLACE.fullmatch(parent) else parent) if isinstance(parent, str) else None
