"""Scalars of the core schema of YAML 1.2: null, true, false, numbers, and otherwise text.

`NO`, `on`, `12:30:45`, `1_000` and `2024-01-15` are texts, and `010` is ten.
"""

from __future__ import annotations

import math
import re

from heliograph.errors import InvalidInput
from heliograph.signals.payload import DIGITS_MAX, check_json

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_FLAGS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o([0-7]+)")
_HEXADECIMAL = re.compile(r"0x([0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

Scalar = None | bool | int | float | str


def plain_scalar(text: str) -> Scalar:
    """Return the value of a scalar without quotes. Raises InvalidInput (`number_too_large`, `out_of_range`)."""
    if text in _NULL:
        return None
    if text in _FLAGS:
        return _FLAGS[text]
    value: Scalar = text
    if _INTEGER.fullmatch(text):
        value = int(_bounded(text))
    elif found := _OCTAL.fullmatch(text):
        value = int(_bounded(found[1]), 8)
    elif found := _HEXADECIMAL.fullmatch(text):
        value = int(_bounded(found[1]), 16)
    elif _FLOAT.fullmatch(text):
        value = float(_bounded(text))
        if not math.isfinite(value):
            raise InvalidInput("the number is too large to be stored", code="number_too_large",
                               hint="write a smaller number")  # fmt: skip
    elif _NOT_FINITE.fullmatch(text):
        raise InvalidInput("a number must be finite", code="out_of_range", hint="write a number, or quote the text")
    check_json(value)
    return value


def quoted_scalar(text: str) -> str:
    """Return the text of a scalar in quotes or of a block. A pair of escaped surrogates, as JSON writes them, is one character.

    Raises InvalidInput (`nul_character`, `invalid_unicode`).
    """
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    check_json(text)
    return text


def _bounded(digits: str) -> str:
    if len(digits) > DIGITS_MAX:
        raise InvalidInput(f"a number of over {DIGITS_MAX} digits is too large to be stored", code="number_too_large",
                           hint="write a smaller number, or quote the text")  # fmt: skip
    return digits
