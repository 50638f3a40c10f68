"""The types of the fields of control models. Each reader accepts exactly the JSON type that the specification names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import pydantic

from heliograph.control.model_errors import problem
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.redaction import redacted, redacted_text
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject

T = TypeVar("T")

TEXT_CHARACTERS_MAX = 65_536
NUMBER_MAX = 10**15  # of seconds, milliseconds and counts: readers in other languages represent it exactly


def read_json(value: Any) -> Json:
    """Convert a value to JSON, as `ctx.call` does with arguments; JSON stays unchanged."""
    try:
        return to_json(value)
    except InvalidInput as error:
        raise problem(error.code, f"is not JSON: {error.message}", error.path or "") from None


def read_object(value: Any) -> JsonObject:
    if not isinstance(value, Mapping):
        raise problem("wrong_type", f"must be an object, not {_quoted(value)}")
    converted = read_json(dict(value))
    assert isinstance(converted, dict)
    return converted


def read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise problem("wrong_type", f"must be a string, not {_quoted(value)}")
    if not 0 < len(value) <= TEXT_CHARACTERS_MAX:
        raise problem("out_of_range", f"must have 1 to {TEXT_CHARACTERS_MAX} characters, not {len(value)}")
    read_json(value)
    return value


def read_redacted_text(value: Any) -> str:
    """Return a text of any length, also an empty one, with stars in place of secrets."""
    if not isinstance(value, str):
        raise problem("wrong_type", f"must be a string, not {_quoted(value)}")
    read_json(value)
    return redacted_text(value)


def read_texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise problem("wrong_type", f"must be a list of strings, not {_quoted(value)}")
    return tuple(read_text(item) for item in value)


def read_positive(value: Any) -> float:
    """Return a number above 0; an integer stays one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise problem("wrong_type", f"must be a number, not {_quoted(value)}")
    if not 0 < value < math.inf:
        raise problem("out_of_range", f"must be above 0, not {_quoted(value)}")
    if value > NUMBER_MAX:
        raise problem("out_of_range", f"must be at most {NUMBER_MAX}, not {_quoted(value)}")
    return value


def read_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise problem("wrong_type", f"must be true or false, not {_quoted(value)}")
    return value


def read_count(value: Any) -> int:
    return _whole_number(value, 1)


def read_natural(value: Any) -> int:
    """Return a whole number from 0."""
    return _whole_number(value, 0)


def read_duration_ms(value: Any) -> float:
    """Return a number of milliseconds from 0; an integer stays one."""
    return 0 if value == 0 and not isinstance(value, bool) else read_positive(value)


def _whole_number(value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise problem("wrong_type", f"must be an integer, not {_quoted(value)}")
    if not least <= value <= NUMBER_MAX:
        raise problem("out_of_range", f"must be from {least} to {NUMBER_MAX}, not {_quoted(value)}")
    return value


def _quoted(value: Any) -> str:
    """The value with the quotes of a text, so that '60' and 60 differ."""
    return safe_repr(repr_of(value))


def read_time(value: Any) -> datetime:
    """Return a time in UTC. value: ISO 8601 with a zone, or an aware datetime, which YAML has for a text without quotes."""
    at = value
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            at = None
    try:
        if isinstance(at, datetime) and at.utcoffset() is not None:
            return at.astimezone(UTC)
    except OverflowError:  # UTC is in year 0 or 10000
        pass
    raise problem(
        "invalid_timestamp",
        f"must be an ISO 8601 time with a zone, for example 2024-01-15T10:30:00Z, not {_quoted(value)}",
    )


def _reader(read: Callable[[Any], T]) -> pydantic.PlainValidator:
    return pydantic.PlainValidator(read)


Flag: TypeAlias = Annotated[bool, pydantic.Strict()]
Text: TypeAlias = Annotated[str, _reader(read_text)]
Texts: TypeAlias = Annotated[tuple[str, ...], _reader(read_texts)]
JsonValue: TypeAlias = Annotated[Any, _reader(read_json)]
Object: TypeAlias = Annotated[dict[str, Any], _reader(read_object)]
Positive: TypeAlias = Annotated[float, _reader(read_positive)]
Count: TypeAlias = Annotated[int, _reader(read_count)]
Natural: TypeAlias = Annotated[int, _reader(read_natural)]
Milliseconds: TypeAlias = Annotated[float, _reader(read_duration_ms)]
Time: TypeAlias = Annotated[datetime, _reader(read_time)]
# Errors quote what failed, so they lose every known secret before anything else sees them.
RedactedText: TypeAlias = Annotated[str, _reader(read_redacted_text)]
RedactedObject: TypeAlias = Annotated[dict[str, Any], _reader(lambda value: redacted(read_object(value)))]
