"""Convert Python values to JSON: models, dataclasses, dates, enums and sets; and bound the size of a document."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pydantic_core

from heliograph.errors import InvalidInput, safe_repr
from heliograph.secrets import Secret
from heliograph.signals.payload import check_json
from heliograph.types import Json

DOCUMENT_BYTES_MAX = 16 * 1024 * 1024  # of a state, and of an output: every turn reads and writes the whole (S11)


SECRETS = (pydantic.SecretStr, pydantic.SecretBytes, pydantic.Secret, Secret)


_SCALARS = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any, path: str = "") -> Json:
    """`value` as JSON: models, dataclasses, dates, enums and sets included, the latter in the order of their JSON text.

    Raises InvalidInput (`not_json`, or what check_json says) where there is no JSON for it.
    """
    try:
        plain = pydantic_core.to_jsonable_python(_ordered(value))
    except RecursionError:
        raise InvalidInput("a value is nested too deep to be written as JSON, or contains itself", code="json_too_deep",
                           path=path) from None  # fmt: skip
    except (pydantic_core.PydanticSerializationError, ValueError, TypeError) as error:
        raise InvalidInput(f"{safe_repr(value)} cannot be written as JSON: {safe_repr(str(error))}", code="not_json",
                           path=path) from None  # fmt: skip
    return check_json(plain, path)


def _ordered(value: Any) -> Any:
    """`value` with lists for sets: the order of a set is another one in each process. Refuses secrets."""
    if isinstance(value, dict):
        return {key: item if type(item) in _SCALARS else _ordered(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) in _SCALARS else _ordered(item) for item in value]
    if isinstance(value, set | frozenset):
        items = [pydantic_core.to_jsonable_python(_ordered(item)) for item in value]
        return sorted(items, key=lambda item: msgspec.json.encode(item, order="deterministic"))
    if isinstance(value, SECRETS):
        raise TypeError("a secret is written as asterisks; leave it out, and read it where it is used")
    return value


def check_size(document: Json, what: str, path: str) -> None:
    """Raises InvalidInput (`too_large`)."""
    size = len(msgspec.json.encode(document))
    if size > DOCUMENT_BYTES_MAX:
        raise InvalidInput(f"{what} has {size} bytes, the limit is {DOCUMENT_BYTES_MAX}; keep large things elsewhere and "
                           "their names here", code="too_large", path=path)  # fmt: skip
