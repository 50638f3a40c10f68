"""Expressions in the values of a manifest: `${NAME}` and `${NAME:-default}` stand for a variable of the environment.

They are expanded once, when the manifest is loaded: the value of a variable is never searched for expressions. `$${` is a literal `${`.
Other texts in braces, like `${uuid()}`, `${{ … }}` and `{{ … }}`, are no variables and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]{0,127})(?::-([^{}]*))?\}")
_OTHER = re.compile(r"\$\$\{|(\$\{(?!\{)[^{}]{0,200}\}?)")


def is_expanded(text: str) -> bool:
    """Whether a text uses variables, or has the escape `$${`."""
    return _VARIABLE.search(text) is not None


def values_in(text: str, environment: Mapping[str, str]) -> list[str]:
    """Return the values that variables of the environment have in a text, without its defaults."""
    return [environment[found[1]] for found in _VARIABLE.finditer(text) if found[1] and environment.get(found[1])]


def missing_in(text: str, environment: Mapping[str, str]) -> list[str]:
    """Return the names of the variables of a text that have no value and no default. An empty value counts as missing."""
    return [
        found[1]
        for found in _VARIABLE.finditer(text)
        if found[1] and found[2] is None and not environment.get(found[1])
    ]


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Return a text with the values of its variables, all of which have one, or a default."""
    return _VARIABLE.sub(lambda found: (environment.get(found[1]) or found[2] or "") if found[1] else "${", text)


def other_expressions_in(text: str) -> list[str]:
    """Return the expressions of a text that are no variables, as they are written."""
    return [found[1] for found in _OTHER.finditer(text) if found[1] and not _VARIABLE.fullmatch(found[1])]
