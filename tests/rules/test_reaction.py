"""What a signal wakes, and when a run is over: one claim at a time."""

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.reactive.reaction import react_to_ending
from heliograph.signals.catalog import check_standard
from heliograph.signals.trace import chain
from tests.rules.reactive_kit import NOW, START, Run, agent, workflow


def chain_of(run: Run, name: str) -> list[str]:
    """From the first signal of this name to the root, by name."""
    return [signal.name for signal in reversed(chain(run.signals, run.named(name)[0].id))]


@pytest.mark.proves("SIG-20", "SIG-41")
def test_a_run_begins_with_its_state_and_wakes_who_listens_to_that() -> None:
    run = Run(workflow(agent("writer", START), agent("critic", ["draft:ready"])), {"topic": "t"})
    assert run.names() == ["workflow:start", "agent:activated"]
    assert run.signals[0].payload == {"state": {"topic": "t"}}
    assert run.awake() == ["writer"]


@pytest.mark.proves("SIG-22", "SIG-60", "SIG-61")
def test_an_activation_names_the_signal_that_triggered_it_and_leads_back_to_the_root() -> None:
    run = Run(workflow(agent("writer", START, emits=["draft:ready"]), agent("critic", ["draft:ready"])))
    run.end("writer", "text")
    activated = run.named("agent:activated")[1]
    assert activated.payload == {"agent": "critic"}
    assert activated.parent == run.named("draft:ready")[0].id == run.turn_of("critic").cause
    assert [signal.name for signal in chain(run.signals, activated.id)][-1] == "workflow:start"
    assert len(chain(run.signals, activated.id)) == 5


@pytest.mark.proves("SIG-40", "SIG-42")
@pytest.mark.parametrize("woken_by", ["a:x", "b:x"])
def test_any_of_several_patterns_wakes_an_agent(woken_by: str) -> None:
    run = Run(workflow(agent("source", START, emits=[woken_by]), agent("sink", ["a:*", "b:x", "c:**"])))
    run.end("source")
    assert run.awake() == ["sink"]


def test_a_signal_that_matches_two_patterns_of_an_agent_wakes_it_once() -> None:
    run = Run(workflow(agent("source", START, emits=["a:x"]), agent("sink", ["a:*", "a:x"])))
    run.end("source")
    assert run.awake() == ["sink"]


@pytest.mark.proves("G-47")
def test_agents_wake_in_the_order_of_their_names() -> None:
    run = Run(workflow(*(agent(name, START) for name in ("zoe", "abe", "mia"))))
    assert [turn.agent for turn in run.open.values()] == ["abe", "mia", "zoe"]


def test_one_agent_is_woken_once_by_each_signal() -> None:
    run = Run(workflow(agent("a", START, emits=["x:a"]), agent("b", START, emits=["x:b"]), agent("sink", ["x:*"])))
    run.end("a")
    run.end("b")
    assert run.awake() == ["sink", "sink"]


@pytest.mark.proves("SIG-24", "G-42")
def test_a_turn_that_went_well_completes_with_its_output() -> None:
    run = Run(workflow(agent("writer", START)))
    run.end("writer", {"words": 3})
    (completed,) = run.named("agent:completed")
    assert completed.payload == {"agent": "writer", "output": {"words": 3}, "deliverable_card_id": "card_a"}
    assert completed.agent == "writer"


def test_a_turn_that_failed_says_so_and_changes_and_emits_nothing() -> None:
    run = Run(workflow(agent("writer", START, updates="text", emits=["draft:ready"])), {"text": "old"})
    run.end("writer", "new", outcome="failed")
    assert run.names() == ["workflow:start", "agent:activated", "agent:failed", "workflow:end"]
    assert run.payload("agent:failed")["error"]["code"] == "ACTION_FAILED"
    assert run.view.state == {"text": "old"}


# ── Guards ──


def _raises(*_: Any) -> Any:
    raise ValueError("never mind")


@pytest.mark.proves("SIG-23", "SIG-45")
def test_a_false_guard_skips_the_agent_and_says_why() -> None:
    run = Run(workflow(agent("a", START, when=lambda state: state["go"]), agent("b", START)), {"go": False})
    (skipped,) = run.named("agent:skipped")
    assert skipped.payload == {"agent": "a", "reason": "when guard false"}
    assert skipped.parent == run.signals[0].id
    assert run.awake() == ["b"]


def test_a_guard_sees_the_state_after_the_change_and_the_signal_that_came() -> None:
    seen: list[Any] = []

    def guard(state: Any, signal: Any) -> bool:
        seen.append((state["n"], signal.name, signal.agent))
        return True

    run = Run(workflow(agent("a", START, updates="n"), agent("b", ["state:n:changed"], when=guard)), {"n": 0})
    run.end("a", 5)
    assert seen == [(5, "state:n:changed", "a")]


