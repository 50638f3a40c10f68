"""Inside one piece of Markdown: what a reader sees, and the links, images, code and notes in it.

Every step keeps the newlines of its input, so a place in the result still has
the line it had in the document. Every pattern reads each character a bounded
number of times: a megabyte of `[` must not cost more than a megabyte of prose.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

LinkKind = Literal["link", "reference", "undefined", "bare", "html"]


@dataclass(frozen=True, slots=True)
class Link:
    """`target` is as written; for the kind `undefined` it is the label without a definition."""

    line: int
    kind: LinkKind
    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Image:
    """`alt` is None where the image has none at all, "" where an HTML image is marked as decoration."""

    line: int
    alt: str | None
    target: str


@dataclass(slots=True)
class Inline:
    """The contents of one piece of text. In `plain`, code stands in single backticks; lines count from the `line` given."""

    plain: str = ""
    code: list[str] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    footnotes: list[str] = field(default_factory=list)
    anchors: list[str] = field(default_factory=list)


_TICKS = re.compile(r"(?<![\\`])`+")
_DESTINATION = r"""\(\s*(<[^<>\n]*>|(?:[^\s()]|\([^\s()]*\))*+)(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)"""
_LABEL = r"([^\[\]]*+)\]"
_IMAGE = re.compile(rf"!\[{_LABEL}(?:{_DESTINATION}|\[([^\[\]]*)\])")
_LINK = re.compile(rf"\[{_LABEL}{_DESTINATION}")
_NOTE = re.compile(r"\[\^([^\[\]\s]+)\]")
_REFERENCE = re.compile(rf"(?<!\w)\[{_LABEL}(?:\[([^\[\]]*)\])?")
_URL = re.compile(r"<?(https?://[^\s<>\"`]++)>?")
_TAG = re.compile(r"</?([A-Za-z][A-Za-z0-9-]*)(?=[\s/>])([^<>]*)>")
_ATTRIBUTE = re.compile(r"""([A-Za-z-]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+)""")
_EMPHASIS = re.compile(r"\*+(?=\S)|(?<=\S)\*+|~~|(?<![^\W_])_+(?=\S)|(?<=\S)_+(?![^\W_])")
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_ENTITY = re.compile(r"&#?\w{1,32};")
_HELD = re.compile("\ue000(\\d+)\ue001")
_HIDDEN_AT = 0xE100
_HIDDEN = {_HIDDEN_AT + code: chr(code) for code in range(33, 127)}
_NOT_OURS = dict.fromkeys([0xE000, 0xE001, *_HIDDEN], "�")


def read_inline(text: str, line: int = 1, definitions: Mapping[str, str] | None = None) -> Inline:
    """Read one piece that starts on `line`; `definitions` maps folded labels to the targets of reference links."""
    found = Inline()
    text = _hold_code(_drop_comments(text.translate(_NOT_OURS)), found)
    text = _ESCAPE.sub(lambda match: chr(_HIDDEN_AT + ord(match[1])), text)
    text = _read_images(text, line, definitions or {}, found)
    text = _read_links(text, line, definitions or {}, found)
    text = _read_urls(text, line, found)
    text = _read_tags(text, line, found)
    text = _EMPHASIS.sub("", text).translate(_HIDDEN).replace("`", "'")
    text = _ENTITY.sub(lambda match: html.unescape(match[0]).replace("\n", " "), text)
    found.plain = _release_code(text, found)
    found.links.sort(key=lambda link: link.line)
    return found


def fold_label(label: str) -> str:
    """A reference label as Markdown compares them: case and white space do not count."""
    return " ".join(label.translate(_HIDDEN).casefold().split())


def _drop_comments(text: str) -> str:
    kept, start = [], 0
    while (opening := text.find("<!--", start)) >= 0 and (closing := text.find("-->", opening)) >= 0:
        kept += [text[start:opening], "\n" * text.count("\n", opening, closing)]
        start = closing + 3
    return "".join([*kept, text[start:]])


def _hold_code(text: str, found: Inline) -> str:
    """Replace each code span by its number between two private characters, so that later steps ignore its content."""
    runs = [(match.start(), match.end()) for match in _TICKS.finditer(text)]
    later: dict[int, list[int]] = {}
    for number in reversed(range(len(runs))):
        later.setdefault(runs[number][1] - runs[number][0], []).append(number)
    kept, position, number = [], 0, 0
    while number < len(runs):
        start, end = runs[number]
        same = later[end - start]
        while same and same[-1] <= number:
            same.pop()
        if not same:
            number += 1
            continue
        closing = same[-1]
        inside = text[end : runs[closing][0]]
        kept += [text[position:start], f"\ue000{len(found.code)}\ue001"]
        found.code.append(inside)
        position, number = runs[closing][1], closing + 1
    return "".join([*kept, text[position:]])


def _release_code(text: str, found: Inline) -> str:
    held = found.code
    plain = _HELD.sub(lambda match: "`" + held[int(match[1])].replace("`", "'") + "`", text)
    found.code = [" ".join(code.split()) for code in held]
    return plain


class _Lines:
    """The line of each match, for matches that come in order: every newline is counted once."""

    def __init__(self, text: str, line: int):
        self.text, self.line, self.position = text, line, 0

    def at(self, position: int) -> int:
        self.line += self.text.count("\n", self.position, position)
        self.position = position
        return self.line


def _newlines_of(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _read_images(text: str, line: int, definitions: Mapping[str, str], found: Inline) -> str:
    lines = _Lines(text, line)

    def take(match: re.Match[str]) -> str:
        target = match[2] if match[2] is not None else definitions.get(fold_label(match[3] or match[1]))
        if target is None:
            return match[0]
        found.images.append(Image(lines.at(match.start()), _visible(match[1], found) or None, _bare_target(target)))
        return _newlines_of(match)

    return _IMAGE.sub(take, text)


def _read_links(text: str, line: int, definitions: Mapping[str, str], found: Inline) -> str:
    """Read inline links, then notes, then links by label, which must not match text of the first two."""
    lines = _Lines(text, line)

    def take_link(match: re.Match[str]) -> str:
        found.links.append(Link(lines.at(match.start()), "link", _visible(match[1], found), _bare_target(match[2])))
        return _same_lines(match[1], match)

    def take_note(match: re.Match[str]) -> str:
        found.footnotes.append(match[1])
        return ""

    def take_reference(match: re.Match[str]) -> str:
        label = match[2] or match[1]
        target = definitions.get(fold_label(label))
        if target is not None:
            found.links.append(Link(lines.at(match.start()), "reference", _visible(match[1], found), target))
            return _same_lines(match[1], match)
        if match[2] and match[1].strip() and any(c.isalpha() for c in match[2]):
            found.links.append(
                Link(lines.at(match.start()), "undefined", _visible(match[1], found), _visible(match[2], found))
            )
        return match[0]

    text = _NOTE.sub(take_note, _LINK.sub(take_link, text))
    lines = _Lines(text, line)
    return _REFERENCE.sub(take_reference, text)


def _same_lines(kept: str, match: re.Match[str]) -> str:
    return kept + "\n" * (match[0].count("\n") - kept.count("\n"))


def _visible(text: str, found: Inline) -> str:
    return " ".join(_HELD.sub(lambda match: found.code[int(match[1])], text).translate(_HIDDEN).split())


def _bare_target(target: str) -> str:
    return target.strip("<>").translate(_HIDDEN)


def _read_urls(text: str, line: int, found: Inline) -> str:
    lines = _Lines(text, line)

    def take(match: re.Match[str]) -> str:
        url = match[1].rstrip(".,;:!?*_'\"”’")
        while url.endswith((")", "]")) and url.count(")") + url.count("]") > url.count("(") + url.count("["):
            url = url[:-1]
        found.links.append(Link(lines.at(match.start()), "bare", url, url))
        return match[0].strip("<>") if match[0].startswith("<") else match[0]

    return _URL.sub(take, text)


def _read_tags(text: str, line: int, found: Inline) -> str:
    lines = _Lines(text, line)

    def take(match: re.Match[str]) -> str:
        given = {name.lower(): value.strip("\"'") for name, value in _ATTRIBUTE.findall(match[2])}
        place = lines.at(match.start())
        found.anchors += [given[name] for name in ("id", "name") if name in given]
        if match[1].lower() == "img" and "src" in given:
            found.images.append(Image(place, given.get("alt"), given["src"]))
        if match[1].lower() == "a" and "href" in given:
            found.links.append(Link(place, "html", "", given["href"]))
        return _newlines_of(match) or (" " if match[1].lower() in ("br", "td", "th", "li") else "")

    return _TAG.sub(take, text)
