"""Expressions in the inputs of a workflow's steps, from a fixed list: they name a value, and nothing is evaluated.

`${{ workflow.input.city }}` is a part of the run's input, `${{ steps.fetch.output.items[0] }}` a part of a step's output, and
`${{ context.variables.style }}` a value that the manifest gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from heliograph.errors import InvalidInput

_PATH = r"((?:\.[A-Za-z0-9_-]{1,200}|\[\d{1,9}\])*)"
_EXPRESSION = re.compile(
    rf"\$\{{\{{\s*(?:(workflow\.input)|steps\.(?P<step>[a-z][a-z0-9_-]*)\.output|(context\.variables)){_PATH}\s*\}}\}}"
)
_PART = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")
_MARK = "${{"


@dataclass(frozen=True, slots=True)
class ValueReference:
    """A value that an expression names. source: `input`, `variables`, or `step` with the id of the step. path: the keys and indexes in it."""

    source: str
    step: str | None
    path: tuple[str, ...]

    @property
    def pointer(self) -> str:
        return "".join(f"/{part}" for part in self.path)


def reference_in(text: str) -> ValueReference | None:
    """Return the value that a text names; None for a text without an expression.

    Raises InvalidInput (`expression_not_allowed`) for another expression, and for one that is only a part of its text.
    """
    if _MARK not in text:
        return None
    found = _EXPRESSION.fullmatch(text.strip())
    if found is None:
        raise InvalidInput("the expression is not carried out: an expression is a whole value, like ${{ workflow.input.KEY }}, "
                           "${{ steps.ID.output.KEY }} or ${{ context.variables.KEY }}", code="expression_not_allowed")  # fmt: skip
    path = tuple(key or index for key, index in _PART.findall(found[4]))
    source = "input" if found[1] else "step" if found["step"] else "variables"
    return ValueReference(source, found["step"], path)


def value_in(whole: Any, reference: ValueReference) -> Any:
    """Return the part of a value that a reference names. Raises InvalidInput (`invalid_reference`) if there is none."""
    value = whole
    for part in reference.path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            raise InvalidInput(f"the {reference.source} has no {'.'.join(reference.path)}", code="invalid_reference")
    return value
