"""The payloads of changes of the state: small for a list that grows, and enough to rebuild it."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.signals.payload import DEPTH_MAX, with_sorted_keys
from heliograph.signals.state_change import change_payload, changed_key, changed_value

# As the database stores them, 2 and 2.0 are two numbers; -0.0 and 0.0 are one, and so are 1e300 and the integer of that value.
NUMBERS: Any = st.integers(0, 2) | st.sampled_from([0.0, -0.0, 1.0, 2.0, 0.5, 1e16, 10**16, 1e300, 10**300])
LEAVES: Any = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=1))
KEYS: Any = st.sampled_from(["", "a", "b/c", "~1", "0", "1"])
VALUES: Any = st.recursive(
    LEAVES, lambda each: st.lists(each, max_size=4) | st.dictionaries(KEYS, each, max_size=4), max_leaves=12
)


@pytest.mark.proves("SIG-02", "SIG-34")
@given(st.lists(VALUES, max_size=6))
def test_value_is_rebuilt_from_its_changes(values: list[Any]) -> None:
    rebuilt: Any = None
    before: Any = None
    for after in values:
        payload = change_payload(before, after)
        given = copy.deepcopy((rebuilt, payload))
        stored = msgspec.json.decode(
            msgspec.json.encode(payload, order="sorted")
        )  # a log does not keep the order of keys
        earlier, rebuilt, before = rebuilt, changed_value(rebuilt, stored), after
        assert repr(with_sorted_keys(rebuilt)) == repr(with_sorted_keys(after)), "which keeps the type of each number"
        assert (earlier, payload) == given, "values of the log do not change"


GROWN: dict[str, Any] = {
    "a list": lambda n: [_message(i) for i in range(n)],
    "an object by ids": lambda n: {f"id_{i:05}": _message(i) for i in range(n)},
    "a list in an object": lambda n: {"topic": "tides", "messages": [_message(i) for i in range(n)], "count": n},
    "lists in an object by ids": lambda n: {f"user_{u}": [_message(i) for i in range(u, n, 3)] for u in range(3)},
    "an item of a list": lambda n: [{"name": "first"}, {"messages": [_message(i) for i in range(n)]}, {"name": "last"}],
    "a deep object": lambda n: {"rooms": {"one": {"seen": {f"id_{i:05}": i for i in range(n)}}}, "open": True},
}


def _message(number: int) -> dict[str, Any]:
    return {"role": "user", "text": f"message {number:05} of a conversation that goes on"}


@pytest.mark.proves("SIG-34", "P-52")
@pytest.mark.parametrize("grown", GROWN)
def test_log_grows_with_what_is_new_in_a_value(grown: str) -> None:
    value = GROWN[grown]
    early = [_bytes_of_change(value, n) for n in range(4, 24)]
    late = [_bytes_of_change(value, n) for n in range(980, 1000)]
    assert sum(late) / sum(early) < 1.05


def _bytes_of_change(value: Any, count: int) -> int:
    return len(msgspec.json.encode(change_payload(value(count), value(count + 1))))


@pytest.mark.parametrize(
    ("before", "after", "payload"),
    [
        ([1], [1, 2, 3], {"value": [2, 3], "from_index": 1}),
        ([1, 2, 3], [1], {"value": [], "from_index": 1}),
        ([1, 2, 3], [1, 2, 4], {"value": [4], "from_index": 2}),
        ([1, 2, 3], [2, 3, 4], {"value": [2, 3, 4]}),
        ([], [1], {"value": [1]}),
        (None, [1], {"value": [1]}),
        ("ab", "abc", {"value": "abc"}),
        ([0, 1], [0, True, 2], {"value": [True, 2], "from_index": 1}),
        ([{"a": [1]}], [{"a": [True]}], {"value": [{"a": [True]}]}),
        ([1, "a"], [1.0, "a", 2], {"value": {"/0": 1.0, "/2": 2}, "parts": True}),
        (["a", 1], ["a", 1.0, 2], {"value": [1.0, 2], "from_index": 1}),
        ([0.0, -0.0], [-0.0, 0.0, 1], {"value": [1], "from_index": 2}),
        ({"n": 2, "p": []}, {"n": 2.0, "p": [0]}, {"value": {"n": 2.0, "p": [0]}}),
        ({"n": 2, "p": [1]}, {"n": 2.0, "p": [1, 0]}, {"value": {"/n": 2.0, "/p/1": 0}, "parts": True}),
        ({"n": -0.0, "p": [1]}, {"n": 0, "p": [1, [2.0]]}, {"value": {"/n": 0, "/p/1": [2.0]}, "parts": True}),
        ({"n": [[2, 3]], "p": 1}, {"n": [[2.0, 3]], "p": 1}, {"value": {"/n/0/0": 2.0}, "parts": True}),
        ([1, 2, 3], [1, 5, 3], {"value": {"/1": 5}, "parts": True}),
        ([[1], 2], [[1, 3], 2], {"value": {"/0/1": 3}, "parts": True}),
        ([[1], [2]], [[1, 3], [2, 4]], {"value": [[1, 3], [2, 4]]}),
        ({"a": 1}, {"a": 1, "b": 2}, {"value": {"/b": 2}, "parts": True}),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"value": {"a": 1, "b": 3}}),
        ({"a": 1, "b": 2}, {"a": 1}, {"value": {}, "parts": True, "removed": ["/b"]}),
        ({"a/b": [1], "n": 1}, {"a/b": [1, 2], "n": 2}, {"value": {"/a~1b/1": 2, "/n": 2}, "parts": True}),
        ({"a": [1, 2, 3], "n": 1}, {"a": [1], "n": 1}, {"value": {}, "parts": True, "removed": ["/a/1"]}),
        ({"a": {"x": 1}, "n": []}, {"a": {"x": True}, "n": []}, {"value": {"/a": {"x": True}}, "parts": True}),
        ({"a": [1]}, {"a": [2]}, {"value": {"a": [2]}}),
        ({}, {"a": 1}, {"value": {"a": 1}}),
    ],
)  # fmt: skip
@pytest.mark.proves("SIG-34")
def test_change_has_what_follows_the_items_that_both_lists_share(before: Any, after: Any, payload: Any) -> None:
    assert repr(change_payload(before, after)) == repr(payload)  # True is equal to 1


def test_log_of_a_growing_list_grows_by_its_items() -> None:
    sizes = [len(msgspec.json.encode(change_payload([7] * n, [7] * (n + 1)))) for n in (1, 10_000)]
    assert sizes[1] - sizes[0] == len("10000") - len("1")


@pytest.mark.parametrize("payload", [None, 7, {"from_index": 1}, {"value": 5, "from_index": 1}, {"value": [5], "from_index": -1},
                                     {"value": [5], "from_index": True}, {"value": [5], "from_index": "1"}, {"value": {"a": 1}, "parts": True},
                                     {"value": {"/0": 1}, "parts": 1}, {"value": {"/0": 1}, "parts": True, "removed": [1]},
                                     {"value": {"": 1}, "parts": True}, {"value": {"/0": 1, "x": 1}, "parts": True},
                                     {"value": {"/0": 1}, "parts": True, "removed": [""]}, {"value": {"/a" * 3000: 1}, "parts": True},
                                     {"value": {}, "parts": True, "removed": ["/0", "/" * 65]}])  # fmt: skip
def test_payload_of_another_origin_changes_the_whole_value(payload: Any) -> None:
    assert changed_value([1, 2], payload) == (payload.get("value") if isinstance(payload, dict) else None)


def test_part_of_a_list_whose_beginning_is_unknown_is_what_is_known() -> None:
    assert changed_value(None, {"value": [3], "from_index": 2}) == [3]
    assert changed_value(None, {"value": {"/a/b": 3, "/c": [4]}, "parts": True, "removed": ["/d"]}) == {
        "a": {"b": 3},
        "c": [4],
    }
    assert changed_value({"a": []}, {"value": {"/a/7": 3}, "parts": True, "removed": ["/a/9"]}) == {"a": [3]}


@pytest.mark.proves("SIG-02")
@pytest.mark.parametrize(
    ("before", "changed", "removed", "after"),
    [
        ([1, 2], {"/-": 3}, [], [1, 2]),
        ([1, 2], {"/01": 3, "/00": 4}, [], [1, 2]),
        ([1, 2], {"/1": 3, "/01": 4}, ["/01"], [1, 3]),
        ([1, 2], {"/٣": 3, "/-1": 3, "/ 1": 3, "/+1": 3, "/1e0": 3, "/": 3}, [], [1, 2]),
        ([1, 2], {"/9": 4, "/7": 3, "/9999999999": 5}, [], [1, 2, 3, 4]),
        ([1, 2, 3], {"/1": 9}, ["/1"], [1, 9]),
        ([1, 2, 3], {"/2": 8, "/1": 9}, ["/1", "/2"], [1, 9, 8]),
        ({"01": 1}, {"/01": 2, "/1": 3, "/-": 4, "/": 5}, [], {"01": 2, "1": 3, "-": 4, "": 5}),
        ({"a": {"b": 1, "c": 2}}, {"/a/c": 3}, ["/a"], {"a": {"c": 3}}),
        ({"a": 1}, {"/a": {"b": 2}, "/a/c": 3}, [], {"a": {"b": 2}}),
        ({"a": 1}, {"/a/c": 3, "/a": {"b": 2}}, [], {"a": {"b": 2}}),
        ({"a": "text"}, {"/a/b": 1}, ["/b/c"], {"a": {"b": 1}}),
        ({"/": 1, "~": 2, "~1": 3}, {"/~1": 4, "/~01": 6}, ["/~0"], {"/": 4, "~1": 6}),
        ([[1], {}], {"/0/1": 2, "/1/0": 3}, ["/4/x"], [[1, 2], {"0": 3}]),
    ],
)
def test_edited_parts_are_applied_after_what_is_removed(before: Any, changed: Any, removed: Any, after: Any) -> None:
    given = copy.deepcopy(before)
    assert changed_value(before, {"value": changed, "parts": True, "removed": removed}) == after
    assert before == given


def test_deepest_value_of_a_state_is_changed_by_its_part() -> None:
    before, after = (nested_items(DEPTH_MAX, items) for items in ([1], [1, 2]))
    payload: Any = change_payload(before, after)
    assert [*payload["value"].values()] == [2]
    assert changed_value(before, payload) == after


def nested_items(depth: int, items: list[Any]) -> Any:
    """A value with `items` inside of as many containers, which all keep something."""
    value: Any = items
    for _ in range(depth - 1):
        value = {"in": value, "kept": 0}
    return value


@given(VALUES, st.dictionaries(st.from_regex(r"(/(a|-|0|01|1|~0|~1){0,1}){1,3}", fullmatch=True), VALUES, max_size=4),
       st.lists(st.from_regex(r"(/(a|-|0|01|1|~0|~1){0,1}){1,3}", fullmatch=True), max_size=3))  # fmt: skip
def test_any_parts_can_be_applied_to_any_value(before: Any, changed: Any, removed: Any) -> None:
    given = repr(before)
    after = changed_value(before, {"value": changed, "parts": True, "removed": removed})
    assert isinstance(after, dict | list)
    assert repr(before) == given


def test_key_is_the_middle_of_the_name() -> None:
    assert [changed_key(name) for name in ("state:a:changed", "state:a", "tool:call")] == ["a", None, None]
