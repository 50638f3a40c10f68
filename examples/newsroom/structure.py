"""The structure critic: headings, links that lead nowhere, images without words, fences left open, TODOs.

Links are followed as far as the disk goes: to files beside the document and to
the headings in them. Nothing is fetched; what would need the network is listed
under `not_checked`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from examples.newsroom.document import Document, Part, Section, read_document, split
from examples.newsroom.finding import Finding, Severity, excerpt, settle
from examples.newsroom.inline import Link
from examples.newsroom.prose import count_words, without_code
from heliograph.errors import InvalidInput

NAME = "structure"
CHECKS = (
    "heading levels, duplicate headings, empty and very long sections, code fences left open, TODO marks in prose",
    "relative links and images against the files beside the document, anchors against headings and HTML ids",
    "images without alternative text, links to labels that are not defined",
)
LIMITS = ("addresses on the web are listed and not fetched: the review uses no network",)

SECTION_WORDS_MAX = 1_000
LISTED_MAX = 100
_MARKDOWN = frozenset({".md", ".markdown", ".mdown"})
_SCHEME = re.compile(r"[a-z][a-z0-9+-]+:", re.IGNORECASE)
_TEMPLATE_MARKS = ("{{", "{%", "${", "<%")
_FORGE_PAGE = re.compile(
    r"(?:\.\./){1,4}(?:issues|pulls?|releases|actions|wiki|discussions|compare|commits?|security)\b"
)
_TODO = re.compile(r"\b(TODO|FIXME|TBD|XXX)\b(\s*[:(\[])?")


class Fate(NamedTuple):
    """The result of following a link, with the reason."""

    kind: Literal["found", "lost", "not checked"]
    reason: str = ""


FOUND = Fate("found")


def review(document: Document, base: Path | None = None) -> list[Finding]:
    """Find structural problems. Links to files are followed only with `base`, the folder of the document."""
    found = [
        *_level_jumps(document), *_duplicate_headings(document), *_empty_sections(document), *_long_sections(document),
        *_open_fences(document), *_todos(document), *_silent_images(document), *_lost_links(document, base),
    ]  # fmt: skip
    return settle(found)


def figures(document: Document, base: Path | None = None) -> dict[str, Any]:
    """The elements of the document; `not_checked` lists up to a hundred targets with line and reason."""
    fates = [(line, target, _fate(document, base, target)) for line, target in _targets(document)]
    skipped = [(line, target, fate.reason) for line, target, fate in fates if fate.kind == "not checked"]
    return {
        "lines": document.lines,
        "headings": sum(section.level > 0 for section in document.sections),
        "deepest_level": max(section.level for section in document.sections),
        "paragraphs": len(document.of_kind("paragraph")),
        "list_items": sum(bool(item.label) for item in document.of_kind("item")),
        "code_blocks": len(document.of_kind("code")),
        "tables": len(document.of_kind("table")),
        "images": sum(len(part.images) for part in document.parts),
        "links": len(fates),
        "links_followed": len(fates) - len(skipped),
        "links_lost": sum(fate.kind == "lost" for _, _, fate in fates),
        "links_not_checked": len(skipped),
        "not_checked": [
            {"line": line, "target": excerpt(target), "reason": reason} for line, target, reason in skipped[:LISTED_MAX]
        ],
    }


def _level_jumps(document: Document) -> Iterator[Finding]:
    titled = _titled(document)
    for above, section in pairwise(titled):
        if section.level > above.level + 1:
            message = (
                f"the heading jumps from level {above.level} to {section.level}; level {above.level + 1} is left out"
            )
            yield _of_section("warning", section, message)


def _duplicate_headings(document: Document) -> Iterator[Finding]:
    """The same heading twice under one parent. Under different parents it is a pattern: a changelog's Added, Fixed."""
    first_under: dict[tuple[tuple[str, ...], str], int] = {}
    path: list[tuple[int, str]] = []
    for section in _titled(document):
        while path and path[-1][0] >= section.level:
            path.pop()
        name = section.heading.casefold()
        key = (tuple(heading for _, heading in path), name)
        if name and key in first_under:
            yield _of_section("warning", section, f"the same heading stands at line {first_under[key]}")
        first_under.setdefault(key, section.line)
        path.append((section.level, name))


def _empty_sections(document: Document) -> Iterator[Finding]:
    sections = document.sections
    for number, section in enumerate(sections):
        following = sections[number + 1] if number + 1 < len(sections) else None
        has_children = following is not None and following.level > section.level
        if section.level and not section.heading and not any(part.images for part in section.parts):
            yield _of_section("warning", section, "a heading without words")
        elif section.level and not section.body and not has_children:
            yield _of_section("warning", section, "nothing follows this heading: write the section or remove it")


