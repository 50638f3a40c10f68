import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.worker.fair_share import fair_shares

USED = st.lists(st.integers(0, 30), min_size=1, max_size=6)


@pytest.mark.proves("G-75")
@given(st.integers(0, 60), USED)
def test_free_slots_are_all_offered_and_never_more(room: int, used: list[int]) -> None:
    assert sum(fair_shares(room, used)) == room


@pytest.mark.proves("G-75")
@given(st.integers(0, 60), USED)
def test_slots_of_two_projects_differ_by_at_most_one(room: int, used: list[int]) -> None:
    given_now = fair_shares(room, used)
    after = [before + more for before, more in zip(used, given_now, strict=True)]
    for mine, more in zip(after, given_now, strict=True):
        if more:
            assert mine <= min(after) + 1


@pytest.mark.parametrize(
    ("room", "used", "offered"),
    [
        (16, [0], [16]),
        (16, [0, 0], [8, 8]),
        (1, [0, 0], [1, 0]),
        (4, [10, 0], [0, 4]),
        (6, [3, 1, 0], [1, 2, 3]),
        (0, [0, 0], [0, 0]),
    ],
)
def test_free_slot_goes_to_the_project_with_the_fewest(room: int, used: list[int], offered: list[int]) -> None:
    assert fair_shares(room, used) == offered
