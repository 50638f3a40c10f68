"""Check that a Python value is JSON that PostgreSQL and every reader can hold.

Each problem is reported with its JSON pointer. NaN, NUL, lone surrogates and numbers beyond a double are errors, and so is nesting
deeper than 64 containers, which would otherwise exhaust the interpreter's stack.
"""

# Requirements: bad-input rows 31-38, 48.
from __future__ import annotations

import copy
import math
import re
import sys
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_numbers import stored_number
from heliograph.json_pointer import pointer as join
from heliograph.types import Json

DEPTH_MAX = 64  # containers inside each other: [[1]] has two
DIGITS_MAX = 4300
VALUES_MAX = 1_000_000
PAYLOAD_BYTES_MAX = 64 * 1024
TRUNCATED_BYTES_MAX = PAYLOAD_BYTES_MAX - 2048  # of one value in a payload that the runtime makes
_GROWTH_MAX = 64  # 1e308 has 5 bytes in JSON and 309 as PostgreSQL writes it

_INTEGER_END = 10**DIGITS_MAX
_INTEGER_MAX = int(sys.float_info.max)  # other languages read larger ones as infinity
_CONTAINERS = frozenset({dict, list})
_ATOMS = frozenset({str, int, float, bool, type(None)})

T = TypeVar("T")
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")

# The place of a value: the place of its container, and its key in it; None is the outermost value. Rendered only for an error.
_Place: TypeAlias = "tuple[_Place | None, str | int]"
# A problem of a value: code, message, hint.
_Problem: TypeAlias = tuple[str, str, str | None]


def copied(value: T) -> T:
    """Return a deep copy: for JSON several times as fast as `copy.deepcopy`, which copies everything else."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {key: each if type(each) in _ATOMS else copied(each) for key, each in value.items()}  # type: ignore[attr-defined,return-value]
    if kind is list:
        return [each if type(each) in _ATOMS else copied(each) for each in value]  # type: ignore[attr-defined,return-value]
    return copy.deepcopy(value)


def check_json(value: object, path: str = "") -> Json:
    """Return `value` unchanged if it is JSON: None, bool, int, float, str, list and dict, without subclasses of them.

    Tuples and enums are rejected, because they would be read back as lists and strings.
    path: the JSON pointer of `value` itself, which error paths begin with.
    Raises InvalidInput: wrong_type, json_too_deep, json_too_large, json_non_finite, number_too_large,
    nul_character, invalid_unicode.
    """
    if type(value) in _CONTAINERS:
        _check_containers(value, path)
    elif problem := _problem_of(value):
        _raise_invalid(problem, None, path)
    return value  # type: ignore[return-value]  # checked above


def json_too_deep(path: str = "") -> InvalidInput:
    message = f"more than {DEPTH_MAX} lists and objects are nested inside each other; make the value flatter"
    return InvalidInput(message, code="json_too_deep", path=path or None)


def check_payload(value: object, path: str = "") -> Json:
    """Return `value` unchanged if it is JSON of at most 64 KiB, see `text_bytes`.

    Raises the errors of `check_json`, and InvalidInput (payload_too_large).
    """
    checked = check_json(value, path)
    if _exceeds(checked, PAYLOAD_BYTES_MAX):
        raise InvalidInput(
            f"the payload has {text_bytes(checked)} bytes, the limit is {PAYLOAD_BYTES_MAX}; put it in a card and send the card's id",
            code="payload_too_large",
            path=path or None,
        )
    return checked


def truncated(value: Json) -> Json:
    """Return `value`, or None if it is too large for a signal that has a few short fields besides."""
    return None if value is not None and _exceeds(value, TRUNCATED_BYTES_MAX) else value


def _exceeds(value: Json, limit: int) -> bool:
    """Whether `text_bytes` of a value exceeds a limit; most values are so short that their encoded size decides."""
    return len(msgspec.json.encode(value)) * _GROWTH_MAX > limit and text_bytes(value) > limit


def text_bytes(value: Json) -> int:
    """Return the size of a JSON value in bytes, as the kernel's limits count it (decision 0037).

    That is UTF-8 as PostgreSQL writes it: a space after each comma and colon, and numbers without exponents.
    """
    size, todo = len(msgspec.json.encode(value)), [value]
    while todo:
        item = todo.pop()
        if type(item) is dict and item:
            size += 2 * len(item) - 1
            todo.extend(item.values())
        elif type(item) is list and item:
            size += len(item) - 1
            todo.extend(item)
        elif type(item) is float and "e" in (text := repr(item)):
            size += len(format(Decimal(text), "f")) - len(msgspec.json.encode(item))
    return size


def is_longer(value: object, limit: int) -> bool:
    """Whether `value` as JSON certainly has more than `limit` bytes: a lower bound, counted without encoding the value."""
    size, todo = 0, [value]
    while todo and size <= limit:
        item = todo.pop()
        size += 2  # the shortest value, 0, and a comma
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict | list | tuple | set | frozenset) and size + 2 * len(item) <= limit:
            todo += item.values() if isinstance(item, dict) else item
        elif isinstance(item, dict | list | tuple | set | frozenset):
            size = limit + 1
    return size > limit


def cleaned(text: str) -> str:
    """Return `text` with U+FFFD for each character that PostgreSQL cannot store: U+0000 and lone surrogates. The length is kept."""
    return _NOT_STORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _check_containers(top: Any, path: str) -> None:
    """Check every value inside `top`. A loop instead of a recursion: the depth of the caller's stack does not matter."""
    todo: list[tuple[Any, _Place | None, int]] = [(top, None, 1)]
    values_seen = 0
    while todo:
        container, place, depth = todo.pop()
        if depth > DEPTH_MAX:
            raise json_too_deep(path)
        values_seen += len(container)
        if values_seen > VALUES_MAX:  # also ends lists that share one inner list many times, level after level
            raise InvalidInput(f"the value has more than {VALUES_MAX} values inside it; send it in parts", code="json_too_large",
                               path=path or None)  # fmt: skip
        if type(container) is dict:
            _check_keys(container, place, path)
        for key, item in container.items() if type(container) is dict else enumerate(container):
            if type(item) in _CONTAINERS:
                todo.append((item, (place, key), depth + 1))
            elif problem := _problem_of(item):
                _raise_invalid(problem, (place, key), path)