def _long_sections(document: Document) -> Iterator[Finding]:
    for section in document.sections:
        counted = sum(count_words(sentence.text) for part in section.body for sentence in part.sentences)
        if counted > SECTION_WORDS_MAX:
            message = f"{counted:,} words without a heading between; readers look for one every few hundred"
            yield _of_section("note", section, message)


def _open_fences(document: Document) -> Iterator[Finding]:
    for part in document.of_kind("code"):
        if not part.is_closed:
            first = part.code[0].partition("\n")[0]
            message = f"the code fence opened here is never closed; all up to line {part.end_line} reads as code"
            yield Finding(NAME, "error", part.line, message, excerpt(first))


def _todos(document: Document) -> Iterator[Finding]:
    """Find TODO marks: with a colon or at the start of a text. Elsewhere the text may only mention such marks."""
    for part in document.parts:
        for sentence in part.sentences:
            match = _TODO.search(without_code(sentence.text))
            if match is None:
                continue
            is_task = bool(match[2]) or match.start() == 0
            if is_task or match[1] != "XXX":
                severity: Severity = "warning" if is_task else "note"
                line = sentence.line_at(match.start())
                yield Finding(NAME, severity, line, f"{match[1]} left in the text", excerpt(sentence.text))


def _silent_images(document: Document) -> Iterator[Finding]:
    for part in document.parts:
        for image in part.images:
            if image.alt is None:
                message = "an image without alternative text: readers who do not see it learn nothing"
                yield Finding(NAME, "warning", image.line, message, excerpt(image.target))


def _lost_links(document: Document, base: Path | None) -> Iterator[Finding]:
    for line, target in _targets(document):
        fate = _fate(document, base, target)
        if fate.kind == "lost":
            yield Finding(NAME, "error", line, fate.reason, excerpt(target))
    for part in document.parts:
        for link in part.links:
            if link.kind == "undefined":
                message = f"the link's label “{excerpt(link.target, 60)}” is defined nowhere"
                yield Finding(NAME, "warning", link.line, message, excerpt(f"[{link.text}][{link.target}]"))


def _targets(document: Document) -> Iterator[tuple[int, str]]:
    """Line and target of every link and image once; a link by label counts where its label is defined."""
    for part in document.parts:
        for link in part.links:
            if _is_target(part, link):
                yield link.line, link.target
        for image in part.images:
            yield image.line, image.target


def _is_target(part: Part, link: Link) -> bool:
    return link.kind != "undefined" and (link.kind != "reference" or part.kind == "definition")


def _fate(document: Document, base: Path | None, target: str) -> Fate:
    if any(mark in target for mark in _TEMPLATE_MARKS):
        return Fate("not checked", "a template fills it in")
    if _SCHEME.match(target) or target.startswith("//"):
        return Fate("not checked", "no network" if target.startswith(("http:", "https:", "//")) else "no file")
    name, _, fragment = target.partition("#")
    name, fragment = unquote(name.partition("?")[0]), unquote(fragment)
    if not name:
        return _anchor_fate(document, fragment, "this document") if target else Fate("lost", "the link has no target")
    if name.startswith("/"):
        return Fate("not checked", "it starts at the root of a site")
    if _FORGE_PAGE.match(name):
        return Fate("not checked", "a page of the site that hosts the project")
    if base is None:
        return Fate("not checked", "the document's folder is not known")
    return _file_fate(base, name, fragment)


def _file_fate(base: Path, name: str, fragment: str) -> Fate:
    try:
        path = (base / name).resolve()
        # Sites made from Markdown often leave the suffix out of their links.
        if not path.exists() and not path.with_name(f"{path.name}.md").exists():
            return Fate("lost", f"the link leads nowhere: there is no {excerpt(name, 80)} beside the document")
        if not fragment or path.suffix.lower() not in _MARKDOWN:
            return FOUND
        other = _read_other(path, path.stat().st_mtime_ns)
    except InvalidInput:
        return Fate("not checked", "the file it names cannot be read as text")
    except (OSError, ValueError, RuntimeError):
        return Fate("lost", "the link leads nowhere: its target is not a possible file name")
    return _anchor_fate(other, fragment, excerpt(name, 80))


@lru_cache(maxsize=64)
def _read_other(path: Path, changed_at_ns: int) -> Document:
    return split(read_document(path))


def _anchor_fate(document: Document, fragment: str, where: str) -> Fate:
    wanted = fragment.lower().replace("\ufe0f", "").removeprefix("user-content-")
    if wanted in ("", "top") or wanted in document.slugs or fragment in document.anchors:
        return FOUND
    return Fate("lost", f"no heading of {where} has the anchor #{excerpt(fragment, 80)}")


def _titled(document: Document) -> list[Section]:
    return [section for section in document.sections if section.level]


def _of_section(severity: Severity, section: Section, message: str) -> Finding:
    return Finding(NAME, severity, section.line, message, excerpt(section.heading))
