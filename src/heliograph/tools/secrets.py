"""Look up secrets where they are used: with the application's own function, or else in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Any

from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput, SetupError
from heliograph.redaction import SECRET_PREFIX
from heliograph.secrets import REFERENCE, Resolver, Secret

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def secret(name: str, resolver: Resolver | None = None) -> Secret:
    """Look up a secret: `resolver(name)`, or else the environment variable HELIOGRAPH_SECRET_<NAME>.

    Raises SetupError (`no_secret`); InvalidInput for an invalid name, and for a value that is too short to be redacted.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidInput(
            f"the name of a secret must be 1 to 64 ASCII letters, digits, '_' or '-', not {safe_repr(repr_of(name))}",
            code="invalid_id",
        )
    variable = SECRET_PREFIX + name.upper().replace("-", "_")
    value = resolver(name) if resolver is not None else None
    value = os.environ.get(variable) if value is None else value
    if value is None:
        raise SetupError(
            f"there is no secret {name}: set {variable}, or give the application a resolver", code="no_secret"
        )
    return Secret(value, name)


def resolve_references(text: str, resolver: Resolver | None = None) -> str:
    """Replace each `secret://name` in `text`, as in "Bearer secret://crm", by its value. Raises the errors of `secret`."""
    return REFERENCE.sub(lambda found: secret(found[1], resolver).reveal(), text)


def resolved(value: Any, allowed: Collection[str], resolver: Resolver | None = None) -> Any:
    """Replace strings in JSON that are references to allowed secrets by their values. Raises the errors of `secret`."""
    if isinstance(value, str):
        found = REFERENCE.fullmatch(value)
        return value if found is None or found[1] not in allowed else secret(found[1], resolver).reveal()
    if isinstance(value, Mapping):
        return {key: resolved(item, allowed, resolver) for key, item in value.items()}
    return [resolved(item, allowed, resolver) for item in value] if isinstance(value, list | tuple) else value
