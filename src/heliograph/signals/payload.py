"""JSON on its way in: what the store and every reader can hold, and nothing else. Source: bad-input rows 31-38, 48.

Python's own parser takes NaN, lets the last of two equal keys win and hands out
lone surrogates; PostgreSQL's jsonb refuses NUL. Here each is an error with a
place, and depth is an error of the input, never of the interpreter.
"""

from __future__ import annotations

import copy
import json
import math
import re
import sys
from collections import Counter
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec

from heliograph.errors import InvalidInput, safe_repr
from heliograph.types import Json

DEPTH_MAX = 64  # containers inside each other: [[1]] has two
DIGITS_MAX = 4300
VALUES_MAX = 1_000_000
PAYLOAD_BYTES_MAX = 64 * 1024
TRUNCATED_BYTES_MAX = PAYLOAD_BYTES_MAX - 2048  # of one value in a payload that the runtime makes

_INTEGER_END = 10**DIGITS_MAX
_INTEGER_MAX = int(sys.float_info.max)  # beyond it other languages read infinity
_CONTAINERS = frozenset({dict, list})
_ATOMS = frozenset({str, int, float, bool, type(None)})

T = TypeVar("T")
_UNHOLDABLE = re.compile("[\0\ud800-\udfff]")

# Where a value lies: the place of its container, and its key there; None is the top. Rendered only for an error.
_Place: TypeAlias = "tuple[_Place | None, str | int]"
# What is wrong with a value: code, message, hint.
_Problem: TypeAlias = tuple[str, str, str | None]


def parse_json(text: str | bytes) -> Json:
    """The value that `text` (UTF-8, if bytes) writes.

    Raises InvalidInput: encoding, invalid_json (with offset, line and column), json_duplicate_key,
    number_too_large, and what `check_json` raises.
    """
    try:
        value = _DECODER.decode(_decode_utf8(text) if isinstance(text, bytes) else text)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"not JSON: {error.msg} at offset {error.pos} (line {error.lineno}, column {error.colno})",
            code="invalid_json",
        ) from None
    except RecursionError:  # the parser gave up, at a depth far past ours
        _refuse_depth("")
    return check_json(value)


