"""What a process records of the runs whose turns it executes (decision 0192)."""

from __future__ import annotations

from heliograph.execution.local_runs import LocalEnd, LocalRuns
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
    runs.record_end(*RUN, "shop", DRAFTS)
    assert not runs.has_turn(*RUN)
    runs.execution_ended(*RUN)
    assert not runs.has_turn(*RUN)


def test_each_caller_that_waits_gets_the_end_of_its_run() -> None:
    runs = LocalRuns()
    with runs.waiter(*RUN) as first, runs.waiter(*RUN) as second, runs.waiter("p", "run_2") as other:
        runs.record_end(*RUN, "shop", DRAFTS)
    assert first.end == second.end == LocalEnd("shop", b'{"outcome":"success"}')
    assert other.end is None


def test_caller_that_comes_after_the_end_gets_nothing() -> None:
    runs = LocalRuns()
    runs.record_end(*RUN, "shop", DRAFTS)
    with runs.waiter(*RUN) as late:
        assert late.end is None


def test_long_end_is_read_by_each_caller_so_that_many_do_not_delay_the_turns() -> None:
    runs = LocalRuns()
    with runs.waiter(*RUN) as waiter:
        runs.record_end(*RUN, "shop", [Draft("workflow:end", {"state": {"text": "x" * 100_000}})])
    assert waiter.end == LocalEnd("shop", None)
    assert waiter.end.read() is None
