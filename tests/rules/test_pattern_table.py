"""Many patterns together: the same matches as one by one, in order, with a bounded memo."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.errors import InvalidInput
from heliograph.signals.names import LENGTH_MAX
from heliograph.signals.pattern import compile_pattern
from heliograph.signals.pattern_table import CACHED_MAX, PatternTable
from tests.rules.test_pattern import names, patterns


@pytest.mark.proves("G-41")
@given(st.lists(patterns, max_size=12), st.lists(names | st.sampled_from(["", "a:", "*", "**"]), max_size=4))
@example(["**:**", "**", "**:a", "a:**", "*"], ["a", "a:a", ""])
def test_table_matches_like_its_patterns_one_by_one_in_insertion_order(texts: list[str], queried: list[str]) -> None:
    table = PatternTable(zip(texts, range(len(texts)), strict=True))
    for name in queried * 2:  # the second time from the memo
        expected = [number for number, text in enumerate(texts) if compile_pattern(text).matches(name)]
        assert list(table.match(name)) == expected
    assert len(table) == len(texts)


@pytest.mark.proves("SIG-40", "SIG-42")
def test_any_of_several_patterns_of_one_value_matches_and_each_is_answered() -> None:
    table = PatternTable([("analysis:complete", "writer"), ("review:done", "writer"), ("*:done", "writer")])
    assert table.match("analysis:complete") == ("writer",)
    assert table.match("review:done") == ("writer", "writer")
    assert table.match("other") == ()


def test_pattern_added_later_matches_names_seen_before() -> None:
    table: PatternTable[int] = PatternTable()
    assert table.match("a:b") == ()
    table.add(compile_pattern("a:*"), 1)
    assert table.match("a:b") == (1,)
    table.add("a:b", 2)
    assert table.match("a:b") == (1, 2)


def test_malformed_pattern_is_rejected_and_does_not_change_the_table() -> None:
    table = PatternTable([("a:*", 1)])
    with pytest.raises(InvalidInput):
        table.add("a:*b", 2)
    assert (len(table), table.match("a:xb")) == (1, (1,))


def test_repeated_name_returns_the_same_tuple() -> None:
    table = PatternTable([("a:*", 1)])
    assert table.match("a:b") is table.match("a:b")


def test_memo_is_capped_and_stores_no_name_past_the_name_limit() -> None:
    table = PatternTable([("**", 1)])
    for number in range(CACHED_MAX + 10):
        table.match(f"n:{number}")
    assert len(table._cache) == 10
    assert table.match("a" * (LENGTH_MAX + 1)) == (1,)
    assert len(table._cache) == 10
