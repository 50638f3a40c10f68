from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.testing.oracles.standard_payloads import check_standard
from heliograph.turn.calls import CallRequest, CallResult
from heliograph.turn.events import (
    Act,
    Acted,
    DeferTurn,
    Deliver,
    Effect,
    Emit,
    Event,
    Hydrated,
    Raised,
    Resolved,
    Stopped,
    SuspendTurn,
)
from heliograph.turn.machine import advance
from heliograph.turn.phase_signals import Turn
from heliograph.turn.phases import BadTransition, Phase

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FRESH = Turn("writer", "sig_a_2", {"capabilities": [], "version": "1"})
BEGIN = Hydrated(recoveries=0, may_run_again=True, is_run_over=False)
CALL = CallRequest("c1", "s1", "search", "tool")
ANSWER = CallResult("c1", "success", "found")
ANSWERS = st.none() | st.sampled_from([ANSWER, CallResult("c1", "failed", None, {"code": "X", "message": "no"})])
EVENTS: st.SearchStrategy[Event] = (
    st.builds(Hydrated, st.integers(0, 3), st.booleans(), st.booleans(), st.booleans(), ANSWERS)
    | st.builds(SuspendTurn, st.just((CALL,)), st.sampled_from(["all", "each"]))
    | st.builds(Resolved, ANSWERS)
    | st.builds(DeferTurn, st.text(), st.floats(0, 10))
    | st.builds(Stopped, st.text())
    | st.builds(Acted, st.sampled_from([None, "text", {"a": 1}]))
    | st.builds(Raised, st.sampled_from(["failed", "timeout"]), st.just("ACTION_FAILED"), st.text(), st.booleans())
)


def after(*events: Event) -> tuple[Turn, list[Effect]]:
    turn, effects = FRESH, list[Effect]()
    for event in events:
        turn, wanted = advance(turn, event, NOW)
        effects += wanted
    return turn, effects


def emitted(effects: list[Effect]) -> list[str]:
    return [draft.name for effect in effects if isinstance(effect, Emit) for draft in effect.drafts]


def delivery(effects: list[Effect]) -> Deliver:
    (deliver,) = [effect for effect in effects if isinstance(effect, Deliver)]
    return deliver


@pytest.mark.proves("LC-01")
def test_successful_turn_emits_the_signal_of_each_phase_in_order() -> None:
    turn, effects = after(BEGIN, Acted("done"))
    assert emitted(effects) == ["ready", "plan_ready", "action_complete", "reflection_complete", "terminated"]
    assert turn.phase is Phase.TERMINATE
    assert delivery(effects).outcome == "success"
    assert delivery(effects).content == {"text": "done"}


def test_signals_of_a_turn_reference_its_activation_and_match_the_catalog() -> None:
    for last in (Acted({"a": 1}), Raised("timeout", "TIMEOUT", "too long")):
        _, effects = after(BEGIN, last)
        for effect in effects:
            for draft in effect.drafts if isinstance(effect, Emit) else ():
                assert (draft.agent, draft.parent, draft.at) == ("writer", "sig_a_2", NOW)
                assert check_standard(draft.name, draft.payload) == []


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_failed_agent_emits_an_error_and_delivers_it(outcome: Any) -> None:
    turn, effects = after(BEGIN, Raised(outcome, "TOOL_ERROR", "it broke", is_recoverable=True))
    assert emitted(effects) == ["ready", "plan_ready", "error", "terminated"]
    assert turn.phase is Phase.TERMINATE
    error: Any = {"code": "TOOL_ERROR", "message": "it broke", "recoverable": True}
    assert delivery(effects) == Deliver(outcome, {"text": "it broke", "error": error}, error=error)


@pytest.mark.proves("K14")
def test_once_agent_that_lost_its_worker_ends_in_doubt_without_another_attempt() -> None:
    turn, effects = after(Hydrated(recoveries=2, may_run_again=False, is_run_over=False))
    assert Act() not in effects
    assert turn.phase is Phase.TERMINATE
    assert delivery(effects).outcome == "failed"
    assert (delivery(effects).error or {})["code"] == "IN_DOUBT"
    assert "2 times" in str((delivery(effects).error or {})["message"])


def test_once_agent_that_lost_no_worker_runs() -> None:
    assert Act() in after(Hydrated(recoveries=0, may_run_again=False, is_run_over=False))[1]


@pytest.mark.proves("L0-111")
def test_idempotent_agent_that_lost_its_worker_runs_again_from_the_start() -> None:
    assert Act() in after(Hydrated(recoveries=4, may_run_again=True, is_run_over=False))[1]


@pytest.mark.parametrize("recoveries", [0, 1])
@pytest.mark.parametrize("may_run_again", [True, False])
def test_turn_of_an_ended_run_is_canceled_without_running(recoveries: int, may_run_again: bool) -> None:
    _, effects = after(Hydrated(recoveries, may_run_again, is_run_over=True))
    assert Act() not in effects
    assert delivery(effects).outcome == "canceled"


# ── Waiting, and going on ──


@pytest.mark.proves("L0-55", "LC-02")
def test_waiting_turn_suspends_in_act_and_emits_no_phase_signal() -> None:
    turn, effects = after(BEGIN, SuspendTurn((CALL,), "each"))
    assert turn.phase is Phase.ACT
    assert emitted(effects) == ["ready", "plan_ready"]
    assert effects[-1] == SuspendTurn((CALL,), "each")


