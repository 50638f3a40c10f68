"""The signals of a join: an activation and a skip name each signal for which the agent waited, in this commit or an earlier one."""

from __future__ import annotations

from typing import Any

from heliograph.definitions.agent import AgentSpec
from tests.rules.reactive_kit import START, Run, agent, workflow
from tests.rules.test_shared_log import Watched, forked


def joiner(**options: Any) -> AgentSpec:
    return agent("joiner", activate_when_all=["a:done", "b:*"], **options)


def members(run: Run, name: str = "agent:activated") -> list[tuple[str, str]]:
    """The patterns and signals of the newest signal about the joiner, by name."""
    signal = [each for each in run.signals if each.name == name and each.agent == "joiner"][-1]
    payload: Any = signal.payload
    ids = [each.get("signal") or f"sig_{run.run_id}_{signal.seq - each['before']}" for each in payload["joined"]]
    names = {each.id: each.name for each in run.signals}
    return [(each["pattern"], names[found]) for each, found in zip(payload["joined"], ids, strict=True)]


def test_signals_of_two_turns_are_found_although_others_were_recorded_between() -> None:
    run = Run(
        workflow(
            agent("a", START, emits=["a:done"]),
            agent("b", START, emits=["b:done"]),
            joiner(),
            agent("spy", ["agent:*"]),
        )
    )
    run.end("b", 1)
    assert run.view.memory["join_base"] is not None
    run.end("a", 1)
    assert members(run) == [("a:done", "a:done"), ("b:*", "b:done")]
    assert not {"join_signals", "join_base"} & run.view.memory.keys()


def test_signals_of_one_commit_are_named_by_their_distance() -> None:
    run = Run(workflow(agent("a", START, emits=["b:first", "a:done"]), joiner()))
    run.end("a", 1)
    assert members(run) == [("a:done", "a:done"), ("b:*", "b:first")]
    [activated] = [each for each in run.signals if each.name == "agent:activated" and each.agent == "joiner"]
    payload: Any = activated.payload
    assert all("before" in each for each in payload["joined"])


def test_first_of_several_matches_counts_and_the_next_join_begins_again() -> None:
    run = Run(
        workflow(
            agent("a", START, emits=["a:done"]), agent("b", [*START, "a:done"], emits=["b:one", "b:two"]), joiner()
        )
    )
    run.end("b", 1)
    run.end("a", 1)
    assert members(run) == [("a:done", "a:done"), ("b:*", "b:one")]
    run.end("b", 1)
    assert list(run.view.memory["join_signals"]) == ["joiner"]
    assert set(run.view.memory["join_signals"]["joiner"]) == {"1"}


def test_skipped_join_names_its_signals_too() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done", "b:done"]), joiner(when=lambda state: False)))
    run.end("a", 1)
    assert members(run, "agent:skipped") == [("a:done", "a:done"), ("b:*", "b:done")]


def test_agent_without_a_join_has_no_joined_signals() -> None:
    run = Run(workflow(agent("a", START)))
    assert [each.payload for each in run.signals if each.name == "agent:activated"] == [{"agent": "a"}]


def test_fork_keeps_the_signals_that_were_shared() -> None:
    run = Watched(workflow(agent("a", START, emits=["a:done"]), agent("b", START, emits=["b:done"]), joiner()))
    run.end("a", 1)
    [done] = run.named("a:done")
    reaction, _ = forked(run, len(run.signals))
    assert reaction.memory is not None
    assert reaction.memory["join_signals"] == {"joiner": {"0": done.id}}
    run.end("b", 1)
    [b_done] = run.named("b:done")
    reaction, _ = forked(run, len(run.signals))
    [again] = [each for each in reaction.drafts if each.name == "agent:activated" and each.agent == "joiner"]
    assert again.payload == {
        "agent": "joiner",
        "joined": [{"pattern": "a:done", "signal": done.id}, {"pattern": "b:*", "signal": b_done.id}],
    }


def test_memory_of_an_earlier_version_has_no_signals() -> None:
    run = Run(workflow(agent("a", START, emits=["a:done"]), agent("b", START, emits=["b:done"]), joiner()))
    run.end("b", 1)
    for key in ("join_signals", "join_base"):
        del run.view.memory[key]
    run.end("a", 1)
    assert members(run) == [("a:done", "a:done")]
