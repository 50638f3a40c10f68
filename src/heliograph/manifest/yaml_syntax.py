"""Messages for errors of YAML syntax: the place, the problem in plain words, and the next step."""

from __future__ import annotations

from typing import Any

from heliograph.error_text import safe_repr
from heliograph.manifest.document import Place

# A part of the parser's message, our message (None: the parser's), and the next step.
_KNOWN: tuple[tuple[str, str | None, str], ...] = (
    (r"character '\t'", "tabs are not allowed for indentation", "indent with spaces"),
    ("mapping values are not allowed", "a ':' stands where no key can begin",
     "quote a value that contains ': ', and indent keys of one object alike"),
    ("unexpected end of stream", "a quote is not closed", "close the quote that opens in the line above"),
    ("expected <block end>", "the indentation does not match the lines above", "indent the keys of one object, or the items of one list, alike"),
    ("could not find expected ':'", "a key has no ':'", "write `key: value`, or quote a text of several lines"),
    ("that cannot start any token", None, "quote the text"),
    ("expected ',' or '}'", "an object in braces is not closed, or a comma is missing", "close it with }, or add the comma; quote a text with braces"),
    ("expected ',' or ']'", "a list in brackets is not closed, or a comma is missing", "close it with ], or add the comma; quote a text with brackets"),
    ("unknown escape character", None, "write the backslash twice, or use single quotes"),
    ("undefined tag handle", None, "remove the tag"),
    ("found duplicate", None, "remove one of them"),
)  # fmt: skip


def describe_syntax_error(error: Any, last: Place) -> tuple[Place, str, str]:
    """Return the place, the message and the next step of an error that the parser raised. last: the place that was read before it."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = last if mark is None else Place(mark.line + 1, mark.column + 1)
    text = getattr(error, "problem", None)
    if not isinstance(text, str):
        return place, "the text is not YAML", "correct the text at this place"
    shown = text.replace("\t", "\\t")
    for part, message, hint in _KNOWN:
        if part in shown:
            return place, message or safe_repr(text), hint
    return place, safe_repr(text), "correct the text at this place"
