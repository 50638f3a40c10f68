"""The boxes that a turn may read: `_lock_box`, `_writer_of`, `_refuse_context` and `_check_contexts` of 82_boxes.sql."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.testing.kernel.jsonb import Refusal, get_text
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Row, Transaction


def is_there(tx: Transaction, box_id: str) -> bool:
    """`_lock_box`."""
    writer = writer_of(tx, box_id)
    if writer is None:
        return box_id in tx.tables.boxes
    return writer in tx.tables.turns and (box_id == f"box_{writer}" or box_id in tx.tables.boxes)


def writer_of(tx: Transaction, box_id: str | None) -> str | None:
    box = tx.tables.boxes.get(box_id)
    if box is not None:
        writer: str | None = box["writer_turn_id"]
        return writer
    return box_id[4:] if box_id is not None and box_id.startswith("box_") else None


def refuse_context(tx: Transaction, item: Any) -> Row | None:
    """Of the context_box_id of an item, where it has one."""
    box_id = get_text(item, "context_box_id")
    if box_id is None:
        return None
    if not is_there(tx, box_id):
        return rejection("unknown_box", f"there is no box {box_id}")
    writer = tx.tables.turns.get(writer_of(tx, box_id))
    if writer is not None and writer["state"] != "done":
        return rejection("box_in_use", f"box {box_id} is still being written: read a fork of it")
    return None


def check_contexts(tx: Transaction, activations: Iterable[Any]) -> None:
    for item in activations:
        if (refusal := refuse_context(tx, item)) is not None:
            raise Refusal("22023", refusal["message"])
