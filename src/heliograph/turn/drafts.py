"""Convert drafts of signals to items of kernel calls. Pure."""

from __future__ import annotations

from heliograph.signals.model import Draft
from heliograph.turn.untrusted import UNTRUSTED


def draft_item(draft: Draft) -> dict[str, object]:
    """A draft as the kernel's functions take it."""
    item: dict[str, object] = {
        "name": draft.name, "payload": draft.payload, "agent": draft.agent, "parent": draft.parent,
        "at": draft.at.isoformat() if draft.at else None,
    }  # fmt: skip
    return {**item, "trust": UNTRUSTED} if draft.is_untrusted else item
