"""Prepare the docstrings for the site: they are prose with lines such as `name: what it is`, and no Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

ITEM = re.compile(r"(?:[a-z][a-z0-9_]*)(?:, [a-z][a-z0-9_]*)*: ")
CODE = re.compile(r"(`+[^`]*`+)")


class Docstrings(griffe.Extension):
    """Make a list of the lines that name a parameter, and escape the characters that have a meaning in Markdown."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", obj.docstring.value)))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if all(line.startswith("    ") for line in lines):
        return text  # an example
    if not ITEM.match(lines[0]):
        return _escaped(text)
    marked = (f"- **{line.replace(': ', ':** ', 1)}" if ITEM.match(line) else f"    {line.strip()}" for line in lines)
    return _escaped("\n".join(marked)).replace(r"\*\*", "**")


def _escaped(text: str) -> str:
    parts = CODE.split(text)
    return "".join(part if index % 2 else re.sub(r"([*_<])", r"\\\1", part) for index, part in enumerate(parts))
