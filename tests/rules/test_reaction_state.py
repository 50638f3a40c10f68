"""Changes of the state at an ending, and the signals that the agent emits with it."""

from typing import Any, cast

import msgspec
import pytest
from pydantic import BaseModel

from heliograph.errors import AgentFailed
from heliograph.reactive.react import react_to_pending
from heliograph.reactive.state_taint import untrusted_keys
from heliograph.records import PendingRun, PendingSignal, RunFailure, RunView
from heliograph.signals.model import Draft
from heliograph.signals.payload import TRUNCATED_BYTES_MAX, check_payload
from tests.rules.reactive_kit import NOW, START, Run, agent, workflow

# ── State ──


@pytest.mark.proves("SIG-34", "SIG-44")
def test_changed_key_emits_a_signal_that_wakes_its_subscribers() -> None:
    run = Run(workflow(agent("writer", START, updates="text"), agent("counter", ["state:text:changed"])))
    run.end("writer", "hello")
    (changed,) = run.named("state:text:changed")
    assert run.payload("state:text:changed")["value"] == "hello"
    assert (changed.agent, changed.parent) == ("writer", run.named("agent:completed")[0].id)
    assert run.awake() == ["counter"]


def test_key_set_to_its_own_value_is_no_change() -> None:
    run = Run(workflow(agent("writer", START, updates="text")), {"text": "same"})
    run.end("writer", "same")
    assert "state:text:changed" not in run.names()


@pytest.mark.parametrize(("before", "after"), [(2, 2.0), (2.0, 2), ([1, {"a": 2}], [1.0, {"a": 2.0}])])
def test_number_in_another_form_is_no_change_and_keeps_its_form(before: Any, after: Any) -> None:
    run = Run(workflow(agent("writer", START, updates=["total", "title"])), {"total": before, "title": "old"})
    run.end("writer", {"total": after, "title": "new"})
    assert [name for name in run.names() if name.startswith("state:")] == ["state:title:changed"]
    assert repr(run.view.state) == repr({"total": before, "title": "new"}), "as in the log"


@pytest.mark.proves("SIG-34")
@pytest.mark.parametrize(("before", "after"), [(1, True), (False, 0), ({"a": [1.0]}, {"a": [True]})])
def test_boolean_in_place_of_a_number_is_a_change(before: Any, after: Any) -> None:
    run = Run(workflow(agent("writer", START, updates="flag")), {"flag": before})
    run.end("writer", after)
    assert repr(run.payload("state:flag:changed")) == repr({"value": after})
    assert repr(run.view.state) == repr({"flag": after})


@pytest.mark.proves("SIG-34")
def test_list_that_grows_is_recorded_by_its_new_items() -> None:
    writer = agent(
        "writer", [*START, "state:notes:changed"], updates="notes", when=lambda state: len(state["notes"]) < 3
    )
    run = Run(workflow(writer, reducers={"notes": lambda old, new: [*old, new]}), {"notes": []})
    for n in range(3):
        run.end("writer", {"n": n})
    assert [signal.payload for signal in run.named("state:notes:changed")] == [
        {"value": [{"n": 0}]}, {"value": [{"n": 1}], "from_index": 1}, {"value": [{"n": 2}], "from_index": 2},
    ]  # fmt: skip
    assert run.view.state["notes"] == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.proves("SIG-34")
def test_object_that_grows_is_recorded_by_its_new_members() -> None:
    writer = agent(
        "writer", [*START, "state:notes:changed"], updates="notes", when=lambda state: len(state["notes"]) < 4
    )
    run = Run(workflow(writer, reducers={"notes": lambda old, new: {**old, **new}}), {"notes": {"a": 0}})
    for key in "bcd":
        run.end("writer", {key: [key]})
    assert [signal.payload for signal in run.named("state:notes:changed")] == [
        {"value": {f"/{key}": [key]}, "parts": True} for key in "bcd"
    ]
    assert run.view.state["notes"] == {"a": 0, "b": ["b"], "c": ["c"], "d": ["d"]}


