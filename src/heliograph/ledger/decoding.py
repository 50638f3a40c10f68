"""Decode the kernel's results, including values that a JSON decoder rejects.

The kernel rejects such values (06_json.sql), but a row may be older than that check, or an operator may have written it by hand. The
first decoder is fast, and fails for the whole result. The second decoder then reads the result token by token. It replaces each
value that cannot be decoded by a placeholder `{"undecodable": reason}`, and adds a field `undecodable` with the place and the reason
to the row. So such a value affects only its own row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.error_text import safe_repr
from heliograph.errors import KernelRejected

MARK = "undecodable"  # the key of a placeholder, and the field of a row that contains one
DEPTH_MAX = 200  # of a result: the limit of _check_json, and the levels that the kernel adds
_DIGITS_MAX = 4300
_PLACE_CHARACTERS_MAX = 300
_KEYS_MAX = 8
_NAMES = ("key", "callback_id", "card_id", "call_id", "turn_id", "run_id", "worker")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s,:\[\]{}"]+')

R = TypeVar("R", bound=msgspec.Struct)
# A place in a result: the place of its container, and the key in it.
_Place = tuple[Any, "str | int"]


def decode(raw: bytes | str) -> Any:
    """Decode JSON, with a placeholder for each part that cannot be decoded."""
    raw = _bytes(raw)
    if _is_shallow(raw):
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass
    return _Reader(raw).read()


def decode_row(
    row: Mapping[str, Any], json_columns: Sequence[str], read: Callable[[bytes], Any] = decode
) -> dict[str, Any]:
    """Decode the columns of a row that are JSON. A column that is null is omitted."""
    found = {name: value for name, value in row.items() if value is not None}
    parts = [f'"{name}":'.encode() + _bytes(found[name]) for name in json_columns if name in found]
    decoded: list[dict[str, Any]] = read(b"[{" + b",".join(parts) + b"}]") if parts else [{}]
    return found | decoded[0]


def read_rows(rows: list[Any], kind: type[R]) -> list[R | KernelRejected]:
    """Convert each row to `kind`, or to an error with the code UNDECODABLE. Errors are returned, not raised."""
    for row in rows:
        if isinstance(row, dict) and MARK in row:
            break
    else:
        try:
            return list(msgspec.convert(rows, list[kind]))  # type: ignore[valid-type]
        except msgspec.ValidationError:
            pass  # the loop below finds the row
    return [_read_row(row, kind) for row in rows]


def rows_of(answer: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of an answer that has several; in an answer that could not be decoded, mark the rows that contain a placeholder."""
    rows: list[Any] = answer[key]
    if (problem := problem_of(answer)) is None:
        return rows
    return [{**row, MARK: problem} if holds_placeholder(row) else row for row in rows]


