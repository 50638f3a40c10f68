"""The context box of a turn as its model reads it, and the result fields that the box may hold. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.definitions.fields import check_fields
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.records import Card
from heliograph.redaction import redacted
from heliograph.turn.untrusted import TRUSTED, UNTRUSTED, framed, is_marked
from heliograph.types import JsonObject

RESULT_FIELDS = "task.result_fields"  # the kind of a card with required fields of the deliverable
_WRAPPER = "FieldsSchemaContent"


def context_text(box_id: str, cards: Sequence[Card]) -> str:
    """All cards of a box in order, each in a trusted or an untrusted frame."""
    count = "one card" if len(cards) == 1 else f"{len(cards)} cards"
    return "\n\n".join([f"You were given box {safe_repr(box_id)} to read. It holds {count}:", *map(_framed, cards)])


def _framed(card: Card) -> str:
    trust = UNTRUSTED if is_marked(card.content) else TRUSTED
    return framed(redacted(card.content), f"{card.kind}, {card.card_id}", trust)


def result_fields_in(cards: Sequence[Card]) -> tuple[JsonObject, ...]:
    """The fields of the newest card `task.result_fields`; none without one.

    The content is the specification's FieldsSchemaContent: an object whose `fields` are a list of field objects. Raises
    InvalidInput naming the card.
    """
    card = next((card for card in reversed(cards) if card.kind == RESULT_FIELDS), None)
    if card is None:
        return ()
    content = card.content
    is_wrapped = isinstance(content, dict) and "fields" in content and content.keys() <= {"fields", "type"}
    if not is_wrapped or content.get("type", _WRAPPER) != _WRAPPER:
        raise InvalidInput(f"the card {safe_repr(card.card_id)} is a {RESULT_FIELDS}, so its content must be an object such as "
                           f"{{'fields': [{{'name': 'summary'}}]}}, not {safe_repr(content)}", code="wrong_type")  # fmt: skip
    try:
        return tuple(check_fields(content["fields"], f"/{RESULT_FIELDS}/fields"))
    except InvalidInput as error:
        raise InvalidInput(f"the card {safe_repr(card.card_id)} is not a valid {RESULT_FIELDS}: {error.message}", code=error.code,
                           path=error.path) from error  # fmt: skip
