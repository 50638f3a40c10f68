"""Prompt templates: text with {state.key}, {signal.name}, {signal.payload}, {message} and {task}. Values are never interpreted as templates."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

RENDERED_MAX = 4_194_304  # characters
SIGNAL_NAMES = ("signal.name", "signal.payload", "message", "task")

_BRACE = re.compile(r"\{\{|\}\}|\{([^}]*)\}|[{}]")


def placeholders(template: str) -> list[str]:
    """Return the names in `template`, in order. Raises InvalidInput (`template_syntax`) for a brace without an end."""
    return [name for _, name in _pieces(template) if name is not None]


def substitute(template: str, values: Mapping[str, Any]) -> str:
    """Replace each {name} by its value in one pass; {{ and }} are literal braces. Braces within values are kept.

    Raises InvalidInput: `template_syntax`, `template_undefined` (with the names that exist), `rendered_too_long`.
    """
    out: list[str] = []
    length = 0
    for text, name in _pieces(template):
        parts = [text]
        if name is not None:
            check_known(name, values)
            parts.append(str(values[name]))
        out += parts
        length += sum(map(len, parts))
        if length > RENDERED_MAX:
            raise InvalidInput(f"the text of the template is longer than {RENDERED_MAX} characters with its values; use fewer or shorter "
                               "values", code="rendered_too_long")  # fmt: skip
    return "".join(out)


def check_known(name: str, known: Collection[str]) -> None:
    """Raise InvalidInput (`template_undefined`) for a name that is not in `known`."""
    if name not in known:
        raise InvalidInput(f"the template uses {{{safe_repr(name)}}}, but there is only {', '.join(sorted(known))}; write {{{{ "
                           "and }} for braces", code="template_undefined")  # fmt: skip


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """Divide a template, in one pass, into pairs of a text and the placeholder that follows it, or None where none follows."""
    start = 0
    for found in _BRACE.finditer(template):
        text, brace = template[start : found.start()], found[0]
        if brace == "{":
            raise InvalidInput(f"the template has a {{ without a closing }}, before '{safe_repr(template[found.end():], 30)}'; "
                               "write {{ for a brace", code="template_syntax")  # fmt: skip
        is_placeholder = found[1] is not None
        yield (text, found[1].strip()) if is_placeholder else (text + brace[0], None)
        start = found.end()
    yield template[start:], None
