"""Parse JSON text strictly: no duplicate keys, no NaN, no lone surrogates, no numbers that a reader would round to infinity.

Python's own parser accepts all of these, and keeps the last of two equal keys.
"""

# Requirements: bad-input rows 31-38, 48.
from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.payload import DIGITS_MAX, check_json, json_too_deep
from heliograph.types import Json


def parse_json(text: str | bytes) -> Json:
    """Parse JSON text; bytes are UTF-8.

    Raises InvalidInput: encoding, invalid_json (with offset, line and column), json_duplicate_key, number_too_large, and the
    errors of `check_json`.
    """
    try:
        value = _DECODER.decode(_decode_utf8(text) if isinstance(text, bytes) else text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not JSON: {error.msg} at offset {error.pos} (line {error.lineno}, column {error.colno})",
            code="invalid_json",
        ) from None
    except RecursionError:  # the parser's own limit is far above ours
        raise json_too_deep() from None
    return check_json(value)


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}; save the text as UTF-8",
            code="encoding",
        ) from None


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidInput(
            f"an object has the key '{safe_repr(repeated)}' twice; remove one", code="json_duplicate_key"
        )
    return value


def _read_integer(literal: str) -> int:
    if len(literal) > DIGITS_MAX + literal.startswith("-"):
        raise _number_too_large(f"{safe_repr(literal, 20)}, an integer of over {DIGITS_MAX} digits,")
    return int(literal)


def _read_float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        raise _number_too_large(safe_repr(literal, 20))
    return value


def _number_too_large(number: str) -> InvalidInput:
    return InvalidInput(f"{number} is too large to be stored", code="number_too_large", hint="send it as a string")


# parse_constant keeps its default: NaN becomes a float, and check_json reports it with its place.
_DECODER = json.JSONDecoder(object_pairs_hook=_read_object, parse_int=_read_integer, parse_float=_read_float)
