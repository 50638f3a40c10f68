"""Decode the kernel's answers, including values that no client can decode.

The kernel rejects such values (06_json.sql), but a row may be older than that check, or written by hand. The first decoder
is fast and raises for the whole answer. The second one reads the same answer token by token: a value that cannot be decoded
becomes a placeholder `{"undecodable": why}`, and the row with the placeholder gets a field `undecodable`, which says
where it is. So one value affects its own row and no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.errors import KernelRejected, safe_repr

MARK = "undecodable"  # the key of a placeholder, and the field of a row that holds one
DEPTH_MAX = 200  # of an answer: what _check_json accepts, and what the kernel wraps around it
_DIGITS_MAX = 4300
_WHERE_MAX = 300  # characters
_KEYS_MAX = 8
_NAMES = ("key", "callback_id", "card_id", "call_id", "turn_id", "run_id")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^\s,:\[\]{}"]+')

R = TypeVar("R", bound=msgspec.Struct)
# A place in an answer: the place of its container, and the key there.
_Place = tuple[Any, "str | int"]


def decode(raw: bytes | str) -> Any:
    """Decode JSON, with a placeholder for each part that cannot be decoded."""
    raw = raw.encode() if isinstance(raw, str) else raw
    if _is_shallow(raw):
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError, ValueError):
            pass
    return _Reader(raw).read()


def read_rows(rows: list[Any], kind: type[R]) -> list[R | KernelRejected]:
    """Convert each row to `kind`, or to an error with the code UNDECODABLE."""
    if not any(MARK in row for row in rows if isinstance(row, dict)):
        try:
            return list(msgspec.convert(rows, list[kind]))  # type: ignore[valid-type]
        except msgspec.ValidationError:
            pass  # of one row, found below
    return [_read_row(row, kind) for row in rows]


def holds_placeholder(value: Any) -> bool:
    """Whether a part of `value` could not be decoded."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            if item.keys() == {MARK}:
                return True
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return False


def undecodable(what: str, why: str) -> KernelRejected:
    """The error for an object that cannot be decoded."""
    return KernelRejected(f"{what} cannot be decoded: {why}", code=UNDECODABLE)


def problem_of(row: object) -> str | None:
    """Where and why a row of an answer cannot be decoded; None for a row that can."""
    return str(row[MARK]) if isinstance(row, dict) and MARK in row else None


def _is_shallow(raw: bytes) -> bool:
    """Whether `raw` has certainly no more than DEPTH_MAX containers inside each other, found without reading it.

    The decoder's own limit depends on the interpreter: Python 3.12 decodes values that no recursive function survives.
    Brackets in texts count as brackets, so False may be wrong: the second decoder is exact.
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
    if (why := problem_of(row)) is None:
        try:
            return msgspec.convert(row, kind)
        except msgspec.ValidationError as error:
            why = str(error)
    return undecodable(_name_of(row), why)


def _name_of(row: Any) -> str:
    """The ids that tell a row from all others."""
    named = {**row.get("run", {}), **row} if isinstance(row, dict) and isinstance(row.get("run", {}), dict) else {}
    return ", ".join(safe_repr(named[key]) for key in _NAMES if isinstance(named.get(key), str)) or "a row"


class _TooDeepError(Exception):
    """More than DEPTH_MAX containers are open."""


class _Reader:
    """One answer, read token by token with a stack of its own. PostgreSQL wrote it: its syntax is right."""

    def __init__(self, raw: bytes):
        self._tokens = _TOKEN.finditer(raw)
        self._problems: list[tuple[_Place | None, str]] = []

    def read(self) -> Any:
        answer = self._value(next(self._tokens)[0], None, 0)
        rows = answer if isinstance(answer, list) else [answer]
        for place, why in self._problems:
            keys = _keys_of(place)
            row: Any = rows[keys[0]] if isinstance(answer, list) and keys else answer
            inner = keys[1:] if isinstance(answer, list) else keys
            if isinstance(row, dict) and inner:  # else the row itself is the placeholder
                row.setdefault(MARK, f"{_rendered_keys(inner)} is {why}")
        return answer

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
            self._skip(DEPTH_MAX + 1 - depth)  # to the end of the container that began here
            return self._placeholder(f"over {DEPTH_MAX} containers inside each other", place)

    def _object(self, place: _Place | None, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for token in self._until(b"}"):
            key: str = msgspec.json.decode(token)
            found[key] = self._value(next(self._tokens)[0], (place, key), depth)
        return found

    def _array(self, place: _Place | None, depth: int) -> list[Any]:
        found: list[Any] = []
        for token in self._until(b"]"):
            found.append(self._value(token, (place, len(found)), depth))
        return found

    def _until(self, end: bytes) -> Iterator[bytes]:
        while (token := next(self._tokens)[0]) != end:
            yield token

    def _skip(self, depth: int) -> None:
        """Pass over the rest of so many open containers."""
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

    def _placeholder(self, why: str, place: _Place | None) -> dict[str, str]:
        self._problems.append((place, why))
        return {MARK: why}


def _is_number(token: bytes) -> bool:
    return len(token) <= _DIGITS_MAX + 2 and math.isfinite(float(token))


def _rendered_keys(keys: list[Any]) -> str:
    shortened = [*keys[:_KEYS_MAX], "…"] if len(keys) > _KEYS_MAX else keys
    return safe_repr("/".join(map(str, shortened)), _WHERE_MAX)


def _keys_of(place: _Place | None) -> list[Any]:
    keys = []
    while place is not None:
        place, key = place
        keys.append(key)
    return keys[::-1]
