"""A document as the critics see it: sections of parts, and in each part its sentences, links, images and code.

Only sentences of prose count as prose. Code, tables and HTML are parts of their
own, so that a figure about the writing never measures a program.
"""

from __future__ import annotations

import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from examples.newsroom.blocks import Block, BlockKind, blocks
from examples.newsroom.inline import Image, Inline, Link, fold_label, read_inline
from examples.newsroom.prose import count_words, sentences
from heliograph.errors import InvalidInput

BYTES_MAX = 2_000_000
MOSTLY = 0.7
_READABLE: frozenset[BlockKind] = frozenset({"paragraph", "item", "quote", "footnote"})


@dataclass(frozen=True, slots=True)
class Sentence:
    """`text` is the visible text with code in backticks and with its newlines: a word's line is `line` plus the newlines before it."""

    line: int
    text: str

    def line_at(self, position: int) -> int:
        return self.line + self.text.count("\n", 0, position)


@dataclass(frozen=True, slots=True)
class Part:
    """One block. `code` is its inline code, or for kind `code` the one block of it; `label` as in `Block`."""

    kind: BlockKind
    line: int
    end_line: int
    sentences: tuple[Sentence, ...] = ()
    code: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    images: tuple[Image, ...] = ()
    footnotes: tuple[str, ...] = ()
    label: str = ""
    is_closed: bool = True

    @property
    def is_prose(self) -> bool:
        """Whether it is prose: a paragraph or quote that does not consist of links, or a list item that ends like a sentence."""
        spoken = sum(len(sentence.text) for sentence in self.sentences)
        if not spoken or sum(len(link.text) for link in self.links) > MOSTLY * spoken:
            return False
        if self.kind in ("paragraph", "quote"):
            return True
        return self.kind == "item" and any(
            sentence.text.endswith((".", "!", "?", "。")) and count_words(sentence.text) >= 6
            for sentence in self.sentences
        )


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the parts up to the next heading. Parts before the first heading form a section of level 0."""

    heading: str
    level: int
    line: int
    parts: tuple[Part, ...]

    @property
    def body(self) -> tuple[Part, ...]:
        """The parts without that of the heading, which only has its links and images."""
        return tuple(part for part in self.parts if part.kind != "heading")


@dataclass(frozen=True)
class Document:
    """`anchors` are the ids set by hand in HTML; those of the headings are in `slugs`."""

    lines: int
    sections: tuple[Section, ...]
    anchors: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        return tuple(part for section in self.sections for part in section.parts)

    @cached_property
    def prose(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.is_prose)

    @cached_property
    def slugs(self) -> frozenset[str]:
        return frozenset(_slugs(section.heading for section in self.sections if section.level))

    def of_kind(self, kind: BlockKind) -> list[Part]:
        return [part for part in self.parts if part.kind == kind]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Document:
        """Read the result of `to_json`, also after a round trip through JSON text."""
        sections = tuple(
            Section(**{**section, "parts": tuple(_part_from(part) for part in section["parts"])})
            for section in data["sections"]
        )
        return cls(data["lines"], sections, tuple(data["anchors"]))


def _part_from(data: Mapping[str, Any]) -> Part:
    made = {
        "sentences": tuple(Sentence(**sentence) for sentence in data["sentences"]),
        "links": tuple(Link(**link) for link in data["links"]),
        "images": tuple(Image(**image) for image in data["images"]),
        "code": tuple(data["code"]),
        "footnotes": tuple(data["footnotes"]),
    }
    return Part(**{**data, **made})


def read_document(path: str | Path) -> str:
    """Read one file. Raises InvalidInput if it is missing, not a file, over 2 MB, not UTF-8 text, or blank."""
    path, name = Path(path), repr(str(path))[1:-1]  # control characters are escaped
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InvalidInput(f"{name} is a directory; name one text or Markdown file in it", code="is_directory")
        if not stat.S_ISREG(mode):
            raise InvalidInput(f"{name} is not a regular file; copy its text into one", code="not_a_file")
        with path.open("rb") as file:
            data = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidInput(f"{name} does not exist; check the spelling and the folder", code="file_not_found") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a possible file name"
        raise InvalidInput(f"{name} cannot be read: {reason}", code="file_unreadable") from error
    return _decode(data, name)


def _decode(data: bytes, name: str) -> str:
    if len(data) > BYTES_MAX:
        raise InvalidInput(
            f"{name} is larger than {BYTES_MAX:,} bytes; cut it into chapters", code="document_too_large"
        )
    if b"\0" in data and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        offset = data.index(b"\0")
        raise InvalidInput(f"{name} is not text: a NUL byte at offset {offset}", code="document_binary")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            code="encoding",
            hint="save it as UTF-8",
        ) from None
    if not text.strip():
        raise InvalidInput(f"{name} is empty; there is nothing to review", code="document_empty")
    return text


def split(text: str) -> Document:
    """Read text or Markdown of any shape; this never fails, and a text without headings is one section of level 0."""
    found = blocks(text)
    definitions = {fold_label(block.label): block.text.strip("<>") for block in found if block.kind == "definition"}
    sections: list[Section] = []
    anchors: list[str] = []
    heading, level, line, parts = "", 0, 1, list[Part]()
    for block in found:
        inline = _inline_of(block, definitions)
        anchors += inline.anchors
        if block.kind == "heading":
            if level or parts:
                sections.append(Section(heading, level, line, tuple(parts)))
            heading, level, line, parts = " ".join(inline.plain.split()), block.level, block.line, []
        parts.append(_part(block, inline))
    sections.append(Section(heading, level, line, tuple(parts)))
    return Document(_count_lines(text), tuple(sections), tuple(anchors))


def _count_lines(text: str) -> int:
    flat = text.replace("\r\n", "\n").replace("\r", "\n")
    return flat.count("\n") + (not flat.endswith("\n"))


def _inline_of(block: Block, definitions: Mapping[str, str]) -> Inline:
    if block.kind == "code":
        return Inline(code=[block.text])
    if block.kind == "definition":
        return Inline(links=[Link(block.line, "reference", block.label, block.text.strip("<>"))])
    return read_inline(block.text, block.line, definitions)


def _part(block: Block, inline: Inline) -> Part:
    spoken = sentences(inline.plain) if block.kind in _READABLE else []
    line, position = block.line, 0
    placed: list[Sentence] = []
    for start, text in spoken:
        line, position = line + inline.plain.count("\n", position, start), start
        placed.append(Sentence(line, text))
    return Part(
        block.kind, block.line, block.end_line, tuple(placed), tuple(inline.code), tuple(inline.links),
        tuple(inline.images), tuple(inline.footnotes), block.label, block.is_closed,
    )  # fmt: skip


def slug(heading: str) -> str:
    """Return the anchor of a heading on GitHub: lower case, hyphens for spaces, without other punctuation."""
    kept = (c for c in heading.lower() if c in " -" or unicodedata.category(c)[0] in "LMN" or c == "_")
    return "".join("-" if c == " " else c for c in kept).replace("\ufe0f", "")


def _slugs(headings: Iterator[str]) -> Iterator[str]:
    """Repeated headings get the suffixes -1, -2, ... in order."""
    seen: Counter[str] = Counter()
    for heading in headings:
        base = slug(heading)
        yield f"{base}-{seen[base]}" if seen[base] else base
        seen[base] += 1