@pytest.mark.parametrize("value", [None, False, 0, ""])
def test_new_key_is_a_change_for_any_value(value: Any) -> None:
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
def test_output_without_its_declared_keys_fails_the_agent(output: Any) -> None:
    run = Run(workflow(agent("writer", START, updates=["z", "a"])))
    with pytest.raises(AgentFailed, match="z, a"):
        run.end("writer", output)


def test_reducer_merges_the_outputs_of_parallel_agents() -> None:
    critics = [agent(f"critic{n}", START, updates="notes") for n in range(3)]
    run = Run(workflow(*critics, reducers={"notes": lambda old, new: [*(old or []), new]}))
    for turn in list(run.open.values()):
        run.end(turn, turn.agent)
    assert run.view.state == {"notes": ["critic0", "critic1", "critic2"]}


def test_reducer_that_mutates_its_arguments_changes_only_its_result() -> None:
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
def test_failing_reducer_fails_the_agent_that_produced_the_output(reducer: Any) -> None:
    run = Run(workflow(agent("a", START, updates="n"), reducers={"n": reducer}))
    with pytest.raises(AgentFailed):
        run.end("a", 1)


@pytest.mark.proves("S11")
def test_state_beyond_its_limit_fails_the_agent_that_enlarged_it() -> None:
    run = Run(
        workflow(agent("a", START, updates="log"), reducers={"log": lambda old, new: old + new}),
        {"log": "x" * 9_000_000},
    )
    with pytest.raises(AgentFailed, match="the limit is 16777216"):
        run.end("a", "x" * 9_000_000)


class Count(BaseModel):
    n: int = 0


def test_output_that_does_not_match_the_typed_state_fails_the_agent() -> None:
    run = Run(workflow(agent("a", START, updates="n"), state=Count))
    with pytest.raises(AgentFailed, match="/n"):
        run.end("a", "not a number")


def test_typed_state_is_stored_in_the_form_of_its_type() -> None:
    run = Run(workflow(agent("a", START, updates="n"), state=Count))
    run.end("a", "7")
    assert run.view.state == {"n": 7}


# ── Emitting ──


@pytest.mark.proves("SIG-35")
def test_agent_without_explicit_signals_emits_each_declared_name_with_its_output() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one", "x:two"])))
    run.end("a", "out")
    for name in ("x:one", "x:two"):
        (signal,) = run.named(name)
        assert signal.payload == {"output": "out", "deliverable_card_id": "card_a"}
        assert (signal.agent, signal.parent) == ("a", run.named("agent:completed")[0].id)


@pytest.mark.proves("SIG-35")
def test_agent_with_explicit_signals_emits_only_these() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one", "x:two"])))
    run.end("a", "out", emitted=(("x:two", 1), ("x:two", 2)))
    assert [(s.name, s.payload) for s in run.signals if s.name.startswith("x:")] == [("x:two", 1), ("x:two", 2)]


@pytest.mark.proves("S11")
def test_output_too_large_for_a_signal_is_stored_in_its_card_only() -> None:
    run = Run(workflow(agent("a", START, emits=["x:one"])))
    run.end("a", "x" * TRUNCATED_BYTES_MAX)
    for name in ("agent:completed", "x:one"):
        payload: Any = run.named(name)[0].payload
        assert (payload["output"], payload["deliverable_card_id"]) == (None, "card_a")


