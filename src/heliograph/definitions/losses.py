"""Find the fields of a type that JSON in the ledger would lose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from heliograph.signals.values import SECRETS


def losses(schema: Any, what: str, field: str = "") -> Iterator[tuple[str, str]]:
    """The fields, at any depth, that the ledger would lose, each with the reason. schema: of pydantic-core. what: its name."""
    if isinstance(schema, list | tuple):
        for item in schema:
            yield from losses(item, what, field)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "dataclass-field":
        field = schema["name"]
    if schema.get("serialization_exclude") or schema.get("serialization_exclude_if"):
        yield field, f"it is excluded when {what} is written, so it would be lost; remove exclude"
    kind = schema.get("cls")
    if isinstance(kind, type) and issubclass(kind, SECRETS):
        yield field, "a secret is written as asterisks, so it would be lost; read it where it is used"
    for key, item in schema.items():
        if key == "metadata":
            continue
        is_field = isinstance(item, dict) and item.get("type") in ("model-field", "typed-dict-field")
        yield from losses(item, what, key if is_field else field)
