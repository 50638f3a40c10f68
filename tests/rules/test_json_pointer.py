"""JSON pointers are read, written and followed by one module."""

from __future__ import annotations

from typing import Any

from heliograph.json_pointer import escaped, is_index, pointer, tokens_of, value_at

WHOLE: dict[str, Any] = {"a/b": {"m~n": [{"x": 1}, {"x": 2}]}, "": 3, "0": 4, "~1": 5}
FOUND: dict[str, Any] = {
    "": WHOLE, "/a~1b/m~0n/1/x": 2, "/": 3, "/0": 4, "/~01": 5, "/a~1b/m~0n/2": None, "/a~1b/m~0n/-1": None, "/a~1b/m~0n/²": None,
    "/a~1b/m~0n/9999999999": None, "/none/x": None, "/0/x": None,
}  # fmt: skip


def test_value_at_a_pointer_is_found_or_none() -> None:
    assert {path: value_at(WHOLE, path) for path in FOUND} == FOUND


def test_keys_are_escaped_and_read_again() -> None:
    for key in ("", "a/b", "~", "~1", "a~0/b", "ä"):
        assert tokens_of(f"/{escaped(key)}") == (key,)
        assert tokens_of(pointer("/x", key, 3)) == ("x", key, "3")


def test_index_is_short_and_has_ascii_digits() -> None:
    assert [is_index(each) for each in ("0", "123456789", "1234567890", "", "-1", "²", "٣")] == [
        True,
        True,
        *[False] * 5,
    ]
