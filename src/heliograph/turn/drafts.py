"""Convert drafts of signals to items of kernel calls. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from heliograph.signals.model import Draft
from heliograph.turn.untrusted import UNTRUSTED


def draft_items(drafts: Iterable[Draft]) -> list[dict[str, object]]:
    """Drafts as the kernel's functions take them. Most have the time of the draft before them, so it is written once."""
    items: list[dict[str, object]] = []
    at: datetime | None = None
    text: str | None = None
    for draft in drafts:
        if draft.at is not at:
            at = draft.at
            text = None if at is None else at.isoformat()
        item: dict[str, object] = {
            "name": draft.name, "payload": draft.payload, "agent": draft.agent, "parent": draft.parent, "at": text,
        }  # fmt: skip
        if draft.is_untrusted:
            item["trust"] = UNTRUSTED
        items.append(item)
    return items
