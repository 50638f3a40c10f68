"""The payloads of changes of the state: small for a list that grows, and enough to rebuild it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.signals.state_change import change_payload, changed_key, changed_value

VALUES: Any = st.one_of(st.none(), st.integers(0, 2), st.text(max_size=1), st.lists(st.integers(0, 1), max_size=4))


@pytest.mark.proves("SIG-02", "SIG-34")
@given(st.lists(VALUES, max_size=6))
def test_value_is_rebuilt_from_its_changes(values: list[Any]) -> None:
    rebuilt = before = None
    for after in values:
        payload = change_payload(before, after)
        rebuilt, before = changed_value(rebuilt, payload), after
        assert rebuilt == after
        assert len(payload["value"] if isinstance(payload["value"], list) else []) <= len(
            after if isinstance(after, list) else []
        )


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
        ([1, "a"], [1.0, "a", 2], {"value": [2], "from_index": 2}),
    ],
)  # fmt: skip
@pytest.mark.proves("SIG-34")
def test_change_has_what_follows_the_items_that_both_lists_share(before: Any, after: Any, payload: Any) -> None:
    assert repr(change_payload(before, after)) == repr(payload)  # True is equal to 1


def test_log_of_a_growing_list_grows_by_its_items() -> None:
    sizes = [len(msgspec.json.encode(change_payload([7] * n, [7] * (n + 1)))) for n in (1, 10_000)]
    assert sizes[1] - sizes[0] == len("10000") - len("1")


@pytest.mark.parametrize("payload", [None, 7, {"from_index": 1}, {"value": 5, "from_index": 1}, {"value": [5], "from_index": -1},
                                     {"value": [5], "from_index": True}, {"value": [5], "from_index": "1"}])  # fmt: skip
def test_payload_of_another_origin_changes_the_whole_value(payload: Any) -> None:
    assert changed_value([1, 2], payload) == (payload.get("value") if isinstance(payload, dict) else None)


def test_part_of_a_list_whose_beginning_is_unknown_is_what_is_known() -> None:
    assert changed_value(None, {"value": [3], "from_index": 2}) == [3]


def test_key_is_the_middle_of_the_name() -> None:
    assert [changed_key(name) for name in ("state:a:changed", "state:a", "tool:call")] == ["a", None, None]
