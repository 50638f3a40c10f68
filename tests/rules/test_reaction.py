"""Which agents a signal wakes, and when a run ends."""

from typing import Any

import pytest

from heliograph.reactive.react import react_to_ending
from heliograph.signals.trace import chain
from tests.rules.reactive_kit import NOW, START, Run, agent, workflow


def chain_of(run: Run, name: str) -> list[str]:
    """From the first signal of this name to the root, by name."""
    return [signal.name for signal in reversed(chain(run.signals, run.named(name)[0].id))]


@pytest.mark.proves("SIG-20", "SIG-41")
def test_run_starts_with_its_state_and_wakes_the_subscribers_of_its_start() -> None:
    run = Run(workflow(agent("writer", START), agent("critic", ["draft:ready"])), {"topic": "t"})
    assert run.names() == ["workflow:start", "agent:activated"]
    assert run.signals[0].payload == {"state": {"topic": "t"}}
    assert run.awake() == ["writer"]


@pytest.mark.proves("SIG-22", "SIG-60", "SIG-61")
def test_activation_names_the_signal_that_triggered_it_and_leads_back_to_the_root() -> None:
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


def test_signal_that_matches_two_patterns_of_an_agent_wakes_it_once() -> None:
    run = Run(workflow(agent("source", START, emits=["a:x"]), agent("sink", ["a:*", "a:x"])))
    run.end("source")
    assert run.awake() == ["sink"]


@pytest.mark.proves("G-47")
def test_agents_wake_in_the_order_of_their_names() -> None:
    run = Run(workflow(*(agent(name, START) for name in ("zoe", "abe", "mia"))))
    assert [turn.agent for turn in run.open.values()] == ["abe", "mia", "zoe"]


def test_each_signal_wakes_an_agent_once() -> None:
    run = Run(workflow(agent("a", START, emits=["x:a"]), agent("b", START, emits=["x:b"]), agent("sink", ["x:*"])))
    run.end("a")
    run.end("b")
    assert run.awake() == ["sink", "sink"]


@pytest.mark.proves("SIG-24", "G-42")
def test_successful_turn_completes_with_its_output() -> None:
    run = Run(workflow(agent("writer", START)))
    run.end("writer", {"words": 3})
    (completed,) = run.named("agent:completed")
    assert completed.payload == {"agent": "writer", "output": {"words": 3}, "deliverable_card_id": "card_a"}
    assert completed.agent == "writer"


def test_failed_turn_emits_its_failure_and_changes_nothing() -> None:
    run = Run(workflow(agent("writer", START, updates="text", emits=["draft:ready"])), {"text": "old"})
    run.end("writer", "new", outcome="failed")
    assert run.names() == ["workflow:start", "agent:activated", "agent:failed", "workflow:end"]
    assert run.payload("agent:failed")["error"]["code"] == "ACTION_FAILED"
    assert run.view.state == {"text": "old"}


# ── Guards ──


def _raises(*_: Any) -> Any:
    raise ValueError("never mind")


@pytest.mark.proves("SIG-23", "SIG-45")
def test_false_guard_skips_the_agent_with_a_reason() -> None:
    run = Run(workflow(agent("a", START, when=lambda state: state["go"]), agent("b", START)), {"go": False})
    (skipped,) = run.named("agent:skipped")
    guard = {"verdict": False, "reads": [{"key": "go", "value": False}]}
    assert skipped.payload == {"agent": "a", "reason": "when guard false", "guard": guard}
    assert skipped.parent == run.signals[0].id
    assert run.awake() == ["b"]


def test_guard_receives_the_changed_state_and_the_signal() -> None:
    seen: list[Any] = []

    def guard(state: Any, signal: Any) -> bool:
        seen.append((state["n"], signal.name, signal.agent))
        return True

    run = Run(workflow(agent("a", START, updates="n"), agent("b", ["state:n:changed"], when=guard)), {"n": 0})
    run.end("a", 5)
    assert seen == [(5, "state:n:changed", "a")]


@pytest.mark.parametrize("guard", [_raises, lambda state: state["missing"]])
def test_raising_guard_skips_the_agent_with_its_error(guard: Any) -> None:
    run = Run(workflow(agent("a", START, when=guard)))
    assert "when guard raised" in run.payload("agent:skipped")["reason"]
    assert run.status == "ended"


def test_guard_cannot_change_the_state() -> None:
    def guard(state: Any) -> bool:
        state["notes"].append("guard was here")
        return True

    run = Run(workflow(agent("a", START, when=guard)), {"notes": []})
    run.end("a")
    assert run.end_payload["state"] == {"notes": []}


def test_guard_cannot_change_the_signal() -> None:
    def guard(_state: Any, signal: Any) -> bool:
        signal.payload["n"] = object()
        return True

    run = Run(workflow(agent("a", START, emits=["x:y"]), agent("b", ["x:y"], when=guard)))
    run.end("a", emitted=(("x:y", {"n": 1}),))
    assert run.payload("x:y") == {"n": 1}