@pytest.mark.parametrize("guard", [_raises, lambda state: state["missing"]])
def test_a_guard_that_raises_skips_the_agent_and_says_what_it_raised(guard: Any) -> None:
    run = Run(workflow(agent("a", START, when=guard)))
    assert "when guard raised" in run.payload("agent:skipped")["reason"]
    assert run.status == "ended"


def test_a_guard_that_changes_the_state_it_is_shown_changes_nothing() -> None:
    def guard(state: Any) -> bool:
        state["notes"].append("guard was here")
        return True

    run = Run(workflow(agent("a", START, when=guard)), {"notes": []})
    run.end("a")
    assert run.end_payload["state"] == {"notes": []}


def test_a_guard_that_changes_the_signal_it_is_shown_changes_nothing() -> None:
    def guard(_state: Any, signal: Any) -> bool:
        signal.payload["n"] = object()
        return True

    run = Run(workflow(agent("a", START, emits=["x:y"]), agent("b", ["x:y"], when=guard)))
    run.end("a", emitted=(("x:y", {"n": 1}),))
    assert run.payload("x:y") == {"n": 1}


# ── Waking oneself ──


def test_an_agent_does_not_wake_itself_by_waking() -> None:
    run = Run(workflow(agent("starter", START), agent("watcher", ["agent:activated"])))
    assert run.awake() == ["starter", "watcher"]


def test_agents_that_refuse_to_wake_do_not_tell_each_other_for_ever() -> None:
    refuses = [agent(name, ["agent:*"], when=lambda _: False) for name in ("one", "two", "three")]
    run = Run(workflow(agent("starter", START), *refuses))
    assert len(run.named("agent:skipped")) == 3
    run.end("starter")
    assert run.status == "ended"


@pytest.mark.proves("G-47", "S12")
def test_a_loop_stops_at_the_limit_of_activations_and_the_run_fails_with_that_reason() -> None:
    run = Run(workflow(agent("a", [*START, "b:done"], emits=["a:done"]), agent("b", ["a:done"], emits=["b:done"]),
                       max_activations=5))  # fmt: skip
    while run.open:
        run.end(next(iter(run.open.values())))
    assert run.end_payload["outcome"] == "failed"
    assert run.end_payload["reason"] == "activation limit of 5 reached"
    assert run.end_payload["metrics"]["activations"] == 5


def test_the_limit_can_be_reached_in_one_reaction_and_is_not_passed() -> None:
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
    run.view = replace(run.view, activations=6, open_turns=2)  # five delegations, the last of which is open
    reaction = react_to_ending(run.workflow, run.view, run.ending("a"), NOW, run.new_id)
    assert (reaction.status, reaction.stops) == (
        "terminating",
        {"turns": "all", "reason": "activation limit of 5 reached"},
    )


@pytest.mark.proves("G-47")
def test_message_from_outside_begins_the_count_anew() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", ["a:done"]), max_activations=2))
    run.view = replace(run.view, activations=9, memory={**run.view.memory, "activations_before": 8})
    reaction = react_to_ending(run.workflow, run.view, run.ending("a"), NOW, run.new_id)
    assert [each["agent"] for each in reaction.activations] == ["b"]
    assert reaction.stops is None


@pytest.mark.proves("G-42")
def test_goal_that_is_met_stops_turns_that_wait_for_people() -> None:
    run = Run(workflow(agent("a", START, updates="x"), agent("b", START), end_when=lambda state: "x" in state))
    reaction = react_to_ending(run.workflow, run.view, run.ending("a", 1), NOW, run.new_id)
    assert reaction.stops == {"turns": "people", "reason": "end_when"}


def test_run_in_which_no_agent_is_activated_fails_and_says_so() -> None:
    run = Run(workflow(agent("a", ["workflow:strat"])))
    assert run.end_payload["outcome"] == "failed"
    assert (run.end_payload["code"], run.end_payload["reason"]) == (
        "NOTHING_RAN",
        "no agent ran: none is activated by workflow:start",
    )


def test_run_in_which_every_guard_refuses_fails_and_names_the_guards() -> None:
    run = Run(workflow(agent("a", START, when=lambda _: False)))
    assert (run.end_payload["outcome"], run.end_payload["code"]) == ("failed", "NOTHING_RAN")
    assert run.end_payload["reason"] == "no agent ran: a was skipped (when guard false)"


def test_run_whose_goal_is_met_at_its_start_succeeds_without_a_turn() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: True))
    assert run.end_payload["outcome"] == "success"


