"""Patterns, player and snapshots behave as the reference implementation's tests expect, except where a row says why not."""

from __future__ import annotations

import re

import pytest

from heliograph.errors import InvalidInput
from heliograph.signals.names import check_emit_name
from heliograph.signals.pattern import compile_pattern
from heliograph.signals.pattern_table import PatternTable
from tests.rules.reference_behaviour import (
    NO_EMPTY_SEGMENT,
    PATTERNS,
    PLAYER,
    SEVERAL,
    SNAPSHOTS,
    PatternRow,
    Row,
)


@pytest.mark.parametrize("row", PATTERNS, ids=lambda row: f"{row.pattern} {row.name}")
def test_pattern_matches_as_in_the_reference_implementation(row: PatternRow) -> None:
    if row.rejected:
        with pytest.raises(InvalidInput) as caught:
            compile_pattern(row.pattern)
        assert caught.value.code == row.rejected
        return
    pattern, table = compile_pattern(row.pattern), PatternTable[int]()
    table.add(row.pattern, 1)
    expected = row.reference is not bool(row.why)
    assert (pattern.matches(row.name), bool(table.match(row.name))) == (expected, expected)
    if row.why == NO_EMPTY_SEGMENT:
        with pytest.raises(InvalidInput):
            check_emit_name(row.name)


def test_regular_expression_is_no_pattern() -> None:
    with pytest.raises(InvalidInput) as caught:
        compile_pattern(re.compile(r"^custom.*pattern$"))  # type: ignore[arg-type]
    assert caught.value.code == "wrong_type"


@pytest.mark.parametrize(("patterns", "name", "expected"), SEVERAL)
def test_one_of_several_patterns_is_enough(patterns: list[str], name: str, *, expected: bool) -> None:
    table = PatternTable[int]()
    for number, pattern in enumerate(patterns):
        table.add(pattern, number)
    assert bool(table.match(name)) is expected


@pytest.mark.parametrize("row", [*PLAYER, *SNAPSHOTS], ids=lambda row: row.case)
def test_player_and_snapshot_are_as_in_the_reference_implementation(row: Row) -> None:
    assert row.observe() == row.expected


def test_each_row_that_differs_has_another_value_than_the_reference_implementation() -> None:
    for row in (*PLAYER, *SNAPSHOTS):
        assert (row.ours != row.reference) if row.why else (row.ours is None), row.case
