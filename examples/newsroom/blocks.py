"""Cut a text into Markdown blocks, one pass over its lines.

Plain text is Markdown without marks, so it needs no path of its own. Where
Markdown implementations differ this follows what GitHub shows. A block's text
has exactly one line for each source line from `line` on, so that places inside
it can be found again; quote and list marks are gone from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

BlockKind = Literal["heading", "paragraph", "item", "quote", "footnote", "definition", "code", "table", "html"]


@dataclass(frozen=True, slots=True)
class Block:
    """`level` is a heading's 1-6. `label` is a code block's language, the name of a footnote or a definition, or
    the mark of a list item: an item's further paragraphs are items without one.
    """

    kind: BlockKind
    line: int
    end_line: int
    text: str
    level: int = 0
    label: str = ""
    is_closed: bool = True


_FENCE = re.compile(r"([ \t]*)(`{3,}+(?=[^`]*$)|~{3,}+)\s*(\S*)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_RULE = re.compile(r" {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$")
_ITEM = re.compile(r"([ \t]*)([-*+]|\d{1,9}[.)])(?:([ \t]+)(?=\S)|[ \t]*$)")
_TASK = re.compile(r"\[[ xX]\](?=\s)")
_QUOTE = re.compile(r"(?: {0,3}> ?)++")
_ALERT = re.compile(r"\[!\w+\][ \t]*$")
_DEFINITION = re.compile(r" {0,3}\[(\^?)([^\[\]]+)\]:[ \t]*(<[^<>]*>|\S*)")
_HTML_HEADING = re.compile(r" {0,3}<h([1-6])\b[^<>]*>(.*)</h\1>\s*$", re.IGNORECASE)
_HTML = re.compile(
    r" {0,3}</?(?:address|article|aside|blockquote|body|br|center|dd|details|div|dl|dt|figcaption|figure|footer|form"
    r"|h[1-6]|header|hr|iframe|li|main|nav|ol|p|picture|section|source|summary|table|tbody|td|tfoot|th|thead|tr|ul"
    r"|video)(?=[\s/>]|$)",
    re.IGNORECASE,
)
_RAW_HTML = re.compile(r" {0,3}<(pre|script|style)(?=[\s>]|$)", re.IGNORECASE)
_MATTER_LINES_MAX = 200


def blocks(text: str) -> list[Block]:
    """Return the blocks of a text in order. Accepts all line endings, and skips front matter after a first line `---`."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    first = _after_front_matter(lines)
    is_marked = any(_HEADING.match(line) or _FENCE.match(line) or "](" in line or "`" in line for line in lines)
    return _Reader(lines[first:], first + 1, indent_is_code=is_marked).read()


def _after_front_matter(lines: list[str]) -> int:
    """Count the lines of front matter. Its second line must look like a setting; otherwise `---` is a horizontal rule."""
    mark = lines[0].rstrip()
    if mark not in ("---", "+++") or len(lines) < 3 or not re.match(r"[\w\"-]+\s*[:=]", lines[1]):
        return 0
    for number, line in enumerate(lines[1:_MATTER_LINES_MAX], start=1):
        if line.rstrip() in (mark, "..."):
            return number + 1
    return 0


