"""Secrets by reference: the ledger stores `secret://name`, and the value is resolved where it is used.

A resolved secret is redacted from everything that the process writes, see `redaction`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from heliograph.errors import InvalidInput
from heliograph.redaction import LENGTH_MIN, STARS, keep_out

Resolver: TypeAlias = Callable[[str], str | None]

REFERENCE = re.compile(r"secret://([A-Za-z0-9_-]{1,64})")


class Secret:
    """A secret value, which prints as stars and cannot be pickled.

    Its value is redacted from everything that the process writes. Raises InvalidInput for a value of fewer than 8 characters.
    """

    __slots__ = ("_value", "name")

    def __init__(self, value: str, name: str = ""):
        if not isinstance(value, str) or len(value) < LENGTH_MIN:
            raise InvalidInput(f"the secret {name or '(without a name)'} has fewer than {LENGTH_MIN} characters, so it could not be "
                               "redacted reliably; use a longer one", code="out_of_range")  # fmt: skip
        keep_out(value)
        self._value = value
        self.name = name

    def reveal(self) -> str:
        """Return the value."""
        return self._value

    def __repr__(self) -> str:
        return STARS

    def __format__(self, _spec: str) -> str:
        return STARS

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled; pass its name, and resolve it where it is used")


def names_in(value: Any) -> set[str]:
    """Return the names of the secrets to which a JSON value refers. Only whole strings count as references."""
    if isinstance(value, str):
        found = REFERENCE.fullmatch(value)
        return set() if found is None else {found[1]}
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return {name for item in items for name in names_in(item)}
