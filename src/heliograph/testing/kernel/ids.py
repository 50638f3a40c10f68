"""Check ids and names in memory, like 11_ids.sql, under the same names."""

from __future__ import annotations

import re
from typing import Any

from heliograph.definitions.fields import FIELD_NAME_MAX, FIELDS_MAX, TYPES
from heliograph.request_items import CardItem
from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.keys import wrong_keys
from heliograph.testing.kernel.tables import PHASES

_URL = re.compile(r"https?://[!-~]+")
_NO_ID = re.compile("[\x01-\x1f:\x7f-\x9f]")
_NAME = re.compile(r"[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+){0,15}")


def is_short(text: str | None, most: int = 200) -> bool:
    """Whether a text has at least one byte and at most the given number."""
    return text is not None and 1 <= len(text.encode()) <= most


def wrong_id(what: str, text: str | None) -> str | None:
    if text is not None and is_short(text) and not _NO_ID.search(text):
        return None
    return f"{what} must have 1 to 200 bytes, none of them a colon or a control character"


def wrong_card(card: Any) -> str | None:
    if wrong := wrong_keys(CardItem, card, "cards[]"):
        return wrong
    if wrong := wrong_id("a card id", get_text(card, "card_id")):
        return wrong
    if not is_short(get_text(card, "kind")):
        return "the kind of a card must have 1 to 200 bytes"
    return "a card must have content" if get(card, "content") is ABSENT else None


def wrong_name(name: str | None) -> str | None:
    if name is not None and len(name) <= 200 and _NAME.fullmatch(name):
        return None
    return "name: segments joined by a colon, each of letters A-Z a-z, digits, _, - or ., at most 200 characters and 16 segments"


def is_reserved(name: str) -> bool:
    return name in RESERVED_NAMES or name.partition(":")[0] in RESERVED_FIRST_SEGMENTS


def wrong_fields(fields: Any) -> str | None:
    if fields is None:
        return None
    if not isinstance(fields, list):
        return "result_fields must be a list of {name, type, required, description}"
    if len(fields) > FIELDS_MAX:
        return f"result_fields has {len(fields)} fields; at most {FIELDS_MAX} are allowed: remove some"
    if not all(_is_field(field) for field in fields):
        return (
            "each of result_fields must be {name, type, required, description}: a name of 1 to 200 characters; a type that is "
            "string, number, integer, boolean, object, array or missing; and required that is true, false or missing"
        )
    if len({field["name"] for field in fields}) < len(fields):
        return "result_fields must have different names: rename or remove one"
    return None


def _is_field(field: Any) -> bool:
    if not isinstance(field, dict):
        return False
    name, kind, required = (get(field, key) for key in ("name", "type", "required"))
    return (
        isinstance(name, str)
        and 1 <= len(name) <= FIELD_NAME_MAX
        and (kind is ABSENT or kind is None or (isinstance(kind, str) and kind in TYPES))
        and (required is ABSENT or isinstance(required, bool))
        and field.keys() <= {"name", "type", "required", "description"}
    )


def check(wrong: str | None) -> None:
    """Raise 22023 with this problem; return if there is none."""
    if wrong is not None:
        raise SqlError("22023", wrong)


def check_phase(item: Any) -> None:
    """Check the phase of an item. Raises 22023."""
    if get_text(item, "phase") not in (None, *PHASES):
        raise SqlError("22023", "phase must be init, plan, act, reflect or terminate")


def wrong_url(item: Any) -> str | None:
    """`_wrong_url`, of the callback_url of an item."""
    url = get(item, "callback_url")
    if url is ABSENT or url is None or (isinstance(url, str) and len(url) <= 2000 and _URL.fullmatch(url)):
        return None
    return ("callback_url must begin with https:// (or http://) and have at most 2000 printable ASCII characters: percent-encode all "
            "others")  # fmt: skip
