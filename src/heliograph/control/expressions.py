"""Expressions in templates: `${uuid()}`, and `${parent.correlation_id}` with its siblings.

Nothing is executed. An expression is one of a fixed list of names, and each stands for a text. A template is evaluated once: a value
that looks like an expression stays as it is. `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from heliograph.control.envelope import Envelope
from heliograph.control.model_errors import nearest
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.types import Json

UUID = "uuid()"
PARENT_FIELDS = ("correlation_id", "parent_correlation_id", "id", "source", "destination", "trace_id", "span_id")
NAMES = (UUID, *(f"parent.{field}" for field in PARENT_FIELDS))

_EXPRESSION = re.compile(r"\$\$\{|\$\{([^{}]{0,200})\}|\$\{")


def evaluate(template: Json, new_id: Callable[[], str], parent: Envelope | None = None, path: str = "") -> Json:
    """Return a template with the values of its expressions.

    new_id: creates an id for each `${uuid()}`. parent: the request that causes this one. Without it, a text that is one
    `${parent.…}` becomes null. Raises InvalidInput: unknown_expression with the nearest name; no_parent, where such an expression
    is a part of a longer text.
    """
    if isinstance(template, dict):
        return {key: evaluate(value, new_id, parent, pointer(path, key)) for key, value in template.items()}
    if isinstance(template, list):
        return [evaluate(value, new_id, parent, pointer(path, n)) for n, value in enumerate(template)]
    return _Text(template, new_id, parent, path).value() if isinstance(template, str) else template


def uuid_from(identifier: str) -> str:
    """Return the UUID that belongs to an id: always the same, so a repeated simulation has the same ones (RFC 9562, version 8)."""
    digits = blake2b(identifier.encode(), digest_size=16).hexdigest()
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class _Text:
    """One text of a template."""

    def __init__(self, text: str, new_id: Callable[[], str], parent: Envelope | None, path: str):
        self._text = text
        self._new_id = new_id
        self._parent = parent
        self._path = path

    def value(self) -> str | None:
        whole = _EXPRESSION.fullmatch(self._text)
        if whole is not None and whole[0] != "$${":
            return self._value_of(whole)
        return _EXPRESSION.sub(self._part, self._text)

    def _part(self, found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        value = self._value_of(found)
        if value is None:
            raise InvalidInput(f"{safe_repr(found[0])} has no value, because this signal has no parent with it; make it the whole text, "
                               "which then becomes null", code="no_parent", path=self._path or None)  # fmt: skip
        return value

    def _value_of(self, found: re.Match[str]) -> str | None:
        name = "" if found[1] is None else found[1].strip()
        if name not in NAMES:
            raise InvalidInput(f"{safe_repr(found[0])} is not an expression; there are "
                               f"{', '.join(f'${{{known}}}' for known in NAMES)}{nearest(name, NAMES)}",
                               code="unknown_expression", path=self._path or None)  # fmt: skip
        if name == UUID:
            return uuid_from(self._new_id())
        return None if self._parent is None else _field_of(self._parent, name.removeprefix("parent."))


def _field_of(parent: Envelope, field: str) -> str | None:
    owner: Any = parent.signal.payload if field.endswith("correlation_id") else parent
    value: str | None = getattr(owner, field, None)
    return value
