"""`helio box show`: the cards of a context box or an output box."""

from __future__ import annotations

import asyncio
from argparse import Namespace

import msgspec

from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import fields, json_line, line, moment
from heliograph.cli.turn import print_content
from heliograph.error_text import safe_repr
from heliograph.ledger.rows import BoxRow
from heliograph.records import Card


def show_box(options: Namespace) -> int:
    box, cards = asyncio.run(_show(options.box))
    if options.json:
        json_line("box", {**msgspec.to_builtins(box), "cards": cards})
        return 0
    fields({
        "box": box.box_id, "kind": box.kind, "fork of": box.base_box_id, "written by": box.writer_turn_id,
        "created": moment(box.created_at), "cards": str(len(cards)),
    })  # fmt: skip
    for card in cards:
        line()
        by = f"  by {card.turn_id}, epoch {card.epoch}" if card.turn_id else ""
        line(f"{safe_repr(card.card_id)}  {safe_repr(card.kind)}{by}")
        print_content(card.content)
    return 0


async def _show(box_id: str) -> tuple[BoxRow, list[Card]]:
    async with open_existing(f"box {box_id}") as reader:
        return await reader.box(box_id), await reader.cards_of_box(box_id)