# ── Waking oneself ──


def test_activation_of_an_agent_does_not_wake_it_again() -> None:
    run = Run(workflow(agent("starter", START), agent("watcher", ["agent:activated"])))
    assert run.awake() == ["starter", "watcher"]


def test_skipped_signals_do_not_wake_rejecting_agents_in_a_loop() -> None:
    refuses = [agent(name, ["agent:*"], when=lambda _: False) for name in ("one", "two", "three")]
    run = Run(workflow(agent("starter", START), *refuses))
    assert len(run.named("agent:skipped")) == 3
    run.end("starter")
    assert run.status == "ended"


# ── Joins ──


def _join(*patterns: str) -> Run:
    sources = [agent(name, START, emits=[f"{name}:done"]) for name in ("a", "b")]
    return Run(workflow(*sources, agent("editor", activate_when_all=list(patterns))))


@pytest.mark.proves("G-47")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_join_wakes_after_its_last_source_in_any_order_and_references_it(order: str) -> None:
    run = _join("a:done", "b:done")
    run.end(order[0])
    assert "editor" not in run.awake()
    run.end(order[1])
    assert run.awake() == ["editor"]
    assert run.turn_of("editor").cause == run.named(f"{order[1]}:done")[0].id


def test_repeated_signal_does_not_complete_a_join() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", START, emits=["b:done"]),
                       agent("editor", activate_when_all=["a:done", "b:done"])))  # fmt: skip
    run.end("a", emitted=(("a:done", 1), ("a:done", 2)))
    assert run.awake() == ["b"]


def test_join_restarts_after_it_has_woken_its_agent() -> None:
    run = Run(
        workflow(agent("a", START, emits=["x:one", "x:two"]), agent("editor", activate_when_all=["x:one", "x:two"]))
    )
    notes = (("x:one", 1), ("x:two", 1), ("x:two", 2), ("x:one", 2), ("x:one", 3))
    run.end("a", emitted=notes)
    assert run.awake() == ["editor", "editor"]


def test_join_with_a_failed_source_never_wakes_and_the_run_ends_as_failed() -> None:
    run = _join("a:done", "b:done")
    run.end("a", outcome="failed")
    run.end("b")
    assert run.end_payload["outcome"] == "failed"
    assert "editor" not in [turn.agent for turn in run.ended]


# ── Pending reactions ───────────


@pytest.mark.proves("K25")
def test_turn_ended_by_the_kernel_is_counted_and_the_run_ends_after_the_reaction() -> None:
    run = Run(workflow(agent("a", START)))
    run.end_by_kernel(run.turn_of("a"))
    assert run.status == "running"
    run.pay()
    assert run.end_payload["outcome"] == "failed"
    assert run.end_payload["metrics"]["turns"] == run.end_payload["metrics"]["failed"] == 1
    assert chain_of(run, "workflow:end")[1:3] == ["agent:activated", "agent:failed"]


@pytest.mark.proves("K25")
def test_agent_may_subscribe_to_failures_emitted_by_the_kernel() -> None:
    run = Run(workflow(agent("a", START), agent("medic", ["agent:failed"])))
    run.end_by_kernel(run.turn_of("a"))
    run.pay()
    assert run.turn_of("medic").cause == run.named("agent:failed")[0].id


def test_signal_emitted_mid_turn_wakes_others_while_the_turn_runs() -> None:
    run = Run(workflow(agent("a", START), agent("echo", ["text:delta"])))
    run.stream(run.turn_of("a"), "text:delta", {"content": "hel", "offset": 0})
    run.pay()
    assert run.awake() == ["a", "echo"]


@pytest.mark.proves("K26")
def test_run_does_not_end_while_a_reaction_is_pending() -> None:
    run = Run(workflow(agent("a", START), agent("echo", ["text:delta"], when=lambda _: False)))
    run.stream(run.turn_of("a"), "text:delta", {"content": "hel", "offset": 0})
    run.end("a")
    assert not run.open
    assert run.status == "running"
    run.pay()
    assert run.status == "ended"


# ── Versions ──


@pytest.mark.proves("K24")
def test_reaction_to_an_older_version_is_rejected_and_recomputed_with_both_endings() -> None:
    run = _join("a:done", "b:done")
    both_saw = run.view
    assert run.end("a", view=both_saw) is not None
    assert run.end("b", view=both_saw) is None
    assert run.awake() == ["b"]
    assert run.end("b") is not None
    assert run.awake() == ["editor"]


def test_equal_view_and_ending_always_produce_the_same_reaction() -> None:
    run = Run(
        workflow(agent("a", START, updates="x", emits=["a:done"]), agent("b", ["a:done"]), agent("c", ["state:**"]))
    )
    ending = run.ending("a", {"deep": [1]})
    before = repr(run.view)
    one, two = (react_to_ending(run.workflow, run.view, ending, NOW, lambda kind: f"{kind}_1") for _ in range(2))
    assert one.to_item() == two.to_item()
    assert one.drafts == two.drafts
    assert repr(run.view) == before