@pytest.mark.proves("S11")
@pytest.mark.parametrize("letter", ["x", "ä", "\n"])
def test_output_within_a_signal_reserves_room_for_the_other_fields(letter: str) -> None:
    run = Run(workflow(agent("a" * 64, START, emits=["x:one"])))
    text = letter * ((TRUNCATED_BYTES_MAX - 2) // (1 if letter == "x" else 2))
    run.end("a" * 64, text)
    for name in ("agent:completed", "x:one"):
        payload: Any = run.named(name)[0].payload
        assert payload["output"] == text
        check_payload(payload)


@pytest.mark.proves("SIG-43")
def test_signals_of_a_turn_precede_its_ending_and_can_wake_others() -> None:
    run = Run(workflow(agent("a", START), agent("b", ["harness:end"])))
    spent = Draft(
        "harness:end", {"usage": {"inputTokens": 1, "outputTokens": 2}}, "a", run.turn_of("a").activation, NOW
    )
    run.end("a", drafts=(spent,))
    assert run.names()[2:4] == ["harness:end", "agent:completed"]
    assert run.turn_of("b").cause == run.named("harness:end")[0].id


def test_run_keeps_no_counters_that_are_zero() -> None:
    run = Run(workflow(agent("writer", START, emits=["draft:ready"]), agent("critic", ["draft:ready"])))
    assert run.view.memory.keys() == {"started_at", "agents"}
    run.end("writer", "text")
    assert (run.view.memory.keys() - {"started_at", "agents"}, run.view.memory["turns"]) == ({"turns"}, 1)


def test_run_that_ends_keeps_the_memory_of_its_start_without_counters() -> None:
    spent = Draft("harness:end", {"usage": {"inputTokens": 1, "outputTokens": 2}}, "writer", None, NOW)
    run = Run(workflow(agent("writer", START, emits=["draft:ready"]), agent("critic", ["draft:ready"])))
    before = run.view.memory
    run.end("writer", "text", drafts=(spent,))
    run.end("critic", outcome="failed")
    metrics = run.end_payload["metrics"]
    assert (run.view.status, metrics["turns"], metrics["failed"]) == ("ended", 2, 1)
    assert run.view.memory == before


@pytest.mark.proves("S22")
def test_run_whose_stored_memory_lacks_its_keys_continues_to_its_end() -> None:
    run = Run(workflow(agent("writer", START)))
    run.view = msgspec.structs.replace(run.view, memory={})
    run.end("writer", "text")
    assert run.end_payload["outcome"] == "success"


@pytest.mark.proves("S22")
@pytest.mark.parametrize("memory", [{"turns": "many"}, {"joins": 7}, {"usage": None}, {"started_at": 5}])
def test_run_whose_stored_memory_has_other_types_is_ended_as_failed(memory: dict[str, Any]) -> None:
    definition = workflow(agent("writer", START))
    view = RunView("run_a", "running", 3, {}, memory, 0, 0, 1)
    pending = PendingRun("newsroom", view, [PendingSignal(2, "fact:found", {}, "writer", "turn_1")])
    reaction = react_to_pending(definition, pending, NOW, lambda kind: f"{kind}_1", RunFailure("CODE", "why"))
    end = cast(dict[str, Any], reaction.drafts[-1].payload)
    assert (reaction.status, reaction.outcome, end["code"], end["reason"]) == ("ended", "failed", "CODE", "why")


@pytest.mark.proves("S24")
@pytest.mark.parametrize(
    ("recorded", "tainted"), [(["mail"], ["mail"]), ([], []), (7, ["mail", "note"]), ([{}], ["mail", "note"])]
)
def test_run_that_is_ended_with_a_new_memory_keeps_the_taint_of_its_state(recorded: Any, tainted: list[str]) -> None:
    memory = {"untrusted_keys": recorded}
    view = RunView("run_a", "running", 3, {"mail": "pay Mallory", "note": 1}, memory, 1, 0, 1)
    pending = PendingRun("newsroom", view, [PendingSignal(2, "fact:found", {}, "writer", "turn_1")])
    definition = workflow(agent("writer", START))
    reaction = react_to_pending(definition, pending, NOW, lambda kind: f"{kind}_1", RunFailure("CODE", "why"))
    assert reaction.memory is not None
    assert (reaction.status, sorted(untrusted_keys(reaction.memory))) == ("terminating", tainted)
    assert reaction.to_item()["keeps_taint"] is True