# ── Joins ──


def _join(*patterns: str) -> Run:
    sources = [agent(name, START, emits=[f"{name}:done"]) for name in ("a", "b")]
    return Run(workflow(*sources, agent("editor", activate_when_all=list(patterns))))


@pytest.mark.proves("G-47")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_join_wakes_when_each_has_come_in_any_order_and_answers_to_the_last(order: str) -> None:
    run = _join("a:done", "b:done")
    run.end(order[0])
    assert "editor" not in run.awake()
    run.end(order[1])
    assert run.awake() == ["editor"]
    assert run.turn_of("editor").cause == run.named(f"{order[1]}:done")[0].id


def test_the_same_signal_again_does_not_complete_a_join() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", START, emits=["b:done"]),
                       agent("editor", activate_when_all=["a:done", "b:done"])))  # fmt: skip
    run.end("a", emitted=(("a:done", 1), ("a:done", 2)))
    assert run.awake() == ["b"]


def test_a_join_begins_anew_once_it_has_woken() -> None:
    run = Run(
        workflow(agent("a", START, emits=["x:one", "x:two"]), agent("editor", activate_when_all=["x:one", "x:two"]))
    )
    said = (("x:one", 1), ("x:two", 1), ("x:two", 2), ("x:one", 2), ("x:one", 3))
    run.end("a", emitted=said)
    assert run.awake() == ["editor", "editor"]


def test_a_join_with_a_failed_source_never_wakes_and_the_run_ends_as_failed() -> None:
    run = _join("a:done", "b:done")
    run.end("a", outcome="failed")
    run.end("b")
    assert run.end_payload["outcome"] == "failed"
    assert "editor" not in [turn.agent for turn in run.ended]


# ── The end ──


@pytest.mark.proves("SIG-21")
def test_a_run_ends_with_its_state_its_outcome_and_its_metrics() -> None:
    run = Run(workflow(agent("a", START, updates="x"), agent("b", START, when=lambda _: False)))
    run.end("a", 1)
    assert run.names()[-1] == "workflow:end"
    assert run.end_payload["state"] == {"x": 1}
    assert run.end_payload["outcome"] == "success"
    metrics = {"turns": 1, "failed": 0, "skipped": 1, "activations": 1,
               "usage": {"inputTokens": 0, "outputTokens": 0}, "duration_ms": 0}  # fmt: skip
    assert run.end_payload["metrics"] == metrics


def test_a_run_that_wakes_nobody_ends_at_once() -> None:
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


def test_the_goal_stops_waking_and_the_turns_in_flight_still_end() -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START, emits=["b:done"]), agent("c", ["b:done"]),
                       end_when=lambda state: state["done"]), {"done": False})  # fmt: skip
    run.end("a", True)
    (terminating,) = run.named("workflow:terminating")
    assert terminating.payload == {"reason": "end_when"}
    assert check_standard(terminating.name, terminating.payload) == []
    run.end("b")
    assert run.end_payload["outcome"] == "success"
    assert [turn.agent for turn in run.ended] == ["a", "b"]


def test_a_goal_that_was_not_met_is_never_reported_as_met() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: False))
    run.end("a")
    assert run.end_payload["outcome"] == "partial"


def test_a_goal_that_is_met_already_ends_the_run_before_it_wakes_anybody() -> None:
    run = Run(workflow(agent("a", START), end_when=lambda _: True))
    assert run.names() == ["workflow:start", "workflow:end"]
    assert run.end_payload["outcome"] == "success"


def test_a_goal_that_cannot_be_judged_fails_the_run_with_the_reason() -> None:
    run = Run(workflow(agent("a", START, updates="n"), end_when=lambda state: state["n"] > 1), {"n": 0})
    run.end("a", "many")
    assert run.end_payload["outcome"] == "failed"
    assert "end_when raised TypeError" in run.end_payload["reason"]


# ── What nobody had reacted to ──


@pytest.mark.proves("K25")
def test_a_turn_that_the_kernel_ended_is_counted_and_the_run_ends_after_the_reaction() -> None:
    run = Run(workflow(agent("a", START)))
    run.end_by_kernel(run.turn_of("a"))
    assert run.status == "running"
    run.pay()
    assert run.end_payload["outcome"] == "failed"
    assert run.end_payload["metrics"]["turns"] == run.end_payload["metrics"]["failed"] == 1
    assert chain_of(run, "workflow:end")[1:3] == ["agent:activated", "agent:failed"]


