"""Drafts as the kernel receives and stores them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from heliograph.signals.model import Draft
from heliograph.turn.drafts import absolute_time, draft_items, parent_id, time_of

AT = datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))


def test_item_has_no_empty_keys() -> None:
    assert draft_items([Draft("a", None)]) == [{"name": "a", "payload": None}]


def test_time_is_a_number_of_microseconds_that_is_read_as_the_same_time() -> None:
    (item,) = draft_items([Draft("a", {}, at=AT)])
    assert item["at"] == 1_893_492_000_123_456
    assert (time_of(1_893_492_000_123_456), time_of(0)) == (AT, datetime(1970, 1, 1, tzinfo=UTC))


DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "stored"),
    [
        ([AT, AT, AT + timedelta(microseconds=5), AT - timedelta(seconds=1)], ["absent", 5, -1_000_000]),
        ([AT, None, AT], [None, "absent"]),
        ([None, AT, None], [1_893_492_000_123_456, "absent"]),
        ([AT, AT + 116 * DAY], [1_893_492_000_123_456 + 116 * 86_400_000_000]),
        ([AT, EPOCH + DAY], ["1970-01-02T00:00:00+00:00"]), ([None, EPOCH + DAY], ["1970-01-02T00:00:00+00:00"]),
        ([EPOCH + DAY, EPOCH + 2 * DAY], [86_400_000_000]),
    ],
)  # fmt: skip
def test_later_time_is_the_distance_from_the_first_and_is_read_as_the_same_time(
    times: list[datetime | None], stored: list[object]
) -> None:
    items = draft_items([Draft("a", {}, at=at) for at in times])
    assert [item.get("at", "absent") for item in items[1:]] == stored
    found = [absolute_time(items, n) for n in range(len(items))]
    assert [None if at is None else time_of(at) for at in found] == times


@pytest.mark.parametrize(
    ("parent", "stored"),
    [
        ("sig_run_a_12", "12"), (3, 3), (0, 0), (None, None), ("sig_run_b_12", "sig_run_b_12"), ("sig_run_a_1_2", "sig_run_a_1_2"),
        ("sig_run_a_0", "sig_run_a_0"), ("sig_run_a_", "sig_run_a_"), ("sig_run_a_\u0661", "sig_run_a_\u0661"),
    ],
)  # fmt: skip
def test_parent_of_the_same_run_is_its_position_and_any_other_remains(
    parent: str | int | None, stored: str | int | None
) -> None:
    (item,) = draft_items([Draft("a", {}, parent=parent)], "run_a")
    assert item.get("parent") == stored
    expected = f"sig_run_a_{20 + parent}" if isinstance(parent, int) else parent
    assert parent_id("run_a", 20, item.get("parent")) == expected
