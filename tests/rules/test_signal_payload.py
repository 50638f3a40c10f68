"""JSON input: unchanged values, locations of errors, and safety at any depth."""

from __future__ import annotations

import enum
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import InvalidInput
from heliograph.signals.json_parser import parse_json
from heliograph.signals.payload import (
    DEPTH_MAX,
    DIGITS_MAX,
    PAYLOAD_BYTES_MAX,
    VALUES_MAX,
    check_json,
    check_payload,
    cleaned,
    is_longer,
    text_bytes,
)
from heliograph.testing.kernel.jsonb import octets

LARGEST = int(sys.float_info.max)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def rejection(value: object, path: str = "") -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        check_json(value, path)
    return caught.value


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.proves("SIG-12")
@given(values, st.booleans(), st.sampled_from([None, 2]))
def test_json_written_by_python_reads_back_unchanged(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parse_json(text) == value
    assert parse_json(text.encode()) == value


@given(values)
def test_json_value_is_checked_without_being_copied(value: Any) -> None:
    assert check_json(value) is value
    assert check_payload(value) is value


@given(st.binary(max_size=20) | st.text(max_size=20) | st.text('[]{}",:\\u0d8 1e-.', max_size=20))
def test_any_text_parses_to_a_value_or_raises_invalid_input(text: str | bytes) -> None:
    try:
        value = parse_json(text)
    except InvalidInput:
        return
    assert parse_json(json.dumps(value)) == value


class Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ((1, 2), "tuple"),
        ({1}, "set"),
        (b"x", "bytes"),
        (Colour.RED, "Colour"),
        (type("Odd", (dict,), {})(), "Odd"),
        (object(), "object"),
    ],
    ids=["tuple", "set", "bytes", "enum", "subclass", "object"],
)
def test_value_that_json_returns_as_another_type_is_rejected(value: object, kind: str) -> None:
    assert (rejection(value).code, rejection(value).path) == ("wrong_type", None)
    inside = rejection({"a": [0, value]})
    assert (inside.code, inside.path) == ("wrong_type", "/a/1")
    assert kind in inside.message


def test_key_that_is_no_string_is_rejected_with_the_location_of_its_object() -> None:
    refused = rejection({"a": [{1: "x"}]})
    assert (refused.code, refused.path) == ("wrong_type", "/a/0")


@pytest.mark.parametrize(
    ("value", "code", "path"),
    [
        ({"a": {"b": [0, float("nan")]}}, "json_non_finite", "/a/b/1"),
        ({"a/b": {"c~d": float("-inf")}}, "json_non_finite", "/a~1b/c~0d"),
        ([LARGEST + 1], "number_too_large", "/0"),
        ([-LARGEST - 1], "number_too_large", "/0"),
        ([10**DIGITS_MAX], "number_too_large", "/0"),
        ([-(10**DIGITS_MAX)], "number_too_large", "/0"),
        ({"a": "x\0"}, "nul_character", "/a"),
        ({"a\0": 1}, "nul_character", "/a\\x00"),
        ({"a": "\ud800"}, "invalid_unicode", "/a"),
        ({"\udfff": 1}, "invalid_unicode", "/\\udfff"),
    ],
)
def test_error_points_to_its_value(value: object, code: str, path: str) -> None:
    refused = rejection(value)
    assert (refused.code, refused.path) == (code, path)
    assert path in refused.message


def test_path_of_the_caller_precedes_the_location() -> None:
    assert rejection({"a": float("nan")}, "/payload").path == "/payload/a"
    assert rejection(float("nan"), "/payload").path == "/payload"


@pytest.mark.parametrize("value", [nested(DEPTH_MAX), LARGEST, -LARGEST, 1.7e308, "\U0001f600"])
def test_value_at_its_limit_is_allowed(value: Any) -> None:
    assert parse_json(json.dumps(value)) == value


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 900, 100_000])
@pytest.mark.parametrize("around", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_depth_past_the_limit_is_an_error_of_the_input_at_any_depth(depth: int, around: tuple[str, str]) -> None:
    opening, closing = around
    with pytest.raises(InvalidInput) as caught:
        parse_json(opening * depth + "1" + closing * depth)
    assert caught.value.code == "json_too_deep"


def test_deeply_nested_python_value_is_rejected_without_recursion() -> None:
    assert rejection(nested(100_000)).code == "json_too_deep"


def test_self_referencing_list_is_too_deep() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert rejection(loop).code == "json_too_deep"


def test_small_value_that_unfolds_to_billions_is_rejected_by_count() -> None:
    bomb: list[object] = []
    for _ in range(DEPTH_MAX - 1):
        bomb = [bomb, bomb]
    refused = rejection(bomb)
    assert refused.code == "json_too_large"
    assert str(VALUES_MAX) in refused.message


@pytest.mark.parametrize("text", ['{"a":1,"b":2,"a":1}', '[{"a":{"x":1,"x":2}}]'])
def test_duplicate_key_is_rejected_at_any_depth_and_with_equal_values(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json(text)
    assert caught.value.code == "json_duplicate_key"


def test_syntax_error_has_offset_line_and_column() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_json('{"a": 1,\n "b": }')
    assert "offset 15 (line 2, column 7)" in caught.value.message


def test_payload_of_exactly_the_byte_limit_is_allowed_and_one_more_is_rejected() -> None:
    largest = "é" * ((PAYLOAD_BYTES_MAX - 2) // 2)  # two bytes each, and two quotes
    assert check_payload(largest) is largest
    with pytest.raises(InvalidInput) as caught:
        check_payload(largest + "x", "/payload")
    assert (caught.value.code, caught.value.path) == ("payload_too_large", "/payload")
    assert str(PAYLOAD_BYTES_MAX + 1) in caught.value.message
    assert str(PAYLOAD_BYTES_MAX) in caught.value.message


@pytest.mark.parametrize(
    "value", [None, 5, "x" * 50, [[]] * 20, {"a": ["b"] * 10}, {"a": {"b": {"c": list(range(8))}}}], ids=str
)
def test_value_reported_longer_than_the_limit_is_longer(value: Any) -> None:
    size = len(json.dumps(value, separators=(",", ":"))) + 1  # and the separator before the next item
    assert not is_longer(value, size)
    assert is_longer([value] * 2000, 3900)


def test_unstorable_characters_are_marked_and_all_others_keep_their_position() -> None:
    assert cleaned("a\0b\ud800\udfffc\ue000\ud7ff") == "a\ufffdb\ufffd\ufffdc\ue000\ud7ff"


@pytest.mark.parametrize("value", [
    1, 1.5, 1e300, 1e-7, -2.5e22, "a, b: c", "\n\t\x01\"\\é", [], {}, [1, 2, 3], {"a": 1, "bb": [1.0, {"c": None}]}, [[], {}, [True]],
], ids=repr)  # fmt: skip
def test_size_is_that_of_the_text_which_the_kernel_counts(value: Any) -> None:
    assert text_bytes(value) == octets(value)


def test_payload_is_measured_with_the_spaces_that_the_kernel_counts() -> None:
    largest = [0] * ((PAYLOAD_BYTES_MAX - 1) // 3)  # "0, " each
    assert check_payload(largest) is largest
    with pytest.raises(InvalidInput) as caught:
        check_payload([*largest, 0])
    assert caught.value.code == "payload_too_large"