@dataclass(slots=True)
class _Reader:
    """Read `lines`, which start at line `base` of the document; `is_quote` if they stood behind `>`.

    In a text without any Markdown mark, indentation is layout and not code, as in licences and RFCs.
    """

    lines: list[str]
    base: int
    is_quote: bool = False
    indent_is_code: bool = True
    found: list[Block] = field(default_factory=list)
    open_kind: BlockKind | None = None
    open_label: str = ""
    open_lines: list[str] = field(default_factory=list)
    open_at: int = 0
    in_list: bool = False
    item_column: int = 0

    def read(self) -> list[Block]:
        number = 0
        while number < len(self.lines):
            number = self._step(number)
        self._close(number)
        return self.found

    def _step(self, number: int) -> int:
        """Read the block that starts at this line; return the first line after it."""
        line = self.lines[number]
        if not line.strip():
            self._close(number)
            return number + 1
        if self.in_list and self.open_kind is None and line[0] not in " \t" and not _ITEM.match(line):
            self.in_list, self.item_column = False, 0
        for take in (
            self._take_fence, self._take_indented_code, self._take_heading, self._take_underline, self._take_rule,
            self._take_quote, self._take_comment, self._take_html, self._take_table, self._take_definition,
            self._take_item,
        ):  # fmt: skip
            after = take(number, line)
            if after is not None:
                return after
        self._continue_block(number, line)
        return number + 1

    def _emit(
        self,
        kind: BlockKind,
        start: int,
        end: int,
        text: str,
        *,
        level: int = 0,
        label: str = "",
        is_closed: bool = True,
    ) -> int:
        """Add the block of lines start..end-1 after closing the open block; return `end`."""
        self._close(start)
        self.found.append(Block(kind, self.base + start, self.base + end - 1, text, level, label, is_closed))
        return end

    def _close(self, number: int) -> None:
        if self.open_kind is not None:
            kind, text = self.open_kind, "\n".join(self.open_lines)
            self.open_kind, self.open_lines = None, []
            end = self.base + number - 1
            self.found.append(Block(kind, self.base + self.open_at, end, text, label=self.open_label))
            self.open_label = ""

    def _open(self, kind: BlockKind, number: int, text: str, label: str = "") -> None:
        self._close(number)
        self.open_kind, self.open_at, self.open_lines, self.open_label = kind, number, [text], label

    def _continue_block(self, number: int, line: str) -> None:
        """Add a line of plain words to the open block, or open a paragraph."""
        if self.open_kind is not None:
            self.open_lines.append(line.strip())
        elif self.is_quote:
            self._open("quote", number, "" if _ALERT.match(line) else line.strip())
        else:
            self._open("item" if self.in_list else "paragraph", number, line.strip())

    def _take_fence(self, number: int, line: str) -> int | None:
        match = _FENCE.match(line)
        if match is None or (_column(match[1]) > 3 and not self.in_list):
            return None
        column = _column(match[1])
        # A fence inside a list item ends with the item: the first line further left than the item's text.
        floor = min(column, self.item_column) if self.in_list else 0
        end, is_closed = self._find_fence_end(number + 1, match[2], floor)
        body = "\n".join(self.lines[number + 1 : end - is_closed])
        return self._emit("code", number, end, body, label=match[3], is_closed=is_closed)

    def _find_fence_end(self, number: int, mark: str, floor: int) -> tuple[int, bool]:
        for at in range(number, len(self.lines)):
            bare = self.lines[at].strip()
            if len(bare) >= len(mark) and bare[0] == mark[0] and not bare.strip(mark[0]):
                return at + 1, True
            if floor and bare and _column(self.lines[at]) < floor:
                return at, False
        return len(self.lines), False

    def _take_indented_code(self, number: int, line: str) -> int | None:
        if not self.indent_is_code or self.open_kind is not None or self.in_list or _column(line) < 4:
            return None
        end = last = number
        while end < len(self.lines) and (not self.lines[end].strip() or _column(self.lines[end]) >= 4):
            last = end if self.lines[end].strip() else last
            end += 1
        return self._emit("code", number, last + 1, "\n".join(self.lines[number : last + 1]))

    def _take_heading(self, number: int, line: str) -> int | None:
        if match := _HTML_HEADING.match(line):
            return self._emit("heading", number, number + 1, match[2], level=int(match[1]))
        match = _HEADING.match(line)
        if match is None:
            return None
        text = line[match.end() :].strip()
        bare = text.rstrip("#")
        text = bare.rstrip() if not bare or bare[-1] in " \t" else text
        return self._emit("heading", number, number + 1, text, level=len(match[1]))

    def _take_underline(self, number: int, line: str) -> int | None:
        match = _UNDERLINE.match(line)
        if match is None or self.open_kind != "paragraph":
            return None
        start, text = self.open_at, "\n".join(self.open_lines)
        self.open_kind, self.open_lines = None, []
        return self._emit("heading", start, number + 1, text, level=1 if match[1][0] == "=" else 2)

    def _take_rule(self, number: int, line: str) -> int | None:
        if not _RULE.match(line) and not line.startswith(":::"):
            return None
        self._close(number)
        return number + 1

    def _take_quote(self, number: int, line: str) -> int | None:
        if not _QUOTE.match(line):
            return None
        self._close(number)
        end = number
        while end < len(self.lines) and _QUOTE.match(self.lines[end]):
            end += 1
        # All marks go at once: a quote in a quote is still a quote, and no depth can make this recurse twice.
        inner = [_QUOTE.sub("", quoted, count=1) for quoted in self.lines[number:end]]
        self.found += _Reader(inner, self.base + number, is_quote=True).read()
        return end

    def _take_comment(self, number: int, line: str) -> int | None:
        if not line.lstrip().startswith("<!--"):
            return None
        for end in range(number, len(self.lines)):
            if "-->" in self.lines[end]:
                rest = self.lines[end].partition("-->")[2]
                return self._emit("html", number, end + 1, "\n" * (end - number) + rest)
        return self._emit("html", number, len(self.lines), "")

    def _take_html(self, number: int, line: str) -> int | None:
        raw = _RAW_HTML.match(line)
        if raw is None and not _HTML.match(line):
            return None
        end = number + 1
        if raw is not None:
            closing = f"</{raw[1].lower()}>"
            while end < len(self.lines) and closing not in self.lines[end - 1].lower():
                end += 1
            return self._emit("code", number, end, "\n".join(self.lines[number:end]), label="html")
        while end < len(self.lines) and self.lines[end].strip():
            end += 1
        return self._emit("html", number, end, "\n".join(self.lines[number:end]))

    def _take_table(self, number: int, line: str) -> int | None:
        if "|" not in line or number + 1 >= len(self.lines) or not _is_delimiter(self.lines[number + 1]):
            return None
        end = number + 2
        while end < len(self.lines) and self.lines[end].strip() and not _FENCE.match(self.lines[end]):
            end += 1
        return self._emit("table", number, end, "\n".join(self.lines[number:end]))

    def _take_definition(self, number: int, line: str) -> int | None:
        match = _DEFINITION.match(line)
        if match is None or (self.open_kind not in (None, "definition", "footnote")):
            return None
        if match[1]:
            self._open("footnote", number, line[match.start(3) :], match[2])
            self.in_list, self.item_column = True, 4  # its further paragraphs are indented, as an item's are
            return number + 1
        return self._emit("definition", number, number + 1, match[3], label=match[2])

    def _take_item(self, number: int, line: str) -> int | None:
        match = _ITEM.match(line)
        if match is None or (_column(match[1]) > 3 and not self.in_list):
            return None
        # A wrapped line may begin with "2024." or "- "; a number inside a paragraph starts a list only when it is 1.
        if self.open_kind == "paragraph" and match[2][0].isdigit() and match[2][:-1] != "1":
            return None
        self._close(number)
        self.in_list, self.item_column = True, len(line[: match.end()][:400].expandtabs(4)) + (not match[3])
        rest = line[match.end() :]
        if _FENCE.match(rest):
            self.lines[number] = " " * self.item_column + rest
            return number
        self._open("item", number, _TASK.sub("", rest, count=1).strip(), match[2])
        return number + 1


def _column(line: str) -> int:
    """The column of the first character that is not white space; a tab reaches to the next multiple of four."""
    expanded = line[:400].expandtabs(4)
    return len(expanded) - len(expanded.lstrip())


def _is_delimiter(line: str) -> bool:
    return "|" in line and "-" in line and not line.strip(" \t|:-")
