"""A box as a model reads it: every card in a frame, and which cards are trusted."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph.records import Card
from heliograph.turn.context_box import context_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def card(content: Any, turn_id: str | None = None, kind: str = "note") -> Card:
    return Card("card_1", kind, content, 1, NOW, turn_id, None if turn_id is None else 1)


@pytest.mark.proves("S9")
@pytest.mark.parametrize(
    ("given", "trusts"),
    [
        (card("rules"), True),
        (card({"text": "a mail", "trust": "untrusted"}), False),
        (card({"output": 1, "trust": "untrusted"}, "turn_a", "tool.result"), False),
        (card({"output": 1, "trust": "trusted"}, "turn_a", "tool.result"), True),
    ],
)
def test_card_is_framed_as_untrusted_where_it_is_marked(given: Card, trusts: bool) -> None:
    text = context_text("box_1", [given])
    head, _, framed = text.partition("\n\n")
    assert head == "You were given box box_1 to read. It holds one card:"
    assert framed.startswith("<trusted-" if trusts else "<untrusted-")
    assert f'from="{given.kind}, card_1">\n' in framed


def test_frame_ends_where_no_card_can_end_it() -> None:
    inner = context_text("box_1", [card("a")])
    assert context_text("box_1", [card(inner)]) == context_text("box_1", [card(inner)])
    mark = context_text("box_1", [card(inner)]).rpartition("</")[2]
    assert mark not in inner