def copied(value: T) -> T:
    """A deep copy. Of JSON several times as fast as `copy.deepcopy`, which does the rest."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: copied(each) for key, each in value.items()}  # type: ignore[attr-defined,return-value]
    if kind is list:
        return [copied(each) for each in value]  # type: ignore[attr-defined,return-value]
    return copy.deepcopy(value)


def check_json(value: object, path: str = "") -> Json:
    """`value` itself, when it is JSON: None, bool, int, float, str, list and dict, and no type derived from them.

    A tuple would come back as a list and an enum as a string, so they are refused.
    path: a JSON pointer to `value`, put before the place in an error.
    Raises InvalidInput: wrong_type, json_too_deep, json_too_large, json_non_finite, number_too_large,
    nul_character, invalid_unicode.
    """
    if type(value) in _CONTAINERS:
        _check_containers(value, path)
    elif problem := _problem_of(value):
        _refuse(problem, None, path)
    return value  # type: ignore[return-value]  # the lines above are the proof


def check_payload(value: object, path: str = "") -> Json:
    """`value`, when it is JSON and its shortest UTF-8 form has at most 64 KiB.

    Raises what `check_json` raises, and InvalidInput (payload_too_large).
    """
    checked = check_json(value, path)
    size = len(msgspec.json.encode(checked))
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidInput(
            f"the payload has {size} bytes, the limit is {PAYLOAD_BYTES_MAX}; put it in a card and send the card's id",
            code="payload_too_large",
            path=path or None,
        )
    return checked


def truncated(value: Json) -> Json:
    """`value` as a signal carries it beside a few short fields: itself, or None where it is too large for a log."""
    return None if value is not None and len(msgspec.json.encode(value)) > TRUNCATED_BYTES_MAX else value


def is_longer(value: object, limit: int) -> bool:
    """Whether `value` as JSON has certainly more than `limit` bytes, found without writing it or seeing all of it."""
    size, todo = 0, [value]
    while todo and size <= limit:
        item = todo.pop()
        size += 2  # the least that a value takes: itself, and what is between it and the next
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | list | tuple | set | frozenset) and size + 2 * len(item) <= limit:
            todo += item.values() if isinstance(item, dict) else item
        elif isinstance(item, dict | list | tuple | set | frozenset):
            size = limit + 1
    return size > limit


def cleaned(text: str) -> str:
    """`text` with U+FFFD for what no record can hold: U+0000, and halves of surrogate pairs. It is as long as before."""
    return _UNHOLDABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _check_containers(top: Any, path: str) -> None:
    """Walk `top` with a list of what is left to see: a recursion would depend on how deep the caller stands."""
    todo: list[tuple[Any, _Place | None, int]] = [(top, None, 1)]
    values_seen = 0
    while todo:
        container, place, depth = todo.pop()
        if depth > DEPTH_MAX:
            _refuse_depth(path)
        values_seen += len(container)
        if values_seen > VALUES_MAX:  # a list that holds one list twice, which holds one list twice, ... ends here
            raise InvalidInput(f"more than {VALUES_MAX} values", code="json_too_large", path=path or None)
        if type(container) is dict:
            _check_keys(container, place, path)
        for key, item in container.items() if type(container) is dict else enumerate(container):
            if type(item) in _CONTAINERS:
                todo.append((item, (place, key), depth + 1))
            elif problem := _problem_of(item):
                _refuse(problem, (place, key), path)


def _check_keys(container: dict[Any, Any], place: _Place | None, path: str) -> None:
    for key in container:
        if type(key) is not str:
            _refuse(("wrong_type", f"a key of an object is a string, not {type(key).__name__}", None), place, path)
        if problem := _problem_of_text(key):
            _refuse(problem, (place, key), path)


def _problem_of(value: Any) -> _Problem | None:
    """What is wrong with a value that is no container."""
    kind = type(value)
    if kind is str:
        return _problem_of_text(value)
    if kind is bool or value is None:
        return None
    if kind is int:
        return None if -_INTEGER_MAX <= value <= _INTEGER_MAX else _too_large(_size_of(value))
    if kind is float:
        return None if math.isfinite(value) else ("json_non_finite", f"JSON has no {value}", "send null or a string")
    return ("wrong_type", f"{kind.__name__} is no JSON type", _HINTS.get(kind))


def _size_of(value: int) -> str:
    is_long = not -_INTEGER_END < value < _INTEGER_END
    return f"an integer of over {DIGITS_MAX} digits" if is_long else "an integer outside the range of a double"


def _problem_of_text(text: str) -> _Problem | None:
    if "\0" in text:
        return (
            "nul_character",
            f"a string has U+0000 at position {text.index(chr(0))}",
            "jsonb cannot hold it; leave it out",
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            lone = f"U+{ord(text[error.start]):04X} at position {error.start}"
            return ("invalid_unicode", f"a string has half of a surrogate pair, {lone}", None)
    return None


_HINTS: dict[type, str] = {
    tuple: "give a list",
    set: "give a sorted list",
    bytes: "give text, or base64 of it",
}


def _too_large(what: str) -> _Problem:
    return ("number_too_large", f"{what} has no room in the store", "send it as a string")


def _refuse(problem: _Problem, place: _Place | None, path: str) -> NoReturn:
    code, message, hint = problem
    pointer = safe_repr(path + _render(place), 300)
    where = f" (at {safe_repr(pointer)})" if pointer else ""
    raise InvalidInput(message + where, code=code, path=pointer or None, hint=hint)


def _refuse_depth(path: str) -> NoReturn:
    raise InvalidInput(f"more than {DEPTH_MAX} containers inside each other", code="json_too_deep", path=path or None)


def _render(place: _Place | None) -> str:
    """The JSON pointer of a place (RFC 6901)."""
    keys: list[str] = []
    while place is not None:
        place, key = place
        keys.append(str(key).replace("~", "~0").replace("/", "~1"))
    return "".join(f"/{key}" for key in reversed(keys))


# -- the parser's hooks


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}", code="encoding"
        ) from None


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise InvalidInput(f"the key '{safe_repr(twice)}' is there twice", code="json_duplicate_key")
    return value


def _read_integer(literal: str) -> int:
    if len(literal) > DIGITS_MAX + literal.startswith("-"):
        _refuse(_too_large(f"{safe_repr(literal, 20)}, an integer of over {DIGITS_MAX} digits,"), None, "")
    return int(literal)


def _read_float(literal: str) -> float:
    value = float(literal)
    if math.isinf(value):
        _refuse(_too_large(safe_repr(literal, 20)), None, "")
    return value


# parse_constant stays Python's own: NaN comes through as a float, and check_json names its place.
_DECODER = json.JSONDecoder(object_pairs_hook=_read_object, parse_int=_read_integer, parse_float=_read_float)
