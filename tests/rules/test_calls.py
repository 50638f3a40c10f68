"""Requested calls against recorded ones: the same call finds its result, another one ends the turn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import AgentFailed, InvalidInput
from heliograph.records import Wait
from heliograph.turn.calls import (
    CallRequest,
    CallResult,
    check_name,
    result_of,
)
from heliograph.turn.interruptions import Defer
from heliograph.turn.journal import Journal
from heliograph.turn.terminating_calls import awaits_terminating, terminating_result

TERMINATE: Any = {"__cg_control": {"after_execution": "terminate"}}


def requested(journal: Journal, tool: str = "search", call_id: str | None = None, kind: Any = "tool") -> CallRequest:
    return CallRequest(journal.new_call(call_id), journal.new_step(), tool, kind)


def wait(call_id: str, tool: str = "search", *, position: int | None = None, **more: Any) -> Wait:
    """A recorded call; resolved where it has a position."""
    if position is None:
        return Wait(call_id, tool, more.pop("kind", "tool"), more.pop("state", "open"), 1, **more)
    content = more.pop("content", {"status": "success", "output": call_id})
    return Wait(call_id, tool, more.pop("kind", "tool"), "resolved", 1, status=more.pop("status", "success"),
                content=content, resolved_position=position, **more)  # fmt: skip


def test_calls_are_named_by_their_place_in_the_order_of_calls() -> None:
    journal = Journal("a", [])
    assert [requested(journal).call_id for _ in range(3)] == ["c1", "c2", "c3"]
    assert requested(journal, call_id="mine").call_id == "mine"
    assert requested(journal).call_id == "c5"


def test_each_task_counts_its_calls_for_itself() -> None:
    tasks = iter(["", "sub_1-", "sub_2-", "sub_1-", ""])
    journal = Journal("a", [], lambda: next(tasks))
    assert [journal.new_call() for _ in range(5)] == ["c1", "sub_1-c1", "sub_2-c1", "sub_1-c2", "c2"]


@pytest.mark.proves("L0-61")
def test_call_finds_its_record_and_a_new_call_finds_none() -> None:
    journal = Journal("a", [wait("c1", position=1)])
    found = journal.find(requested(journal))
    assert found is not None
    assert result_of(found) == CallResult("c1", "success", "c1")
    assert journal.find(requested(journal)) is None


@pytest.mark.parametrize(("tool", "kind"), [("other", "tool"), ("search", "child"), ("search", "inline")])
def test_recorded_call_of_another_tool_or_kind_raises_not_deterministic(tool: str, kind: Any) -> None:
    journal = Journal("a", [wait("c1")])
    with pytest.raises(AgentFailed, match="call c1 was tool search") as caught:
        journal.find(requested(journal, tool, kind=kind))
    assert caught.value.code == "NOT_DETERMINISTIC"
    with pytest.raises(AgentFailed, match="call c1 was tool search"):  # even if the function swallowed it
        journal.check_not_waiting()


def test_call_id_is_used_once_by_one_run_of_a_function() -> None:
    journal = Journal("a", [])
    journal.find(requested(journal, call_id="x"))
    with pytest.raises(InvalidInput, match="uses the call id 'x' twice"):
        journal.find(requested(journal, call_id="x"))


def test_unrecorded_calls_are_new_and_keep_their_order() -> None:
    journal = Journal("a", [wait("c1", position=1), wait("c2")])
    calls = [requested(journal) for _ in range(4)]
    for call in calls:
        journal.find(call)
    journal.wait_for(calls[1:])
    assert [call.call_id for call in journal.new_calls] == ["c3", "c4"]


@pytest.mark.proves("K15")
@pytest.mark.parametrize(
    ("waits", "wanted", "each", "join"),
    [
        ([], ["c1"], False, "all"),
        ([], ["c1"], True, "each"),
        (["c1", "c2"], ["c1", "c2"], False, "all"),
        (["c1", "c2"], ["c1"], False, "each"),  # c2 is open and not awaited: it must not delay c1
        (["c1"], ["c1", "c2"], False, "all"),
    ],
)
def test_turn_waits_for_all_open_calls_unless_it_joins_on_each(
    waits: list[str], wanted: list[str], each: bool, join: str
) -> None:
    journal = Journal("a", [wait(name) for name in waits])
    calls = [requested(journal, call_id=name) for name in wanted]
    for call in calls:
        journal.find(call)
    journal.wait_for(calls, each=each)
    assert journal.join == join


def test_step_in_flight_does_not_suspend_its_turn() -> None:
    journal = Journal("a", [wait("c1", kind="inline")])
    call = requested(journal, call_id="x")
    journal.find(call)
    journal.wait_for([call])
    assert journal.join == "all"


def test_function_replays_until_it_has_requested_every_recorded_call() -> None:
    journal = Journal("a", [wait("c1", position=1), wait("c2")])
    assert journal.is_replaying
    journal.find(requested(journal))
    assert journal.is_replaying
    journal.find(requested(journal))
    assert not journal.is_replaying


def test_function_that_returns_while_it_waits_fails_for_a_swallowed_suspension() -> None:
    journal = Journal("a", [])
    call = requested(journal)
    journal.find(call)
    journal.wait_for([call])
    with pytest.raises(AgentFailed, match="caught the exception that suspends its turn for call c1"):
        journal.check_not_waiting()


def test_function_with_endless_calls_is_stopped() -> None:
    journal = Journal("a", [])

    def request_endlessly() -> None:
        while True:
            journal.find(requested(journal))

    with pytest.raises(AgentFailed, match="10000 calls in one run"):
        request_endlessly()


def test_failed_call_has_the_error_that_was_reported() -> None:
    error: Any = {"code": "NO_SUCH_CITY", "message": "no such city"}
    failed = wait("c1", position=1, status="failed", content={"status": "failed", "error": error})
    assert result_of(failed) == CallResult("c1", "failed", None, error)
    timed_out = wait("c1", position=1, status="timeout", content=None)
    assert result_of(timed_out).status == "timeout"


# ── after_execution ──


@pytest.mark.proves("L0-56")
def test_first_result_of_a_turn_ending_call_ends_the_turn() -> None:
    waits = [
        wait("c1", position=3, after_execution="terminate"),
        wait("c2", position=1),
        wait("c3", position=2, after_execution="terminate"),
        wait("c4", after_execution="terminate"),
    ]
    assert terminating_result(waits) == CallResult("c3", "success", "c3")
    assert terminating_result(waits[1:2] + waits[3:]) is None


@pytest.mark.proves("L0-56")
@pytest.mark.parametrize(
    ("first", "second", "worse"),
    [
        ("success", "failed", "c2"),
        ("failed", "success", "c1"),
        ("timeout", "failed", "c2"),
        ("success", "success", "c1"),
    ],
)
def test_turn_ending_calls_of_one_step_end_it_with_the_worse_outcome(first: Any, second: Any, worse: str) -> None:
    def ending(call_id: str, step_id: str = "s1", **more: Any) -> Wait:
        return wait(call_id, after_execution="terminate", step_id=step_id, **more)

    found = [ending("c1", position=1, status=first), ending("c2", position=2, status=second)]
    answer = terminating_result(found)
    assert answer is not None
    assert answer.call_id == worse
    assert not awaits_terminating(found)
    assert awaits_terminating([found[0], ending("c2")])
    later = ending("c3", step_id="s2", position=3, status="failed")
    assert terminating_result([found[0], later]) == terminating_result([found[0]])  # another step's does not count
    assert not awaits_terminating([found[0], ending("c3", step_id="s2")])


@pytest.mark.proves("L0-57", "S9")
@pytest.mark.parametrize(
    ("may_override", "after", "output", "ends"),
    [
        (False, "suspend", TERMINATE, False),
        (True, "suspend", TERMINATE, True),
        (True, "terminate", {"__cg_control": {"after_execution": "suspend"}}, False),
        (True, "suspend", {"__cg_control": {"after_execution": "whatever"}}, False),
        (True, "terminate", {"__cg_control": []}, True),
        (True, "suspend", "text", False),
    ],
)
def test_result_decides_only_where_its_tool_may(may_override: bool, after: Any, output: Any, ends: bool) -> None:
    recorded = wait("c1", position=1, content={"output": output}, may_override=may_override, after_execution=after)
    assert (terminating_result([recorded]) is not None) is ends


@given(st.permutations([1, 2, 3, 4]), st.sets(st.sampled_from([0, 1, 2, 3])))
def test_turn_ending_result_depends_only_on_the_order_of_arrival(order: list[int], ending: set[int]) -> None:
    waits = [
        wait(f"c{n}", position=position, after_execution="terminate" if n in ending else "suspend")
        for n, position in enumerate(order)
    ]
    answer = terminating_result(waits)
    first = min(ending, key=lambda n: order[n], default=None)
    assert (None if answer is None else answer.call_id) == (None if first is None else f"c{first}")


# ── Malformed calls ────


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65, 5, None])
def test_ambiguous_name_is_rejected(name: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_name(name, "the name of a tool")
    assert caught.value.code == "invalid_id"


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", True, 1e9])
def test_deferral_by_an_invalid_time_is_rejected(seconds: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Defer("busy", seconds)
    assert caught.value.code == "out_of_range"


def test_except_exception_does_not_catch_the_interrupts_of_a_turn() -> None:
    assert not issubclass(Defer, Exception)
    assert Defer("busy", 0).seconds == 0.0
