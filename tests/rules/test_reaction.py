"""What a signal wakes, what an ending changes, and when a run is over: one claim at a time."""

from typing import Any

import pytest
from pydantic import BaseModel

from heliograph.errors import AgentFailed
from heliograph.reactive.reaction import OUTPUT_IN_SIGNAL_BYTES_MAX, react_to_ending
from heliograph.signals.catalog import check_standard
from heliograph.signals.model import Draft
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
    assert run.named("agent:failed")[0].payload["error"]["code"] == "ACTION_FAILED"
    assert run.view.state == {"text": "old"}


# ── State ──


@pytest.mark.proves("SIG-34", "SIG-44")
def test_a_changed_key_is_a_signal_that_wakes_who_listens_to_it() -> None:
    run = Run(workflow(agent("writer", START, updates="text"), agent("counter", ["state:text:changed"])))
    run.end("writer", "hello")
    (changed,) = run.named("state:text:changed")
    assert changed.payload["value"] == "hello"
    assert (changed.agent, changed.parent) == ("writer", run.named("agent:completed")[0].id)
    assert run.awake() == ["counter"]


def test_a_key_that_gets_the_value_it_has_is_no_change() -> None:
    run = Run(workflow(agent("writer", START, updates="text")), {"text": "same"})
    run.end("writer", "same")
    assert "state:text:changed" not in run.names()


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_a_new_key_is_a_change_whatever_its_value(value: Any) -> None:
    run = Run(workflow(agent("writer", START, updates="text")))
    run.end("writer", value)
    assert run.view.state == {"text": value}
    assert run.named("state:text:changed")


def test_several_keys_change_in_the_order_of_their_names() -> None:
    run = Run(workflow(agent("writer", START, updates=["z", "a"])))
    run.end("writer", {"z": 1, "a": 2, "more": 3})
    assert [name for name in run.names() if name.startswith("state:")] == ["state:a:changed", "state:z:changed"]
    assert run.view.state == {"z": 1, "a": 2}


@pytest.mark.parametrize("output", ["text", {"z": 1}, None, []])
def test_an_output_without_the_keys_that_it_should_update_is_the_agent_s_failure(output: Any) -> None:
    run = Run(workflow(agent("writer", START, updates=["z", "a"])))
    with pytest.raises(AgentFailed, match="z, a"):
        run.end("writer", output)


def test_a_reducer_merges_what_parallel_agents_found() -> None:
    critics = [agent(f"critic{n}", START, updates="notes") for n in range(3)]
    run = Run(workflow(*critics, reducers={"notes": lambda old, new: [*(old or []), new]}))
    for turn in list(run.open.values()):
        run.end(turn, turn.agent)
    assert run.view.state == {"notes": ["critic0", "critic1", "critic2"]}


def test_a_reducer_that_changes_its_arguments_changes_nothing_but_its_answer() -> None:
    def spoil(old: list[str], new: list[str]) -> list[str]:
        old.append("spoiled")
        new.append("spoiled")
        return ["merged"]

    run = Run(workflow(agent("a", START, updates="notes"), reducers={"notes": spoil}), {"notes": ["old"]})
    output = ["new"]
    before = run.view
    run.end("a", output)
    assert before.state == {"notes": ["old"]}
    assert output == ["new"]
    assert run.view.state == {"notes": ["merged"]}


def _raises(*_: Any) -> Any:
    raise ValueError("never mind")


def _nan(*_: Any) -> float:
    return float("nan")


@pytest.mark.parametrize("reducer", [_raises, _nan, lambda _old, _new: object()])
def test_a_reducer_that_fails_is_the_failure_of_the_agent_whose_output_it_got(reducer: Any) -> None:
    run = Run(workflow(agent("a", START, updates="n"), reducers={"n": reducer}))
    with pytest.raises(AgentFailed):
        run.end("a", 1)


class Count(BaseModel):
    n: int = 0


def test_an_output_that_does_not_fit_the_typed_state_is_the_agent_s_failure() -> None:
    run = Run(workflow(agent("a", START, updates="n"), state=Count))
    with pytest.raises(AgentFailed, match="/n"):
        run.end("a", "not a number")


