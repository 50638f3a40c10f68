"""Patterns over signal names: `agent:*`, `harness:**`, `*:complete`. Source: SIG-50..SIG-52, G-40, G-41.

A pattern is segments joined by ':'. A segment matches itself, `*` matches exactly one
segment, `**` matches zero or more. A segment is never empty, so `agent:` and the
empty text are no names and nothing matches them.

Two `**` at most cut a pattern into a head, a middle and a tail. The head lies at the
start of a name and the tail at its end; only the middle is searched for, and the
leftmost place it fits is as good as any. A match is thus linear in the name, whatever
the name: at most one pass, with at most as many comparisons per place as the middle is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Generic, TypeVar

from heliograph.errors import InvalidInput, Rejected, safe_repr
from heliograph.signals.names import CHARACTERS, LENGTH_MAX, SEGMENTS_MAX, describe_character

ONE = "*"
MANY = "**"
MANY_MAX = 2
MEMO_MAX = 4096
NAMES_LISTED_MAX = 20

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern; `compile_pattern` makes it.

    head, middle, tail: the runs of segments around the `**`. Without a `**` the head is all
    there is and the tail is None; with one `**` the middle is empty.
    """

    text: str
    is_exact: bool
    head: tuple[str, ...]
    middle: tuple[str, ...] = ()
    tail: tuple[str, ...] | None = None

    def matches(self, name: str) -> bool:
        if self.is_exact:
            return name == self.text
        return self.matches_segments(name.split(":"))

    def matches_segments(self, segments: Sequence[str]) -> bool:
        """Whether a name of these segments matches; `matches` without the splitting."""
        if "" in segments:
            return False
        head, middle, tail = self.head, self.middle, self.tail
        if tail is None:
            return len(segments) == len(head) and _matches_at(head, segments, 0)
        start, stop = len(head), len(segments) - len(tail)
        if stop - start < len(middle) or not _matches_at(head, segments, 0) or not _matches_at(tail, segments, stop):
            return False
        return _is_within(middle, segments, start, stop)


class PatternTable(Generic[V]):
    """Many patterns, each with a value, matched together.

    The patterns share a trie of segments; the answers for names seen before come from a
    memo, which is emptied when it is full or a pattern is added. The names of a system
    are few as long as ids stay in payloads.
    """

    def __init__(self, pairs: Iterable[tuple[Pattern | str, V]] = ()) -> None:
        self._root: _Node[V] = _Node()
        self._size = 0
        self._memo: dict[str, tuple[V, ...]] = {}
        for pattern, value in pairs:
            self.add(pattern, value)

    def __len__(self) -> int:
        return self._size

    def add(self, pattern: Pattern | str, value: V) -> None:
        """Add a pair; a pattern may be there before, and so may a value. Raises what `compile_pattern` raises."""
        compiled = compile_pattern(pattern) if isinstance(pattern, str) else pattern
        node = self._root
        for segment in compiled.text.split(":"):
            node = node.grow(segment)
        node.entries.append((self._size, value))
        self._size += 1
        self._memo.clear()

    def match(self, name: str) -> tuple[V, ...]:
        """The values of the patterns that match, in the order of their adding; a value added twice comes twice."""
        found = self._memo.get(name)
        if found is None:
            found = self._search(name)
            if len(self._memo) >= MEMO_MAX:
                self._memo.clear()
            if len(name) <= LENGTH_MAX:  # longer ones are no names; they must not fill the memory
                self._memo[name] = found
        return found

    def _search(self, name: str) -> tuple[V, ...]:
        """Follow all paths of the trie at once, so that no part of the name is looked at twice."""
        segments = name.split(":")
        if "" in segments:
            return ()
        nodes = _with_many({self._root})
        for segment in segments:
            reached: set[_Node[V]] = set()
            for node in nodes:
                if node.is_many:
                    reached.add(node)
                if node.one is not None:
                    reached.add(node.one)
                child = node.literal.get(segment)
                if child is not None:
                    reached.add(child)
            nodes = _with_many(reached)
        entries = [entry for node in nodes for entry in node.entries]
        return tuple(value for _, value in sorted(entries, key=lambda entry: entry[0]))