@pytest.mark.proves("K25")
def test_an_agent_may_listen_to_failures_of_which_the_kernel_tells() -> None:
    run = Run(workflow(agent("a", START), agent("medic", ["agent:failed"])))
    run.end_by_kernel(run.turn_of("a"))
    run.pay()
    assert run.turn_of("medic").cause == run.named("agent:failed")[0].id


def test_a_signal_in_the_middle_of_a_turn_wakes_others_while_the_turn_runs() -> None:
    run = Run(workflow(agent("a", START), agent("echo", ["text:delta"])))
    run.stream(run.turn_of("a"), "text:delta", {"content": "hel", "offset": 0})
    run.pay()
    assert run.awake() == ["a", "echo"]


@pytest.mark.proves("K26")
def test_a_run_does_not_end_while_a_reaction_is_owed() -> None:
    run = Run(workflow(agent("a", START), agent("echo", ["text:delta"], when=lambda _: False)))
    run.stream(run.turn_of("a"), "text:delta", {"content": "hel", "offset": 0})
    run.end("a")
    assert not run.open
    assert run.status == "running"
    run.pay()
    assert run.status == "ended"


# ── Stopped from outside ──


@pytest.mark.proves("K12", "K26", "L0-87")
def test_a_run_that_was_stopped_wakes_nobody_more_and_ends_as_canceled_with_the_reason() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", ["a:done", "agent:failed"]), agent("c", START)))
    run.stop("enough")
    run.end_by_kernel(run.turn_of("c"), "canceled")
    run.end("a", outcome="canceled")
    assert (run.awake(), run.status) == ([], "terminating")
    run.pay()
    assert (run.status, run.end_payload["outcome"], run.end_payload["reason"]) == ("ended", "canceled", "enough")
    assert run.end_payload["metrics"]["failed"] == 0


def test_a_run_that_owes_when_it_is_stopped_ends_with_what_it_pays() -> None:
    run = Run(workflow(agent("a", START), agent("medic", ["agent:failed"])))
    run.end_by_kernel(run.turn_of("a"))
    run.stop("enough")
    run.pay()
    assert (run.awake(), run.end_payload["outcome"]) == ([], "canceled")


def test_a_goal_that_was_met_before_the_run_was_stopped_stays_met() -> None:
    run = Run(workflow(agent("a", START, updates="done"), agent("b", START), end_when=lambda state: state["done"]),
              {"done": False})  # fmt: skip
    run.end("a", True)
    run.stop("enough")
    run.end_by_kernel(run.turn_of("b"), "canceled")
    run.pay()
    assert (run.end_payload["outcome"], run.end_payload["reason"]) == ("success", "end_when")


def test_a_turn_that_was_stopped_is_no_failure_whoever_ended_it() -> None:
    for by_kernel in (True, False):
        run = Run(workflow(agent("a", START), agent("b", START)))
        if by_kernel:
            run.end_by_kernel(run.turn_of("a"), "canceled")
            run.pay()
        else:
            run.end("a", outcome="canceled")
        run.end("b")
        assert (run.end_payload["outcome"], run.end_payload["metrics"]["failed"]) == ("success", 0)


# ── Versions ──


@pytest.mark.proves("K24")
def test_a_reaction_to_an_older_version_is_refused_and_computed_again_it_counts_both() -> None:
    run = _join("a:done", "b:done")
    both_saw = run.view
    assert run.end("a", view=both_saw) is not None
    assert run.end("b", view=both_saw) is None
    assert run.awake() == ["b"]
    assert run.end("b") is not None
    assert run.awake() == ["editor"]


def test_the_same_view_and_the_same_ending_always_give_the_same_reaction() -> None:
    run = Run(
        workflow(agent("a", START, updates="x", emits=["a:done"]), agent("b", ["a:done"]), agent("c", ["state:**"]))
    )
    ending = run.ending("a", {"deep": [1]})
    before = repr(run.view)
    one, two = (react_to_ending(run.workflow, run.view, ending, NOW, lambda kind: f"{kind}_1") for _ in range(2))
    assert one.to_item() == two.to_item()
    assert one.drafts == two.drafts
    assert repr(run.view) == before


def test_reason_that_quotes_the_exception_of_end_when_is_untrusted() -> None:
    def ends(state: dict[str, Any]) -> bool:
        return bool(state["mail"] and {}[state["mail"]])

    run = Run(workflow(agent("reader", START, updates="mail"), agent("other", START), end_when=ends), {"mail": ""})
    reaction = run.end("reader", "pay Mallory", is_untrusted=True)
    assert reaction is not None
    drafts = {draft.name: draft for draft in reaction.drafts}
    assert "pay Mallory" in str(drafts["workflow:terminating"].payload)
    assert drafts["workflow:terminating"].is_untrusted
