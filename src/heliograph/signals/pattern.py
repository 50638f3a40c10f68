"""Patterns over signal names, such as `agent:*`, `harness:**` and `*:complete`.

A pattern consists of segments joined by ':'. A literal segment matches itself, `*` matches exactly one segment, and `**` matches
zero or more. No segment of a name is empty, so no pattern matches `agent:` or the empty text.

At most two `**` divide a pattern into a head, a middle and a tail. The head matches the start of a name, and the tail its end.
Only the middle has to be searched for, and its leftmost match is as good as any other. One pass over the name is therefore enough,
with at most as many comparisons per position as the middle has segments.
"""

# Requirements: SIG-50..SIG-52, G-40, G-41.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, Rejected
from heliograph.signals.names import CHARACTERS, LENGTH_MAX, SEGMENTS_MAX, describe_character

ONE = "*"
MANY = "**"
MANY_MAX = 2
CACHED_MAX = 4096


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern, made by `compile_pattern`.

    head, middle, tail: the segments before, between and after the `**`. Without a `**`, the head has all segments and the tail
    is None; with one `**`, the middle is empty.
    """

    text: str
    is_exact: bool
    head: tuple[str, ...]
    middle: tuple[str, ...] = ()
    tail: tuple[str, ...] | None = None

    def matches(self, name: str) -> bool:
        """Whether the pattern matches a signal name. It does not check that `name` is one."""
        if self.is_exact:
            return name == self.text
        return self.matches_segments(name.split(":"))

    def matches_segments(self, segments: Sequence[str]) -> bool:
        """Whether a name matches that is already split at its colons."""
        if "" in segments:
            return False
        head, middle, tail = self.head, self.middle, self.tail
        if tail is None:
            return len(segments) == len(head) and _matches_at(head, segments, 0)
        start, stop = len(head), len(segments) - len(tail)
        if stop - start < len(middle) or not _matches_at(head, segments, 0) or not _matches_at(tail, segments, stop):
            return False
        return _is_within(middle, segments, start, stop)


def compile_pattern(text: str) -> Pattern:
    """Compile a pattern; compiled patterns are cached by their text.

    Raises InvalidInput: wrong_type, empty_pattern, invalid_character (with code point and position), invalid_wildcard,
    pattern_too_complex, invalid_pattern.
    """
    if not isinstance(text, str):
        raise InvalidInput(f"a pattern must be a string, not {type(text).__name__}", code="wrong_type")
    return _compile(text)


@lru_cache(maxsize=CACHED_MAX)
def _compile(text: str) -> Pattern:
    _check_text(text)
    segments = tuple(text.split(":"))
    for segment in segments:
        _check_segment(segment, text)
    if segments.count(MANY) > MANY_MAX or len(segments) > SEGMENTS_MAX or len(text) > LENGTH_MAX:
        raise InvalidInput(
            f"'{safe_repr(text)}' is too complex: a pattern has at most {MANY_MAX} {MANY}, {SEGMENTS_MAX} segments "
            f"and {LENGTH_MAX} characters; use several patterns",
            code="pattern_too_complex",
        )
    runs = _split_at_many(segments)
    if len(runs) == 1:
        return Pattern(text, is_exact=ONE not in segments, head=runs[0])
    middle = runs[1] if len(runs) == MANY_MAX + 1 else ()
    return Pattern(text, is_exact=False, head=runs[0], middle=middle, tail=runs[-1])


def check_agent_pattern(text: str) -> Pattern:
    """Compile a pattern of an agent's subscription: beside a `**`, it needs a literal segment.

    An agent that subscribed to every signal would activate itself without end. Raises the errors of `compile_pattern`, and
    Rejected (pattern_too_broad).
    """
    pattern = compile_pattern(text)
    segments = text.split(":")
    if MANY in segments and set(segments) <= {ONE, MANY}:
        raise Rejected(
            f"'{text}' matches too many signals for an agent; add a literal segment, for example 'agent:{MANY}'",
            code="pattern_too_broad",
        )
    return pattern


def _matches_at(run: tuple[str, ...], segments: Sequence[str], at: int) -> bool:
    """Whether `run`, which contains no `**`, matches the segments from `at` on. There are at least as many segments."""
    for offset, part in enumerate(run):  # noqa: SIM110 - `all` over a generator doubles the time of a match
        if part != ONE and segments[at + offset] != part:
            return False
    return True


def _is_within(run: tuple[str, ...], segments: Sequence[str], start: int, stop: int) -> bool:
    """Whether `run` matches somewhere in segments[start:stop], which is at least as long."""
    anchor = next((offset for offset, part in enumerate(run) if part != ONE), None)
    if anchor is None:
        return True
    at, last = start, stop - len(run)
    while at <= last:
        try:  # `index` finds the next candidate far faster than a loop over all positions
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
        raise InvalidInput(
            "a pattern is empty; write a signal name, or a pattern such as 'agent:*'", code="empty_pattern"
        )
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
