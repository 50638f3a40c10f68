"""Convert Python values to JSON: models, dataclasses, dates, enums and sets. Limit the size of a document."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pydantic_core

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.secrets import Secret
from heliograph.signals.payload import check_json
from heliograph.types import Json

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024  # of a state or an output, which turns read and write as a whole (S11)
SECRETS = (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret, Secret)
_SCALARS = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any, path: str = "") -> Json:
    """Convert `value` to JSON: models, dataclasses, dates, enums, and sets as lists sorted by the JSON text of their elements.

    path: the JSON pointer of `value`, which error paths begin with.
    Raises InvalidInput (`not_json`) for a value without a JSON form, and the errors of `check_json`.
    """
    try:
        plain = pydantic_core.to_jsonable_python(_ordered(value))
    except RecursionError:
        raise InvalidInput("a value is nested too deeply for JSON, or contains itself; make it flatter", code="json_too_deep",
                           path=path) from None  # fmt: skip
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError) as error:
        raise InvalidInput(f"{safe_repr(value)} cannot be converted to JSON: {safe_repr(str(error))}", code="not_json",
                           path=path) from None  # fmt: skip
    return check_json(plain, path)


def _ordered(value: Any) -> Any:
    """Replace sets by sorted lists, because the order of a set differs between processes. Reject secrets."""
    if isinstance(value, dict):
        return {key: item if type(item) in _SCALARS else _ordered(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in _SCALARS else _ordered(item) for item in value]
    if isinstance(value, set | frozenset):
        items = [pydantic_core.to_jsonable_python(_ordered(item)) for item in value]
        return sorted(items, key=lambda item: msgspec.json.encode(item, order="deterministic"))
    if isinstance(value, SECRETS):
        raise TypeError("a secret cannot be stored; remove it, and read it where it is used")
    return value


def check_size(document: Json, what: str, path: str) -> None:
    """Raise InvalidInput (`too_large`) if a document has more than 16 MiB as JSON. what: its name for the message."""
    size = len(msgspec.json.encode(document))
    if size > DOCUMENT_BYTES_MAX:
        raise InvalidInput(f"{what} has {size} bytes, the limit is {DOCUMENT_BYTES_MAX}; store large objects elsewhere and "
                           "put their names here", code="too_large", path=path)  # fmt: skip