def holds_placeholder(value: Any) -> bool:
    """Whether a part of `value` could not be decoded."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.keys() == {MARK}:
                return True
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return False


def undecodable(what: str, reason: str) -> KernelRejected:
    """Build the error for an object that cannot be decoded."""
    return KernelRejected(f"{what} cannot be decoded: {reason}", code=UNDECODABLE)


def problem_of(row: object) -> str | None:
    """Return the place and the reason if a row could not be decoded; otherwise None."""
    return str(row[MARK]) if isinstance(row, dict) and MARK in row else None


def _bytes(raw: bytes | str) -> bytes:
    return raw.encode() if isinstance(raw, str) else raw


def _is_shallow(raw: bytes) -> bool:
    """Whether `raw` certainly has at most DEPTH_MAX containers inside each other, found by counting brackets.

    The decoder's own limit depends on the interpreter: Python 3.12 decodes values that exceed the stack of any recursive function.
    Brackets in strings are counted too, so False may be wrong; the second decoder is exact.
    """
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return True
    brackets, passes = raw.translate(None, _NOT_BRACKETS), 0
    while passes < DEPTH_MAX:  # each pass removes the innermost containers
        rest = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(rest) == len(brackets):
            break
        brackets, passes = rest, passes + 1
    return passes + len(brackets) <= DEPTH_MAX


def _read_row(row: Any, kind: type[R]) -> R | KernelRejected:
    if (reason := problem_of(row)) is None:
        try:
            return msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            reason = str(error)
    return undecodable(_name_of(row), reason)


def _name_of(row: Any) -> str:
    """Return the ids that identify a row, for a message."""
    named = {**row.get("run", {}), **row} if isinstance(row, dict) and isinstance(row.get("run", {}), dict) else {}
    return ", ".join(safe_repr(named[key]) for key in _NAMES if isinstance(named.get(key), str)) or "a row"


class _TooDeepError(Exception):
    """More than DEPTH_MAX containers are open."""


class _Reader:
    """Reads one result token by token. PostgreSQL produced it, so its syntax is correct."""

    def __init__(self, raw: bytes):
        self._tokens = _TOKEN.finditer(raw)
        self._problems: list[tuple[_Place | None, str]] = []

    def read(self) -> Any:
        result = self._value(next(self._tokens)[0], None, 0)
        rows = result if isinstance(result, list) else [result]
        for place, problem in self._problems:
            keys = _keys_of(place)
            row: Any = rows[keys[0]] if isinstance(result, list) and keys else result
            inner = keys[1:] if isinstance(result, list) else keys
            if isinstance(row, dict) and inner:  # otherwise the row itself is the placeholder
                row.setdefault(MARK, f"{_format_keys(inner)} is {problem}")
        return result

    def _value(self, token: bytes, place: _Place | None, depth: int) -> Any:
        if token not in (b"[", b"{"):
            return self._atom(token, place)
        if depth == DEPTH_MAX:
            raise _TooDeepError
        try:
            return self._object(place, depth + 1) if token == b"{" else self._array(place, depth + 1)
        except _TooDeepError:
            if depth != _KEYS_MAX:
                raise
            self._skip(DEPTH_MAX + 1 - depth)  # to the end of this container
            return self._placeholder(f"over {DEPTH_MAX} containers inside each other", place)

    def _object(self, place: _Place | None, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        for token in self._until(b"}"):
            key: str = msgspec.json.decode(token)
            value[key] = self._value(next(self._tokens)[0], (place, key), depth)
        return value

    def _array(self, place: _Place | None, depth: int) -> list[Any]:
        value: list[Any] = []
        for token in self._until(b"]"):
            value.append(self._value(token, (place, len(value)), depth))
        return value

    def _until(self, end: bytes) -> Iterator[bytes]:
        while (token := next(self._tokens)[0]) != end:
            yield token

    def _skip(self, depth: int) -> None:
        """Skip the rest of `depth` open containers."""
        while depth:
            token = next(self._tokens)[0]
            depth += (token in (b"[", b"{")) - (token in (b"]", b"}"))

    def _atom(self, token: bytes, place: _Place | None) -> Any:
        if token[:1] in b"-0123456789" and not _is_number(token):
            return self._placeholder(f"a number of {len(token)} digits", place)
        try:
            return msgspec.json.decode(token)
        except (msgspec.DecodeError, ValueError) as error:
            return self._placeholder(safe_repr(str(error)), place)

    def _placeholder(self, problem: str, place: _Place | None) -> dict[str, str]:
        self._problems.append((place, problem))
        return {MARK: problem}


def _is_number(token: bytes) -> bool:
    return len(token) <= _DIGITS_MAX + 2 and math.isfinite(float(token))


def _format_keys(keys: list[Any]) -> str:
    shortened = [*keys[:_KEYS_MAX], "…"] if len(keys) > _KEYS_MAX else keys
    return safe_repr("/".join(map(str, shortened)), _PLACE_CHARACTERS_MAX)


def _keys_of(place: _Place | None) -> list[Any]:
    keys = []
    while place is not None:
        place, key = place
        keys.append(key)
    return keys[::-1]