def _check_keys(container: dict[Any, Any], place: _Place | None, path: str) -> None:
    for key in container:
        if type(key) is not str:
            _raise_invalid(
                ("wrong_type", f"a key of an object must be a string, not {type(key).__name__}", None), place, path
            )
        if problem := _problem_of_text(key):
            _raise_invalid(problem, (place, key), path)


def _problem_of(value: Any) -> _Problem | None:
    """Return the problem of a value that is no container; None for valid JSON."""
    kind = type(value)
    if kind is str:
        return _problem_of_text(value)
    if kind is bool or value is None:
        return None
    if kind is int:
        return None if -_INTEGER_MAX <= value <= _INTEGER_MAX else _too_large(value)
    if kind is float:
        return (
            None
            if math.isfinite(value)
            else ("json_non_finite", f"{value} is not a number in JSON", "send null or a string")
        )
    return ("wrong_type", f"{kind.__name__} is not a JSON type", _HINTS.get(kind))


def _too_large(value: int) -> _Problem:
    is_long = not -_INTEGER_END < value < _INTEGER_END
    number = f"an integer of over {DIGITS_MAX} digits" if is_long else "an integer outside the range of a double"
    return ("number_too_large", f"{number} is too large to be stored", "send it as a string")


def _problem_of_text(text: str) -> _Problem | None:
    if "\0" in text:
        return (
            "nul_character",
            f"a string contains U+0000 at position {text.index(chr(0))}",
            "PostgreSQL cannot store it; remove it",
        )
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            lone = f"U+{ord(text[error.start]):04X} at position {error.start}"
            return (
                "invalid_unicode",
                f"a string contains half of a surrogate pair, {lone}",
                "encode the character as a whole",
            )
    return None


_HINTS: dict[type, str] = {
    tuple: "give a list",
    set: "give a sorted list",
    bytes: "give text, or base64 of it",
}


def _raise_invalid(problem: _Problem, place: _Place | None, path: str) -> NoReturn:
    code, message, hint = problem
    pointer = safe_repr(path + _render(place), 300)
    where = f" (at {safe_repr(pointer)})" if pointer else ""
    raise InvalidInput(message + where, code=code, path=pointer or None, hint=hint)


def _render(place: _Place | None) -> str:
    """Render a place as a JSON pointer (RFC 6901)."""
    keys: list[str] = []
    while place is not None:
        place, key = place
        keys.append(str(key))
    return join("", *reversed(keys))


def with_sorted_keys(value: T) -> T:
    """Return a copy of JSON that is the same before and after the database stored it, which keeps no order of keys.

    Objects list their keys in order. Numbers have the form of the database.
    """
    if isinstance(value, dict):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}  # type: ignore[return-value]
    if isinstance(value, list):
        return [with_sorted_keys(each) for each in value]  # type: ignore[return-value]
    return stored_number(value) if isinstance(value, float) else value  # type: ignore[return-value]
