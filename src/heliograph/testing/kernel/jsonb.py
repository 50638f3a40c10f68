"""The operators, casts and functions of jsonb in Python, for the in-memory kernel.

PostgreSQL distinguishes SQL NULL from JSON null. Where JSON is expected, `ABSENT`
stands for SQL NULL and `None` for JSON null. Where text or a number is expected,
`None` stands for both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from heliograph.errors import KernelRejected
from heliograph.json_numbers import stored_number


class SqlError(Exception):
    """An error that PostgreSQL would raise; `state` is the SQLSTATE."""

    def __init__(self, state: str, message: str):
        super().__init__(message)
        self.state = state
        self.message = message


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
BYTES_MAX = 134_217_728
DEPTH_MAX = 100
_DIGITS = re.compile(rb"[0-9]{255}")

_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_TRUE = frozenset({"t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"})
_FALSE = frozenset({"f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"})


def _number(digits: str) -> int | float:
    return stored_number(float(digits))


# 60.0 stays 60.0, and 1e300 is an integer, as in jsonb
_decoder = msgspec.json.Decoder(float_hook=_number)


def encode(value: object) -> bytes:
    """JSON with sorted keys: the same value is always the same bytes."""
    return msgspec.json.encode(value, order="deterministic")


def decode(raw: bytes | str) -> Any:
    return _decoder.decode(raw)


def in_order(value: Any) -> Any:
    """A value with the keys of its objects in the order of jsonb: shorter keys first. value: of `decode(encode())`, so equal lengths are in order."""
    if isinstance(value, dict):
        return {key: in_order(value[key]) for key in sorted(value, key=_length)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


def _length(key: str) -> int:
    return len(key) if key.isascii() else len(key.encode())


def check_json(raw: bytes, value: Any) -> Any:
    """Reject JSON that some client cannot decode, like `_check_json` of 06_json.sql. raw: `value` as text.

    Most calls are too small to break a rule. Raises KernelRejected, as no function of the kernel has begun yet.
    """
    if len(raw) > BYTES_MAX:
        raise KernelRejected(f"over {BYTES_MAX} bytes of JSON; send less in one call", code="json_too_large")
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX and _is_deep(value):
        raise KernelRejected(
            f"over {DEPTH_MAX} containers inside each other; make the value flatter", code="json_too_deep"
        )
    if _DIGITS.search(raw) and _has_large_number(value):
        raise KernelRejected("a number outside the range of a double; send it as a string", code="number_too_large")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [item for each in level if isinstance(each, dict | list) for item in _items(each)]
    return bool(level)  # each is inside of as many containers


def _has_large_number(value: Any) -> bool:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list):
            todo += _items(item)
        elif isinstance(item, int) and abs(item) > sys.float_info.max:
            return True
    return False


def _items(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def get(value: Any, key: str) -> Any:
    """`value -> key`."""
    return value.get(key, ABSENT) if isinstance(value, dict) else ABSENT


def get_raw(item: Any, key: str) -> Any:
    """`item -> key`, with None for SQL NULL."""
    value = get(item, key)
    return None if value is ABSENT else value


def text(value: Any) -> str | None:
    """Convert the result of `->` to that of `->>`."""
    if value is None or value is ABSENT:
        return None
    return value if isinstance(value, str) else written(value)


def written(value: Any) -> str:
    """Write JSON as PostgreSQL writes jsonb: shorter keys first, a space after each comma and colon."""
    if isinstance(value, list):
        return f"[{', '.join(written(item) for item in value)}]"
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key))
        return f"{{{', '.join(f'{written(key)}: {written(value[key])}' for key in keys)}}}"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f")
    return msgspec.json.encode(value).decode()


def get_text(value: Any, key: str) -> str | None:
    """`value ->> key`."""
    return text(get(value, key))


def elements(value: Any) -> list[Any]:
    """jsonb_array_elements; SQL NULL has no elements. Raises 22023 unless the value is an array."""
    if value is ABSENT:
        return []
    if not isinstance(value, list):
        raise SqlError("22023", "cannot extract elements from what is not an array")
    return value


def length(value: Any) -> int:
    """jsonb_array_length, and 0 for SQL NULL. Raises 22023 unless the value is an array."""
    if value is ABSENT:
        return 0
    if not isinstance(value, list):
        raise SqlError("22023", "cannot get array length of what is not an array")
    return len(value)


def has(value: Any, key: str | None) -> bool:
    """`value ? key`."""
    return key is not None and (
        key == value if isinstance(value, str) else isinstance(value, list | dict) and key in value
    )


def joined(value: Any, added: Mapping[str, Any]) -> Any:
    """`value || added`: an object is merged; any other value becomes an array with one more item."""
    if isinstance(value, dict):
        return {**value, **added}
    return [*(value if isinstance(value, list) else [value]), dict(added)]


def octets(value: Any) -> int:
    """octet_length(value::text)."""
    return len(written(value).encode())


def exceeds(value: Any, limit: int) -> bool:
    """Whether the text of a value is longer, like `_exceeds`. SQL NULL, also for a null in JSON, has no length."""
    return value is not None and octets(value) > limit


def records(value: Any) -> list[dict[str, Any]]:
    """jsonb_to_recordset, its columns still as JSON; a null in JSON is SQL NULL there. Raises 22023."""
    rows = elements(value)
    if not all(isinstance(row, dict) for row in rows):
        raise SqlError("22023", "argument of jsonb_to_recordset must be an array of objects")
    return [{key: item for key, item in row.items() if item is not None} for row in rows]


def texts(value: Any) -> list[str | None]:
    """Return the elements of an array as text, like `jsonb_array_elements_text`."""
    return [text(item) for item in elements(value)]


def whole(value: Any) -> int | None:
    """`value::bigint` of a jsonb number. Raises 22023 for other kinds."""
    if value is ABSENT or value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SqlError("22023", "cannot cast this jsonb to type bigint")
    return int(value + (0.5 if value >= 0 else -0.5)) if isinstance(value, float) else value


def get_whole(value: Any, key: str) -> int | None:
    """`(value ->> key)::bigint`."""
    return parse_integer(get_text(value, key), bits=64)


def parse_integer(value: str | None, *, bits: int = 32) -> int | None:
    """`text::integer`, or bigint."""
    if value is not None and not _INTEGER.fullmatch(value):
        raise SqlError("22P02", f"invalid input syntax for type integer: {value!r}")
    number = None if value is None else int(value)
    if number is not None and not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise SqlError("22003", f"value {value!r} is out of range for an integer of {bits} bits")
    return number


def parse_float(value: str | None) -> float | None:
    """`text::float8`."""
    try:
        return None if value is None else float(value)
    except ValueError:
        raise SqlError("22P02", f"invalid input syntax for type double precision: {value!r}") from None


def parse_boolean(value: str | None) -> bool | None:
    """`text::boolean`."""
    if value is None:
        return None
    word = value.strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise SqlError("22P02", f"invalid input syntax for type boolean: {value!r}")
