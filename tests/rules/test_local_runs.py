"""What a process records of the runs whose turns it executes (decision 0192)."""

from __future__ import annotations

from heliograph.execution.local_runs import LocalRuns
from heliograph.signals.model import Draft

RUN = ("p", "run_1")
DRAFTS = [Draft("note", {"outcome": "no"}), Draft("workflow:end", {"outcome": "success"})]


def test_run_has_a_turn_until_its_last_one_ends() -> None:
    runs = LocalRuns()
    for _ in range(2):
        runs.execution_started(*RUN)
    runs.execution_ended(*RUN)
    assert runs.has_turn(*RUN)
    assert not runs.has_turn("another project", "run_1")
    runs.execution_ended(*RUN)
    assert not runs.has_turn(*RUN)


def test_run_has_no_turn_once_its_end_is_recorded_even_while_the_turn_finishes() -> None:
    """Otherwise a caller that arrives in between would wait half a second before it reads."""
    runs = LocalRuns()
    runs.execution_started(*RUN)
    runs.record_end(*RUN, DRAFTS)
    assert not runs.has_turn(*RUN)
    runs.execution_ended(*RUN)
    assert not runs.has_turn(*RUN)


def test_each_caller_that_waits_gets_the_end_of_its_run() -> None:
    runs = LocalRuns()
    with runs.waiter(*RUN) as first, runs.waiter(*RUN) as second, runs.waiter("p", "run_2") as other:
        runs.record_end(*RUN, DRAFTS)
    assert first.payload == second.payload == {"outcome": "success"}
    assert other.payload is None


def test_caller_that_comes_after_the_end_gets_nothing() -> None:
    runs = LocalRuns()
    runs.record_end(*RUN, DRAFTS)
    with runs.waiter(*RUN) as late:
        assert late.payload is None
