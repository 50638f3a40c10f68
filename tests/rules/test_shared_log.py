"""What a fork takes over from a log is what the run itself knew at that commit."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.reactive.fork import ForkRequest, TurnInProgress, react_to_fork
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.shared_log import SharedLog
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.signals.model import LogEntry, Signal
from tests.rules.reactive_kit import NOW, START, Run, Turn, agent, until_ended, workflow
from tests.rules.test_reaction_properties import _finish, workflows


class Watched(Run):
    """A run that keeps what it knew after each commit: the number of its signals, its view and its open turns."""

    def __init__(self, definition: Workflow, state: Any = None):
        self.known: list[tuple[int, RunView, set[str], bool]] = []
        self.starts = [1]
        super().__init__(definition, state)

    def commit(self, reaction: Reaction, closing: Turn | None = None) -> bool:
        before = len(self.signals)
        done = super().commit(reaction, closing)
        if done:
            self._keep(before)
        return done

    def _add_pending(self, turn: Turn, name: str, payload: Any) -> None:
        before = len(self.signals)
        super()._add_pending(turn, name, payload)
        self._keep(before)

    def _keep(self, before: int) -> None:
        if before:
            self.starts.append(before + 1)
        self.known.append(
            (len(self.signals), self.view, {turn.activation for turn in self.open.values()}, bool(self.pending))
        )

    def entries(self, upto: int) -> list[LogEntry]:
        deferred = (
            {signal.id for signal in self.signals if signal.name == "text:delta"}
            if self.workflow.wakes.match("text:delta")
            else set()
        )
        return [
            _entry(signal, self.starts[bisect_right(self.starts, signal.seq) - 1], deferred)
            for signal in self.signals[:upto]
        ]

    def shared(self, upto: int) -> SharedLog:
        log = SharedLog(self.workflow)
        for entry in self.entries(upto):
            log.add(entry)
        return log


def _entry(signal: Signal, commit_seq: int, deferred: set[str]) -> LogEntry:
    return LogEntry(signal.id, signal.run_id, signal.seq, commit_seq, signal.name, signal.payload, signal.agent, signal.parent,
                    is_deferred=signal.id in deferred)  # fmt: skip


@given(workflows(), st.data())
def test_state_counters_and_turns_of_a_shared_log_are_those_of_the_run(
    definition: Workflow, data: st.DataObject
) -> None:
    run = Watched(definition, {"n": 0})
    until_ended(run, lambda turns: data.draw(st.sampled_from(turns)), _finish(data.draw))
    was_pending = False
    for upto, view, activations, is_pending in run.known:
        was_pending = was_pending or is_pending
        log = run.shared(upto)
        assert log.state == view.state
        assert (log.activations, set(log.in_progress)) == (view.activations, activations)
        assert (log.ending is None) == (view.status == "running")
        memory = view.memory
        # a run counts the turns that the kernel ends when it reacts to their ends, and keeps no counters once it has ended
        if not was_pending and view.status != "ended":
            assert [log.turns, log.failed, log.skipped] == [
                memory.get(key, 0) for key in ("turns", "failed", "skipped")
            ]
        if not is_pending and not log.deferred and log.ending is None:  # a run that ends collects no more
            assert _collected(log.joins) == _collected(memory.get("joins", {}))


def _collected(joins: Any) -> dict[str, list[int]]:
    return {agent: met for agent, met in joins.items() if met}


def forked(run: Watched, upto: int, fate: Any = "restarted", state: Any = None) -> tuple[Reaction, dict[str, str]]:
    log = run.shared(upto)
    turns = [TurnInProgress(f"turn of {entry.id}", entry, fate) for entry in log.in_progress.values()]
    return react_to_fork(
        run.workflow,
        log,
        ForkRequest("run_f", "run_a", run.signals[upto - 1].id, turns, state),
        NOW,
        lambda kind: f"{kind}_new",
    )


def test_fork_activates_the_turns_in_progress_once_more_for_the_same_causes() -> None:
    run = Watched(
        workflow(agent("a", START, emits=["a:done"]), agent("b", ["a:done"]), agent("spy", ["agent:activated"]))
    )
    run.end("a", 1)
    reaction, started = forked(run, len(run.signals))
    [a_done] = run.named("a:done")
    again = [(d.name, d.agent, d.parent) for d in reaction.drafts if d.name == "agent:activated"]
    assert ("agent:activated", "b", a_done.id) in again
    assert len(again) == len(started) == len(run.open)  # and no agent reacts to them a second time
    [payload] = [d.payload for d in reaction.drafts if d.name == "workflow:forked"]
    assert isinstance(payload, dict)
    assert payload["signal"] == run.signals[-1].id


def test_fork_with_another_state_is_trusted_and_records_the_state() -> None:
    run = Watched(workflow(agent("a", START, updates="x"), agent("b", ["agent:completed"]), state=None), {"x": 0})
    run.end("a", 5, is_untrusted=True)
    reaction, _ = forked(run, len(run.signals), state={"x": 7})
    assert (reaction.state, reaction.drafts[0].payload["state"]) == ({"x": 7}, {"x": 7})  # type: ignore[index,call-overload]
    assert reaction.memory is not None
    assert "untrusted_keys" not in reaction.memory


def test_turn_that_must_not_run_twice_ends_as_in_doubt_and_wakes_its_subscribers() -> None:
    run = Watched(workflow(agent("a", START), agent("b", ["agent:failed"])))
    reaction, started = forked(run, len(run.signals), "in_doubt")
    assert started == {}
    names = [(draft.name, draft.agent) for draft in reaction.drafts]
    assert names[1:] == [("agent:failed", "a"), ("agent:activated", "b")]
    assert reaction.memory is not None
    assert (reaction.memory["failed"], reaction.outcome) == (1, None)


def test_fork_reacts_to_a_signal_whose_reaction_its_log_does_not_show() -> None:
    run = Watched(workflow(agent("a", START), agent("b", ["text:delta"])))
    run.stream(run.turn_of("a"), "text:delta", {"content": "x", "offset": 0})
    upto = len(run.signals)
    run.pay()
    woken = [
        [d.agent for d in forked(run, n)[0].drafts if d.name == "agent:activated"] for n in (upto, len(run.signals))
    ]
    assert woken == [["a", "b"], ["a", "b"]]  # the second time, because b was in progress


@pytest.mark.parametrize("name", ["workflow:terminating", "workflow:end"])
def test_shared_log_has_the_mark_of_a_run_that_had_begun_to_end(name: str) -> None:
    run = Watched(workflow(agent("a", START), agent("b", START)))
    run.stop("enough") if name == "workflow:terminating" else run.end("a", outcome="canceled")
    run.end("b", outcome="canceled")
    if name == "workflow:terminating":
        run.end("a", outcome="canceled")
    ending = run.shared(len(run.signals)).ending
    assert ending is not None
    assert ending.name == name


@pytest.mark.parametrize("limit", ["max_activations", "end_when"])
def test_log_shows_that_a_run_ends_also_if_no_turn_is_open_and_a_reaction_is_pending(limit: str) -> None:
    options: Any = {"max_activations": 1} if limit == "max_activations" else {"end_when": lambda state: "n" in state}
    run = Watched(
        workflow(
            agent("a", START, emits=["a:done"], updates="n"),
            agent("b", ["a:done"]),
            agent("spy", ["text:delta"]),
            **options,
        )
    )
    run.stream(run.turn_of("a"), "text:delta", {"content": "x", "offset": 0})
    run.end("a", 1)
    assert (run.view.status, run.open, len(run.pending)) == ("terminating", {}, 1)
    ending = run.shared(len(run.signals)).ending
    assert ending is not None
    assert ending.name == "workflow:terminating"
    run.pay()
    assert run.names()[-1] == "workflow:end"


def test_join_of_a_shared_log_begins_again_at_the_signal_that_completes_it() -> None:
    """The commit has a signal for the next join before the activation that the first join caused."""
    run = Watched(workflow(agent("a", START), agent("b", activate_when_all=["x", "y"]), agent("c", START)))
    run.end("a", 1, emitted=(("x", 1), ("y", 1), ("x", 2)))
    assert run.view.memory["joins"] == {"b": [0]}
    shared = run.shared(len(run.signals))
    assert (shared.joins, shared.join_signals) == ({"b": [0]}, {"b": {"0": run.named("x")[1].id}})
    run.end("c", 1, emitted=(("y", 2),))
    assert len(run.named("agent:activated")) == 4


def test_pending_signal_of_a_join_is_collected_when_the_log_shows_that_the_run_had_reacted_to_it() -> None:
    run = Watched(workflow(agent("a", START), agent("b", activate_when_all=["text:delta", "y"]), agent("c", START)))
    run.stream(run.turn_of("a"), "text:delta", {"content": "x", "offset": 0})
    before = run.shared(len(run.signals))
    assert ([each.name for each in before.deferred.values()], before.joins) == (["text:delta"], {})
    run.pay()
    run.end("a", 1, emitted=(("y", 1),))
    after = run.shared(len(run.signals))
    assert (run.view.memory["joins"], run.awake()) == ({"b": []}, ["b", "c"])
    assert (after.deferred, after.joins) == ({}, {"b": []})
