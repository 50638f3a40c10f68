"""Prompt templates: text with {state.key}, {signal.name} and {signal.payload}. Values are never interpreted as templates."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

SIGNAL_NAMES = ("signal.name", "signal.payload")


def placeholders(template: str) -> list[str]:
    """Return the names in `template`, in order. Raises InvalidInput (`template_syntax`) for a brace without an end."""
    return [name for _, name in _pieces(template) if name is not None]


def substitute(template: str, values: Mapping[str, Any]) -> str:
    """Replace each {name} by its value in one pass; {{ and }} are literal braces. Braces within values are kept.

    Raises InvalidInput: `template_syntax`, `template_undefined` (with the names that exist).
    """
    out = []
    for text, name in _pieces(template):
        out.append(text)
        if name is not None:
            check_known(name, values)
            out.append(str(values[name]))
    return "".join(out)


def check_known(name: str, known: Collection[str]) -> None:
    """Raise InvalidInput (`template_undefined`) for a name that is not in `known`."""
    if name not in known:
        raise InvalidInput(f"the template uses {{{safe_repr(name)}}}, but there is only {', '.join(sorted(known))}; write {{{{ "
                           "and }} for braces", code="template_undefined")  # fmt: skip


def _pieces(template: str) -> list[tuple[str, str | None]]:
    """Divide a template into pairs of a text and the placeholder that follows it, or None at the end."""
    pieces: list[tuple[str, str | None]] = []
    rest = template
    while rest:
        text, brace, rest = _cut(rest)
        if brace != "{":
            pieces.append((text + brace[:1], None))
            continue
        name, closing, after = rest.partition("}")
        if not closing:
            raise InvalidInput(f"the template has a {{ without a closing }}, before '{safe_repr(rest, 30)}'; write {{{{ for a brace",
                               code="template_syntax")  # fmt: skip
        pieces.append((text, name.strip()))
        rest = after
    return pieces


def _cut(text: str) -> tuple[str, str, str]:
    """Divide a text at its next brace: the text before it, the brace (single or doubled), and the rest."""
    at = min((i for i in (text.find("{"), text.find("}")) if i >= 0), default=-1)
    if at < 0:
        return text, "", ""
    width = 2 if text[at : at + 2] in ("{{", "}}") else 1
    return text[:at], text[at : at + width], text[at + width :]