@pytest.mark.proves("L0-63", "LC-02")
def test_resumed_turn_acts_at_once_and_emits_each_phase_signal_once() -> None:
    turn, effects = after(Hydrated(0, may_run_again=False, is_run_over=False, is_resumed=True), Acted("done"))
    assert emitted(effects) == ["action_complete", "reflection_complete", "terminated"]
    assert delivery(effects).content == {"text": "done"}
    assert turn.phase is Phase.TERMINATE


@pytest.mark.proves("K16")
def test_turn_with_all_results_present_acts_again_without_a_suspension() -> None:
    _, effects = after(BEGIN, SuspendTurn((CALL,), "all"), Resolved())
    assert effects[-1] == Act()


@pytest.mark.proves("L0-56")
@pytest.mark.parametrize("resumes", [True, False])
def test_result_of_a_turn_ending_call_is_delivered_without_running_the_agent(resumes: bool) -> None:
    events: tuple[Event, ...] = (Hydrated(0, True, False, is_resumed=True, terminating_result=ANSWER),)
    if not resumes:
        events = (BEGIN, SuspendTurn((CALL,), "all"), Resolved(ANSWER))
    effects = after(*events)[1]
    assert delivery(effects) == Deliver("success", {"text": "found"}, "found")
    assert effects.count(Act()) == (not resumes)


@pytest.mark.proves("L0-56")
def test_turn_that_ends_with_several_results_waits_for_the_last_of_them() -> None:
    waits = Hydrated(0, True, False, is_resumed=True, terminating_result=ANSWER, awaits_terminating=True)
    assert after(waits)[1] == [SuspendTurn((), "each")]
    assert after(BEGIN, SuspendTurn((CALL,), "all"), Resolved(ANSWER, awaits_terminating=True))[1][-1] == SuspendTurn(
        (), "each"
    )


@pytest.mark.proves("L0-56")
@pytest.mark.parametrize(
    ("status", "error", "outcome", "code"),
    [
        ("failed", {"code": "NO_SUCH_CITY", "message": "no"}, "failed", "NO_SUCH_CITY"),
        ("failed", {"message": "no"}, "failed", "TOOL_ERROR"),
        ("timeout", {"message": "too late"}, "timeout", "TOOL_TIMEOUT"),
    ],
)
def test_failed_turn_ending_call_fails_its_turn(status: Any, error: Any, outcome: str, code: str) -> None:
    answer = CallResult("c1", status, None, error)
    _, effects = after(Hydrated(0, may_run_again=True, is_run_over=False, is_resumed=True, terminating_result=answer))
    assert delivery(effects).outcome == outcome
    assert (delivery(effects).error or {})["code"] == code


@pytest.mark.proves("L0-64")
def test_deferred_turn_is_released_with_its_reason() -> None:
    turn, effects = after(BEGIN, DeferTurn("busy", 5.0, 3))
    assert effects[-1] == DeferTurn("busy", 5.0, 3)
    assert turn.phase is Phase.ACT


@pytest.mark.proves("LC-65", "L0-80")
@pytest.mark.parametrize("events", [(), (BEGIN,)])
def test_stopped_turn_enters_terminate_and_is_delivered_as_canceled(events: tuple[Event, ...]) -> None:
    turn, effects = after(*events, Stopped("user_interrupt"))
    assert turn.phase is Phase.TERMINATE
    assert emitted(effects)[-1] == "terminated"
    assert delivery(effects).outcome == "canceled"
    assert delivery(effects).error == {"code": "CANCELED", "message": "user_interrupt", "recoverable": False}


@pytest.mark.proves("K14")
def test_once_agent_that_lost_its_worker_after_a_wait_ends_in_doubt() -> None:
    _, effects = after(Hydrated(recoveries=1, may_run_again=False, is_run_over=False, is_resumed=True))
    assert (delivery(effects).error or {})["code"] == "IN_DOUBT"


@pytest.mark.proves("LC-66")
@pytest.mark.parametrize(
    "events",
    [
        (Acted(1),), (BEGIN, BEGIN), (BEGIN, Acted(1), Acted(1)), (SuspendTurn((CALL,), "all"),), (Resolved(),),
        (DeferTurn("busy", 1.0),), (BEGIN, Stopped("no"), Stopped("no")),
    ],
)  # fmt: skip
def test_event_of_another_phase_is_rejected(events: tuple[Event, ...]) -> None:
    with pytest.raises(BadTransition):
        after(*events)


@pytest.mark.proves("L0-80")
@given(st.lists(EVENTS, max_size=6))
def test_turn_delivers_once_at_its_end_in_any_order_of_events(events: list[Event]) -> None:
    turn, delivered = FRESH, 0
    for event in events:
        try:
            turn, effects = advance(turn, event, NOW)
        except BadTransition:
            continue
        delivered += sum(isinstance(effect, Deliver) for effect in effects)
        assert delivered == (turn.phase is Phase.TERMINATE)
        given_back = any(isinstance(effect, SuspendTurn | DeferTurn) for effect in effects)
        assert (Act() in effects or given_back) == (turn.phase is Phase.ACT)
