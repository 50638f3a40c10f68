"""Names: the grammar, and the reserved names. test_signal_bad_input.py has the rejected ones."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.errors import InvalidInput, Rejected
from heliograph.signals.names import (
    CONTROL_NAMES,
    LENGTH_MAX,
    RESERVED_FIRST_SEGMENTS,
    RESERVED_NAMES,
    SEGMENTS_MAX,
    check_emit_name,
    check_name,
)

segments = st.text("abzAZ09_-.", min_size=1, max_size=11)
names = st.lists(segments, min_size=1, max_size=SEGMENTS_MAX).map(":".join)


@given(names)
def test_valid_segments_joined_by_colons_form_a_name(name: str) -> None:
    assert check_name(name) is name


@pytest.mark.proves("SIG-11")
@given(st.text("ab:.*_- \nA：é", max_size=12) | st.text(max_size=8))
@example("a\n")
@example("a:b\n")
def test_text_is_a_name_exactly_when_all_its_segments_are_valid(text: str) -> None:
    # Written another way than the code: segment by segment, \Z and no $.
    is_name = all(re.match(r"[a-zA-Z0-9_.-]+\Z", segment) for segment in text.split(":"))
    try:
        check_name(text)
    except InvalidInput:
        assert not is_name
    else:
        assert is_name


@pytest.mark.parametrize("name", ["a" * LENGTH_MAX, ":".join("a" * SEGMENTS_MAX)], ids=["length", "segments"])
def test_value_at_its_limit_is_allowed(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["a" * (LENGTH_MAX + 1), ":".join("a" * (SEGMENTS_MAX + 1))], ids=["length", "segments"]
)
def test_name_one_past_a_limit_is_rejected(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_name(name)
    assert caught.value.code == "invalid_signal_name"


@pytest.mark.proves("SIG-35")
@pytest.mark.parametrize("name", ["analysis:complete", "review", "ready:set", "my:error", "workflows:start", "Agent:a"])
def test_custom_name_may_be_emitted_even_if_it_resembles_a_reserved_one(name: str) -> None:
    assert check_emit_name(name) == name


@pytest.mark.parametrize("first", sorted(RESERVED_FIRST_SEGMENTS))
def test_reserved_first_segment_is_rejected_with_and_without_a_tail(first: str) -> None:
    for name in (first, f"{first}:x", f"{first}:x:y"):
        assert check_name(name) == name
        with pytest.raises(Rejected) as caught:
            check_emit_name(name)
        assert caught.value.code == "reserved_name"


@pytest.mark.proves("G-14")
@pytest.mark.parametrize("name", sorted(CONTROL_NAMES))
def test_types_of_control_signals_are_reserved_with_the_reason(name: str) -> None:
    with pytest.raises(Rejected, match=f"'{name}' is reserved for control signals, which other systems obey"):
        check_emit_name(name)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_lifecycle_word_is_rejected_only_as_a_whole_name(name: str) -> None:
    with pytest.raises(Rejected) as caught:
        check_emit_name(name)
    assert caught.value.code == "reserved_name"
    assert check_emit_name(f"my:{name}")
