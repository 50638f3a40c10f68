"""The twin of 11_ids.sql: functions of the same names, without the underscore."""

from __future__ import annotations

import re
from typing import Any

from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES
from heliograph.testing.twin_json import ABSENT, Refusal, get, get_text
from heliograph.testing.twin_tables import PHASES

_NO_ID = re.compile("[\x01-\x1f:\x7f-\x9f]")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){0,15}")


def is_short(text: str | None, most: int = 200) -> bool:
    """Whether it has from 1 to that many bytes."""
    return text is not None and 1 <= len(text.encode()) <= most


def wrong_id(what: str, text: str | None) -> str | None:
    if text is not None and is_short(text) and not _NO_ID.search(text):
        return None
    return f"{what} has 1 to 200 bytes, none of them a colon or a control character"


def wrong_card(card: Any) -> str | None:
    if wrong := wrong_id("a card id", get_text(card, "card_id")):
        return wrong
    if not is_short(get_text(card, "kind")):
        return "the kind of a card has 1 to 200 bytes"
    return "a card has content" if get(card, "content") is ABSENT else None


def wrong_name(name: str | None) -> str | None:
    if name is not None and len(name) <= 200 and _NAME.fullmatch(name):
        return None
    return "name: segments joined by a colon, each of letters A-Z a-z, digits, _, - or ., at most 200 characters and 16 segments"


def is_reserved(name: str) -> bool:
    return name in RESERVED_NAMES or name.partition(":")[0] in RESERVED_FIRST_SEGMENTS


def wrong_fields(fields: Any) -> str | None:
    asked = fields if isinstance(fields, list) else []
    if (fields is None or isinstance(fields, list)) and all(_is_field(field) for field in asked):
        return None
    return "result_fields is a list of {name, required}, each with a name of 1 to 200 bytes, and required true or false"


def _is_field(field: Any) -> bool:
    name, required = get(field, "name"), get(field, "required")
    return (
        isinstance(name, str)
        and is_short(name)
        and (required is ABSENT or required is None or isinstance(required, bool))
    )


def check(wrong: str | None) -> None:
    """Raises 22023."""
    if wrong is not None:
        raise Refusal("22023", wrong)


def check_phase(item: Any) -> None:
    """Raises 22023."""
    if get_text(item, "phase") not in (None, *PHASES):
        raise Refusal("22023", "phase is init, plan, act, reflect or terminate")
