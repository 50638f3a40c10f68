"""What a process knows of the ends of its runs (decision 0192)."""

from __future__ import annotations

from heliograph.execution.run_ends import RunEnds
from heliograph.signals.model import Draft

RUN = ("p", "run_1")
DRAFTS = [Draft("note", {"outcome": "no"}), Draft("workflow:end", {"outcome": "success"})]


def test_run_has_a_turn_until_its_last_one_ends() -> None:
    ends = RunEnds()
    for _ in range(2):
        ends.turn_started(*RUN)
    ends.turn_ended(*RUN)
    assert ends.has_turn(*RUN)
    assert not ends.has_turn("another project", "run_1")
    ends.turn_ended(*RUN)
    assert not ends.has_turn(*RUN)


def test_run_whose_end_is_committed_has_no_turn_although_that_one_still_ends() -> None:
    """A caller that comes between the two would look for the end only after the time without a ring."""
    ends = RunEnds()
    ends.turn_started(*RUN)
    ends.committed(*RUN, DRAFTS)
    assert not ends.has_turn(*RUN)
    ends.turn_ended(*RUN)
    assert not ends.has_turn(*RUN)


def test_each_caller_that_waits_gets_the_end_of_its_run() -> None:
    ends = RunEnds()
    with ends.awaited(*RUN) as first, ends.awaited(*RUN) as second, ends.awaited("p", "run_2") as other:
        ends.committed(*RUN, DRAFTS)
    assert first.payload == second.payload == {"outcome": "success"}
    assert other.payload is None
    with ends.awaited(*RUN) as late:
        assert late.payload is None
