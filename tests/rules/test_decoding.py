"""The second decoder: a value that cannot be decoded affects its own row of an answer, and no other."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from heliograph.codes import UNDECODABLE
from heliograph.errors import KernelRejected
from heliograph.ledger.decoding import DEPTH_MAX, MARK, _is_shallow, _Reader, decode, holds_placeholder, read_rows
from heliograph.records import Card, PendingSignal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20,
)  # fmt: skip
HUGE = "1" + "0" * 5000


def deep(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


@given(VALUES, st.booleans())
def test_both_decoders_read_the_same_from_what_can_be_decoded(value: Any, is_ascii: bool) -> None:
    written = json.dumps(value, ensure_ascii=is_ascii)
    assert _Reader(written.encode()).read() == value
    assert decode(written) == value


@pytest.mark.proves("S22")
@pytest.mark.parametrize(
    ("poison", "why"),
    [(HUGE, "a number of 5001 digits"), (f"-{HUGE}.5", "a number of"), ("9" * 400 + ".5", "a number of 402 digits"),
     (deep(2000), "over 200 containers"), (deep(100_000), "over 200 containers"),
     ('{"a":' * 2000 + "1" + "}" * 2000, "over 200 containers")],
    ids=["integer", "fraction", "beyond a double", "deep", "very deep", "deep object"],
)  # fmt: skip
def test_undecodable_value_spoils_only_its_row_which_has_its_location(poison: str, why: str) -> None:
    rows = decode(f'[{{"id": 1, "state": {{"a": 1}}}}, {{"id": 2, "state": {{"a": [0, {poison}]}}}}, {{"id": 3}}]')
    assert rows[0] == {"id": 1, "state": {"a": 1}}
    assert rows[2] == {"id": 3}
    assert rows[1][MARK].startswith("state/a/1")
    assert why in rows[1][MARK]
    assert holds_placeholder(rows[1]["state"])
    assert not holds_placeholder(rows[0])


@pytest.mark.parametrize("answer", [HUGE, f"[{HUGE}]", f'{{"n": {HUGE}}}', deep(5000)])
def test_answer_of_any_shape_is_decoded(answer: str) -> None:
    assert holds_placeholder(decode(answer))


def test_rows_after_a_value_nested_too_deep_are_read() -> None:
    first, second = decode(f'[{{"id": 1, "x": [{deep(300)}, 5, {HUGE}], "y": 6}}, {{"id": 2}}]')
    assert (first["id"], first["x"][1], first["x"][2][MARK][:8], first["y"], second) == (1, 5, "a number", 6, {"id": 2})
    assert "over 200 containers" in first[MARK]


def test_brackets_in_texts_do_not_make_an_answer_deep() -> None:
    for text in ("[" * 5000, "]" * 5000, "[]" * 5000, '"[' * 5000, "\\[" * 5000):
        assert decode(json.dumps([{"text": text}])) == [{"text": text}]


@given(st.integers(1, 3 * DEPTH_MAX))
def test_answer_judged_shallow_is_shallow(levels: int) -> None:
    assert not _is_shallow(deep(levels).encode()) or levels <= DEPTH_MAX


@pytest.mark.proves("S22")
def test_unreadable_row_raises_an_error_that_names_it() -> None:
    answer = (
        f'[{{"seq": 1, "name": "a", "payload": {HUGE}, "turn_id": "turn_1"}}, {{"seq": 2, "name": "b", "payload": 2}}]'
    )
    spoiled, whole = read_rows(decode(answer), PendingSignal)
    assert isinstance(spoiled, KernelRejected)
    assert (spoiled.code, spoiled.message) == (
        UNDECODABLE, "turn_1 cannot be decoded: payload is a number of 5001 digits")  # fmt: skip
    assert whole == PendingSignal(2, "b", 2)


def test_row_of_the_wrong_type_raises_an_error_that_names_it() -> None:
    card = {"card_id": "card_1", "kind": "note", "content": 1, "position": 1, "created_at": "2030-01-01T00:00:00Z"}
    whole, spoiled = read_rows([card, {**card, "card_id": "card_2", "position": "first"}], Card)
    assert isinstance(whole, Card)
    assert isinstance(spoiled, KernelRejected)
    assert "card_2" in spoiled.message