def compile_pattern(text: str) -> Pattern:
    """The pattern that `text` writes; the same text gives the same pattern without compiling again.

    Raises InvalidInput: wrong_type, empty_pattern, invalid_character (with code point and
    position), invalid_wildcard, pattern_too_complex, invalid_pattern.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"a pattern is a string, not {type(text).__name__}", code="wrong_type")
    return _compile(text)


@lru_cache(maxsize=MEMO_MAX)
def _compile(text: str) -> Pattern:
    _check_text(text)
    segments = tuple(text.split(":"))
    for segment in segments:
        _check_segment(segment, text)
    if segments.count(MANY) > MANY_MAX or len(segments) > SEGMENTS_MAX or len(text) > LENGTH_MAX:
        raise InvalidInput(
            f"'{safe_repr(text)}' is too complex: at most {MANY_MAX} times {MANY}, {SEGMENTS_MAX} segments "
            f"and {LENGTH_MAX} characters; use several patterns",
            code="pattern_too_complex",
        )
    runs = _split_at_many(segments)
    if len(runs) == 1:
        return Pattern(text, is_exact=ONE not in segments, head=runs[0])
    middle = runs[1] if len(runs) == MANY_MAX + 1 else ()
    return Pattern(text, is_exact=False, head=runs[0], middle=middle, tail=runs[-1])


def check_agent_pattern(text: str) -> Pattern:
    """`compile_pattern` for what an agent may listen to: a `**` needs a segment of letters beside it.

    An agent that hears every signal is woken by its own. Raises also Rejected (pattern_too_broad).
    """
    pattern = compile_pattern(text)
    segments = text.split(":")
    if MANY in segments and set(segments) <= {ONE, MANY}:
        raise Rejected(
            f"'{text}' matches too much for an agent; name a segment, such as 'agent:{MANY}'",
            code="pattern_too_broad",
        )
    return pattern


def warn_unmatchable(
    patterns: Iterable[Pattern | str], emitted_names: Iterable[str], runtime_names: Iterable[str] = ()
) -> list[str]:
    """A warning for each pattern that none of the names matches; in the order of the patterns.

    The nearest name comes first, then the emitted names; those of the runtime are not listed.
    """
    emitted = sorted(set(emitted_names))
    names = sorted({*emitted, *runtime_names})
    listed = ", ".join(emitted[:NAMES_LISTED_MAX]) or "none"
    if len(emitted) > NAMES_LISTED_MAX:
        listed += f" and {len(emitted) - NAMES_LISTED_MAX} more"
    warnings = []
    for item in patterns:
        pattern = compile_pattern(item) if isinstance(item, str) else item
        if not any(pattern.matches(name) for name in names):
            warnings.append(f"pattern_matches_nothing: '{pattern.text}' matches no signal; "
                            f"{_did_you_mean(pattern.text, names)}emitted are: {listed}")  # fmt: skip
    return warnings


def warn_unsubscribed(emitted: Iterable[tuple[str, str]], patterns: Iterable[Pattern | str]) -> list[str]:
    """A warning for each pair (agent, emitted name) that no pattern matches; in their order."""
    compiled = [compile_pattern(item) if isinstance(item, str) else item for item in patterns]
    return [
        f"nothing_subscribes: agent {agent} emits '{name}', and no agent is activated by it"
        f"{near.rstrip() if (near := _did_you_mean(name, [p.text for p in compiled], '; ')) else ''}"
        for agent, name in emitted
        if not any(pattern.matches(name) for pattern in compiled)
    ]  # fmt: skip


def _did_you_mean(text: str, names: Sequence[str], before: str = "") -> str:
    near = get_close_matches(text, names, 1)
    return f"{before}did you mean {near[0]}? " if near else ""


class _Node(Generic[V]):
    """A place in the trie. `is_many`: reached by `**`, so it stays reached over any further segment."""

    __slots__ = ("entries", "is_many", "literal", "many", "one")

    def __init__(self, *, is_many: bool = False) -> None:
        self.literal: dict[str, _Node[V]] = {}
        self.one: _Node[V] | None = None
        self.many: _Node[V] | None = None
        self.is_many = is_many
        self.entries: list[tuple[int, V]] = []

    def grow(self, segment: str) -> _Node[V]:
        """The child for a segment of a pattern, made when it is not there."""
        if segment == MANY:
            self.many = self.many or _Node(is_many=True)
            return self.many
        if segment == ONE:
            self.one = self.one or _Node()
            return self.one
        return self.literal.setdefault(segment, _Node())


def _with_many(nodes: set[_Node[V]]) -> set[_Node[V]]:
    """`nodes`, and what a `**` of no segments reaches from them."""
    for node in list(nodes):
        many = node.many
        while many is not None:
            nodes.add(many)
            many = many.many
    return nodes


def _matches_at(run: tuple[str, ...], segments: Sequence[str], at: int) -> bool:
    """Whether `run`, which has no `**`, matches the segments from `at` on; they are long enough."""
    for offset, part in enumerate(run):  # noqa: SIM110 - `all` over a generator doubles the price of a match
        if part != ONE and segments[at + offset] != part:
            return False
    return True


def _is_within(run: tuple[str, ...], segments: Sequence[str], start: int, stop: int) -> bool:
    """Whether `run` matches somewhere in segments[start:stop], which is long enough for it."""
    anchor = next((offset for offset, part in enumerate(run) if part != ONE), None)
    if anchor is None:
        return True
    at, last = start, stop - len(run)
    while at <= last:
        try:  # `index` looks for the first literal far faster than a loop tries places
            at = segments.index(run[anchor], at + anchor, last + anchor + 1) - anchor
        except ValueError:
            return False
        if _matches_at(run, segments, at):
            return True
        at += 1
    return False


def _split_at_many(segments: tuple[str, ...]) -> list[tuple[str, ...]]:
    runs: list[list[str]] = [[]]
    for segment in segments:
        if segment == MANY:
            runs.append([])
        else:
            runs[-1].append(segment)
    return [tuple(run) for run in runs]


def _check_text(text: str) -> None:
    if not text:
        raise InvalidInput("a pattern is empty; write a name, or 'agent:*'", code="empty_pattern")
    for position, character in enumerate(text):
        if character not in CHARACTERS and character not in (":", ONE):
            raise InvalidInput(
                f"'{safe_repr(text)}' has {describe_character(text, position)}; "
                "a pattern has letters A-Z a-z, digits, '_', '-', '.', ':' and '*'",
                code="invalid_character",
            )


def _check_segment(segment: str, text: str) -> None:
    if not segment:
        raise InvalidInput(
            f"'{safe_repr(text)}' has an empty segment; write one or more characters before, between and after each ':'",
            code="invalid_pattern",
        )
    if ONE in segment and segment not in (ONE, MANY):
        raise InvalidInput(
            f"'{safe_repr(segment)}' in '{safe_repr(text)}': a * must be a whole segment; "
            "* stands for one segment, ** for any number of them",
            code="invalid_wildcard",
        )
