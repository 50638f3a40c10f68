"""Bad input: one row per malformed name, pattern and payload, and the error it meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heliograph.errors import HeliographError, InvalidInput, Rejected
from heliograph.signals.json_parser import parse_json
from heliograph.signals.names import GRAMMAR, check_emit_name, check_name
from heliograph.signals.pattern import check_agent_pattern, compile_pattern
from heliograph.signals.pattern_warnings import warn_unmatchable
from heliograph.signals.payload import check_payload

Row = tuple[int, Callable[[Any], object], Any, str, str]
# (number of the case, its reader, input, code, a part of the message)
ROWS: list[Row] = [
    (31, parse_json, '{"a": }', "invalid_json", "offset 6"),
    (31, parse_json, "", "invalid_json", "offset 0"),
    (31, parse_json, "{} {}", "invalid_json", "offset 3"),
    (31, parse_json, b'{"a": "\xff"}', "encoding", "byte 0xff at offset 7"),
    (32, parse_json, '{"name": 1, "name": 1}', "json_duplicate_key", "'name'"),
    (33, parse_json, '{"a": NaN}', "json_non_finite", "/a"),
    (33, parse_json, "[1, -Infinity]", "json_non_finite", "/1"),
    (33, check_payload, {"a": float("inf")}, "json_non_finite", "/a"),
    (34, parse_json, "[" * 100_000 + "]" * 100_000, "json_too_deep", "64"),
    (34, parse_json, "[" * 100_000, "json_too_deep", "64"),
    (35, parse_json, "9" * 5_000, "number_too_large", "4300"),
    (35, parse_json, "[-" + "9" * 5_000 + "]", "number_too_large", "4300"),
    (35, check_payload, 10**5_000, "number_too_large", "4300"),
    (36, parse_json, r'{"a": "b\u0000"}', "nul_character", "U+0000 at position 1 (at /a)"),
    (36, parse_json, r'{"\u0000": 1}', "nul_character", "position 0"),
    (37, parse_json, r'["\ud800"]', "invalid_unicode", "U+D800 at position 0 (at /0)"),
    (37, check_payload, "\udc00", "invalid_unicode", "U+DC00"),
    (38, parse_json, "1e200000", "number_too_large", "1e200000"),
    (38, parse_json, "[-1.5E999]", "number_too_large", "-1.5E999"),
    (39, check_name, None, "wrong_type", "NoneType"),
    (39, check_name, 10**5_000, "wrong_type", "int"),
    (40, check_name, "", "invalid_signal_name", GRAMMAR),
    (40, check_name, "a::b", "invalid_signal_name", GRAMMAR),
    (40, check_name, ":a", "invalid_signal_name", GRAMMAR),
    (40, check_name, "a:", "invalid_signal_name", GRAMMAR),
    (40, check_name, "A b", "invalid_signal_name", GRAMMAR),
    (40, check_name, "a" * 300, "invalid_signal_name", GRAMMAR),
    (40, check_name, "a\uff1ab", "invalid_character", "U+FF1A at position 1"),
    (40, check_name, "a:b\n", "invalid_character", "U+000A at position 3"),
    (40, check_name, "a:\0", "invalid_character", "U+0000 at position 2"),
    (41, check_name, "agent:*", "wildcard_in_name", "'agent:*'"),
    (42, check_emit_name, "workflow:start", "reserved_name", "'workflow'"),
    (42, check_emit_name, "kernel:x", "reserved_name", "'kernel'"),
    (42, check_emit_name, "terminated", "reserved_name", "'my:terminated'"),
    (48, check_payload, "a" * 65_536, "payload_too_large", "65538 bytes, the limit is 65536"),
    (51, compile_pattern, "", "empty_pattern", "empty"),
    (52, compile_pattern, "a:***", "invalid_wildcard", "whole segment"),
    (53, check_agent_pattern, "**", "pattern_too_broad", "'**'"),
    (54, compile_pattern, "a:*b", "invalid_wildcard", "a * must be a whole segment"),
    (55, compile_pattern, ":".join(["**", "x"] * 20), "pattern_too_complex", "at most 2 **"),
    (55, compile_pattern, ":".join("a" * 17), "pattern_too_complex", "16 segments"),
    (55, compile_pattern, "a" * 201, "pattern_too_complex", "200 characters"),
    (56, compile_pattern, "(a+)+$", "invalid_character", "U+0028 at position 0"),
    (56, compile_pattern, "a:[bc]", "invalid_character", "U+005B at position 2"),
    (58, compile_pattern, " a:b", "invalid_character", "U+0020 at position 0"),
    (58, compile_pattern, "a:b ", "invalid_character", "U+0020 at position 3"),
    (58, compile_pattern, "a\uff1ab", "invalid_character", "U+FF1A at position 1"),
    (58, compile_pattern, "a::b", "invalid_pattern", "empty segment"),
    (58, compile_pattern, 5, "wrong_type", "int"),
    (58, compile_pattern, ["a"], "wrong_type", "list"),
]


@pytest.mark.parametrize(
    ("read", "given", "code", "part"),
    [row[1:] for row in ROWS],
    ids=[f"{number:02}-{code}-{index}" for index, (number, _, _, code, _) in enumerate(ROWS)],
)
def test_bad_input_raises_its_error(read: Callable[[Any], object], given: Any, code: str, part: str) -> None:
    with pytest.raises(HeliographError) as caught:
        read(given)
    error = caught.value
    assert error.code == code
    assert part in error.message
    assert isinstance(error, Rejected if code in {"reserved_name", "pattern_too_broad"} else InvalidInput)
    assert error.message.isprintable()  # one line, nothing that would move a terminal's cursor
    assert len(error.message) < 400


def test_case_57_pattern_without_a_match_is_a_warning_and_no_error() -> None:
    (warning,) = warn_unmatchable(["revew:*"], ["review:done"])
    assert warning.startswith("pattern_matches_nothing: 'revew:*'")
    assert "review:done" in warning
