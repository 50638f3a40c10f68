"""The boxes that turns write, in memory: a part of 82_boxes and 83_box_contents.sql. There are no other boxes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.testing.kernel.jsonb import SqlError, get_text
from heliograph.testing.kernel.limits import content_of, rejection
from heliograph.testing.kernel.tables import Row, timestamp
from heliograph.testing.kernel.transaction import Transaction


def reject_context(tx: Transaction, item: Any) -> Row | None:
    """Judge the context_box_id of an item, if it has one."""
    box_id = get_text(item, "context_box_id")
    if box_id is None:
        return None
    writer = tx.tables.turns.get(box_id[4:]) if box_id.startswith("box_") else None
    if writer is None:
        return rejection("unknown_box", f"there is no box {box_id}")
    if writer["state"] != "done":
        return rejection("box_in_use", f"box {box_id} is still being written: read a fork of it")
    return None


def check_contexts(tx: Transaction, activations: Iterable[Any]) -> None:
    for item in activations:
        if (rejected := reject_context(tx, item)) is not None:
            raise SqlError("22023", rejected["message"])


def read_box(tx: Transaction, box_id: str, after: int | None, limit: int) -> list[Row]:
    if not 1 <= limit <= 1000:
        raise SqlError("22023", f"limit must be between 1 and 1000, not {limit}")
    cards = sorted(tx.tables.cards.of(box_id), key=lambda card: int(card["position"]))
    seen = [card for card in cards if card["position"] > (after or 0)]
    return [{
        "position": c["position"], "card_id": c["card_id"], "kind": c["kind"], "content": content_of(tx, c["content"]),
        "turn_id": c["agent_turn_id"], "epoch": c["turn_epoch"], "created_at": timestamp(c["created_at"]),
    } for c in seen[:limit]]  # fmt: skip