def test_a_typed_state_is_stored_as_its_type_has_it() -> None:
    run = Run(workflow(agent("a", START, updates="n"), state=Count))
    run.end("a", "7")
    assert run.view.state == {"n": 7}


# ── Emitting ──


@pytest.mark.proves("SIG-35")
def test_an_agent_that_emits_nothing_itself_emits_all_it_declares_with_its_output() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one", "x:two"])))
    run.end("a", "out")
    for name in ("x:one", "x:two"):
        (signal,) = run.named(name)
        assert signal.payload == {"output": "out", "deliverable_card_id": "card_a"}
        assert (signal.agent, signal.parent) == ("a", run.named("agent:completed")[0].id)


@pytest.mark.proves("SIG-35")
def test_an_agent_that_emits_itself_emits_that_and_nothing_more() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one", "x:two"])))
    run.end("a", "out", emitted=(("x:two", 1), ("x:two", 2)))
    assert [(s.name, s.payload) for s in run.signals if s.name.startswith("x:")] == [("x:two", 1), ("x:two", 2)]


@pytest.mark.proves("S11")
def test_an_output_too_large_for_a_signal_is_left_to_its_card() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one"])))
    run.end("a", "x" * (OUTPUT_IN_SIGNAL_BYTES_MAX + 1))
    for name in ("agent:completed", "x:one"):
        payload: Any = run.named(name)[0].payload
        assert (payload["output"], payload["deliverable_card_id"]) == (None, "card_a")


def test_what_a_turn_said_comes_before_its_ending_and_can_wake_others() -> None:
    run = Run(workflow(agent("a", START), agent("b", ["harness:end"])))
    said = Draft("harness:end", {"usage": {"inputTokens": 1, "outputTokens": 2}}, "a", run.turn_of("a").activation, NOW)
    run.end("a", drafts=(said,))
    assert run.names()[2:4] == ["harness:end", "agent:completed"]
    assert run.turn_of("b").cause == run.named("harness:end")[0].id


# ── Guards ──


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
    (skipped,) = run.named("agent:skipped")
    assert "when guard raised" in skipped.payload["reason"]  # type: ignore[index,call-overload,operator]
    assert run.view.status == "ended"


def test_a_guard_that_changes_the_state_it_is_shown_changes_nothing() -> None:
    def guard(state: Any) -> bool:
        state["notes"].append("guard was here")
        return True

    run = Run(workflow(agent("a", START, when=guard)), {"notes": []})
    run.end("a")
    assert run.end_payload["state"] == {"notes": []}


# ── Waking oneself ──


def test_an_agent_does_not_wake_itself_by_waking() -> None:
    run = Run(workflow(agent("starter", START), agent("watcher", ["agent:activated"])))
    assert run.awake() == ["starter", "watcher"]


def test_agents_that_refuse_to_wake_do_not_tell_each_other_for_ever() -> None:
    refuses = [agent(name, ["agent:*"], when=lambda _: False) for name in ("one", "two", "three")]
    run = Run(workflow(agent("starter", START), *refuses))
    assert len(run.named("agent:skipped")) == 3
    run.end("starter")
    assert run.view.status == "ended"


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
    assert run.view.status == "terminating"
    assert "workflow:terminating" in run.names()


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
    run = Run(workflow(agent("a", START, emits=["x:one", "x:two"]), agent("editor", activate_when_all=["x:one", "x:two"])))
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


@pytest.mark.proves("G-12")
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
    assert run.view.status == "running"
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


@pytest.mark.proves("SIG-43")
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
    assert run.view.status == "running"
    run.pay()
    assert run.view.status == "ended"


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
    run = Run(workflow(agent("a", START, updates="x", emits=["a:done"]), agent("b", ["a:done"]), agent("c", ["state:**"])))
    ending = run.ending("a", {"deep": [1]})
    before = repr(run.view)
    one, two = (react_to_ending(run.workflow, run.view, ending, NOW, lambda kind: f"{kind}_1") for _ in range(2))
    assert one.to_item() == two.to_item()
    assert one.drafts == two.drafts
    assert repr(run.view) == before
