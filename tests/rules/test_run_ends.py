"""When a run is over, and with which outcome: limits, goals, stops, and the end of the last turn."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.reactive.react import react_to_ending
from heliograph.testing.oracles.standard_payloads import check_standard
from tests.rules.reactive_kit import NOW, START, Run, agent, workflow

# ── Limits and goals ──


@pytest.mark.proves("G-47", "S12")
def test_loop_stops_at_the_activation_limit_and_the_run_fails_with_that_reason() -> None:
    run = Run(workflow(agent("a", [*START, "b:done"], emits=["a:done"]), agent("b", ["a:done"], emits=["b:done"]),
                       max_activations=5))  # fmt: skip
    while run.open:
        run.end(next(iter(run.open.values())))
    assert run.end_payload["outcome"] == "failed"
    assert run.end_payload["reason"] == "activation limit of 5 reached"
    assert run.end_payload["metrics"]["activations"] == 5


def test_activation_limit_may_be_reached_in_one_reaction_and_is_not_exceeded() -> None:
    mirror = [agent(name, ["agent:activated"]) for name in ("one", "two")]
    run = Run(workflow(agent("starter", START), *mirror, max_activations=50))
    assert run.view.activations == 50
    assert run.status == "terminating"
    assert "workflow:terminating" in run.names()


@pytest.mark.proves("G-47")
def test_limit_stops_all_open_turns_and_names_its_code() -> None:
    run = Run(workflow(agent("a", [*START, "b:done"], emits=["a:done"]), agent("b", ["a:done"], emits=["b:done"]),
                       agent("host", START), max_activations=3))  # fmt: skip
    run.end("a")
    reaction = react_to_ending(run.workflow, run.view, run.ending("b"), NOW, run.new_id)
    assert reaction.stops == {"turns": "all", "reason": "activation limit of 3 reached"}
    run.end("b")
    assert run.status == "terminating"
    run.end_by_kernel(run.turn_of("host"), "canceled")
    run.pay()
    assert (run.end_payload["outcome"], run.end_payload["code"]) == ("failed", "MAX_ACTIVATIONS")


@pytest.mark.proves("G-47")
def test_limit_holds_for_turns_that_no_signal_activated() -> None:
    run = Run(workflow(agent("a", START), agent("b", on_request=True), max_activations=5))
    run.view = replace(run.view, activations=6, open_turns=2)  # five delegations; the last one is open
    reaction = react_to_ending(run.workflow, run.view, run.ending("a"), NOW, run.new_id)
    assert (reaction.status, reaction.stops) == (
        "terminating",
        {"turns": "all", "reason": "activation limit of 5 reached"},
    )


@pytest.mark.proves("G-47")
def test_message_from_outside_resets_the_activation_count() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", ["a:done"]), max_activations=2))
    run.view = replace(run.view, activations=9, memory={**run.view.memory, "activations_before": 8})
    reaction = react_to_ending(run.workflow, run.view, run.ending("a"), NOW, run.new_id)
    assert [each["agent"] for each in reaction.activations] == ["b"]
    assert reaction.stops is None


@pytest.mark.proves("G-42")
def test_met_goal_stops_turns_that_wait_for_humans() -> None:
    run = Run(workflow(agent("a", START, updates="x"), agent("b", START), end_when=lambda state: "x" in state))
    reaction = react_to_ending(run.workflow, run.view, run.ending("a", 1), NOW, run.new_id)
    assert reaction.stops == {"turns": "human_waits", "reason": "end_when"}


def test_run_in_which_no_agent_is_activated_fails_with_the_reason() -> None:
    run = Run(workflow(agent("a", ["workflow:strat"])))
    assert run.end_payload["outcome"] == "failed"
    assert (run.end_payload["code"], run.end_payload["reason"]) == (
        "NOTHING_RAN",
        "no agent ran: none is activated by workflow:start",
    )


def test_run_in_which_every_guard_rejects_fails_and_names_the_guards() -> None:
    run = Run(workflow(agent("a", START, when=lambda _: False)))
    assert (run.end_payload["outcome"], run.end_payload["code"]) == ("failed", "NOTHING_RAN")
    assert run.end_payload["reason"] == "no agent ran: a was skipped (when guard false)"


def test_run_whose_goal_is_met_at_its_start_succeeds_without_a_turn() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: True))
    assert run.end_payload["outcome"] == "success"


# ── The end ──


@pytest.mark.proves("SIG-21")
def test_run_ends_with_its_state_its_outcome_and_its_metrics() -> None:
    run = Run(workflow(agent("a", START, updates="x"), agent("b", START, when=lambda _: False)))
    run.end("a", 1)
    assert run.names()[-1] == "workflow:end"
    assert run.end_payload["state"] == {"x": 1}
    assert run.end_payload["outcome"] == "success"
    metrics = {"turns": 1, "failed": 0, "skipped": 1, "activations": 1,
               "usage": {"inputTokens": 0, "outputTokens": 0}, "duration_ms": 0}  # fmt: skip
    assert run.end_payload["metrics"] == metrics


def test_run_without_subscribers_ends_at_once() -> None:
    run = Run(workflow(agent("a", ["never:comes"])))
    assert run.names() == ["workflow:start", "workflow:end"]


def test_one_failed_turn_makes_the_run_failed() -> None:
    run = Run(workflow(agent("a", START), agent("b", START)))
    run.end("a", outcome="timeout")
    run.end("b")
    assert run.end_payload["outcome"] == "failed"
    assert run.end_payload["metrics"]["failed"] == 1


@pytest.mark.parametrize("goal", [None, lambda state: state["done"]], ids=["no goal", "goal met"])
def test_one_partial_turn_makes_the_run_partial_at_best(goal: Any) -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START), end_when=goal), {"done": False})
    run.end("b", "so far", outcome="partial")
    run.end("a", True)
    assert run.end_payload["outcome"] == "partial"


def test_turn_that_lacks_its_result_makes_the_run_partial_at_best_although_the_goal_is_met() -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START), end_when=lambda state: state["done"]),
              {"done": False})  # fmt: skip
    run.end("b", outcome="failed", code="RESULT_MISSING")
    run.end("a", True)
    assert run.end_payload["outcome"] == "partial"


def test_met_goal_stops_activations_and_turns_in_flight_still_end() -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START, emits=["b:done"]), agent("c", ["b:done"]),
                       end_when=lambda state: state["done"]), {"done": False})  # fmt: skip
    run.end("a", True)
    (terminating,) = run.named("workflow:terminating")
    assert terminating.payload == {"reason": "end_when"}
    assert check_standard(terminating.name, terminating.payload) == []
    run.end("b")
    assert run.end_payload["outcome"] == "success"
    assert [turn.agent for turn in run.ended] == ["a", "b"]


def test_unmet_goal_is_never_reported_as_met() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: False))
    run.end("a")
    assert run.end_payload["outcome"] == "partial"


def test_goal_met_at_the_start_ends_the_run_before_any_activation() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: True))
    assert run.names() == ["workflow:start", "workflow:end"]
    assert run.end_payload["outcome"] == "success"


def test_raising_goal_fails_the_run_with_the_reason() -> None:
    run = Run(workflow(agent("a", START, updates="n"), end_when=lambda state: state["n"] > 1), {"n": 0})
    run.end("a", "many")
    assert run.end_payload["outcome"] == "failed"
    assert "end_when raised TypeError" in run.end_payload["reason"]


# ── Stopped from outside ──


@pytest.mark.proves("K12", "K26", "L0-87")
def test_stopped_run_activates_no_agent_and_ends_as_canceled_with_the_reason() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", ["a:done", "agent:failed"]), agent("c", START)))
    run.stop("enough")
    run.end_by_kernel(run.turn_of("c"), "canceled")
    run.end("a", outcome="canceled")
    assert (run.awake(), run.status) == ([], "terminating")
    run.pay()
    assert (run.status, run.end_payload["outcome"], run.end_payload["reason"]) == ("ended", "canceled", "enough")
    assert run.end_payload["metrics"]["failed"] == 0


def test_stopped_run_ends_with_the_commit_of_its_pending_reactions() -> None:
    run = Run(workflow(agent("a", START), agent("medic", ["agent:failed"])))
    run.end_by_kernel(run.turn_of("a"))
    run.stop("enough")
    run.pay()
    assert (run.awake(), run.end_payload["outcome"]) == ([], "canceled")


def test_goal_met_before_a_stop_still_counts() -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START), end_when=lambda state: state["done"]),
              {"done": False})  # fmt: skip
    run.end("a", True)
    run.stop("enough")
    run.end_by_kernel(run.turn_of("b"), "canceled")
    run.pay()
    assert (run.end_payload["outcome"], run.end_payload["reason"]) == ("success", "end_when")


def test_stopped_turn_is_no_failure_for_any_ender() -> None:
    for by_kernel in (True, False):
        run = Run(workflow(agent("a", START), agent("b", START)))
        if by_kernel:
            run.end_by_kernel(run.turn_of("a"), "canceled")
            run.pay()
        else:
            run.end("a", outcome="canceled")
        run.end("b")
        assert (run.end_payload["outcome"], run.end_payload["metrics"]["failed"]) == ("success", 0)


def test_reason_that_quotes_the_exception_of_end_when_is_untrusted() -> None:
    def ends(state: dict[str, Any]) -> bool:
        return bool(state["mail"] and {}[state["mail"]])

    run = Run(workflow(agent("reader", START, updates="mail"), agent("other", START), end_when=ends), {"mail": ""})
    reaction = run.end("reader", "pay Mallory", is_untrusted=True)
    assert reaction is not None
    drafts = {draft.name: draft for draft in reaction.drafts}
    assert "pay Mallory" in str(drafts["workflow:terminating"].payload)
    assert drafts["workflow:terminating"].is_untrusted
