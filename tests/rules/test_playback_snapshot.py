"""Snapshots: the fold of a log at a position, checkpoints of it, and what hostile logs do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from heliograph.errors import InvalidInput, NotFound
from heliograph.playback import checkpoints as checkpoints_module
from heliograph.playback import log as log_module
from heliograph.playback.snapshot import Snapshot
from heliograph.playback.timeline import Timeline
from heliograph.signals.model import Signal, Source
from heliograph.types import Json, JsonObject
from tests.grids import share_of_examples
from tests.rules.playback_kit import plain_fold, signal, sound_logs, wild_logs


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three signals, and a checkpoint after each: logs of forty signals then cross many of both."""
    for module in ("log", "timeline"):
        monkeypatch.setattr(f"heliograph.playback.{module}.BLOCK", 3)
    monkeypatch.setattr(checkpoints_module, "DISTANCE_MAX", 1)
    monkeypatch.setattr(checkpoints_module, "LOG_SHARE_MAX", 1e9)


def timeline_of(signals: list[Signal]) -> Timeline:
    timeline = Timeline()
    timeline.extend(signals)
    return timeline


def as_plain(snapshot: Snapshot) -> dict[str, Any]:
    """The parts of a snapshot that `plain_fold` computes."""
    return {
        "state": snapshot.state, "status": snapshot.status,
        "agents": {
            name: {
                "text": agent.text, "thinking": agent.thinking, "open": [call.signal for call in agent.calls_open],
                "done": [(call.signal, call.output) for call in agent.calls_done],
                "tokens": (agent.usage.input_tokens, agent.usage.output_tokens), "cost": agent.usage.cost_usd, "phase": agent.phase,
                "ended": agent.turns_ended, "pending": [each.activation for each in agent.pending_reactions],
            }
            for name, agent in snapshot.agents.items()
        },
    }  # fmt: skip


@pytest.mark.proves("SIG-02")
@share_of_examples(25)
@given(sound_logs(), st.data())
def test_snapshot_has_what_copying_every_signal_gives(log: list[Signal], data: st.DataObject) -> None:
    timeline = timeline_of(log)
    for seq in data.draw(st.lists(st.integers(0, len(log)), min_size=1, max_size=5)):
        expected = plain_fold(log, seq)
        for agent in expected["agents"].values():
            agent["text"], agent["thinking"] = agent["text"][0], agent["thinking"][0]
            agent["open"] = list(agent["open"].values())
        assert as_plain(timeline.snapshot(seq)) == expected


@pytest.mark.more  # a hundred logs, with a fold from the start of each for every position
@given(st.one_of(sound_logs(), wild_logs()), st.data())
def test_snapshot_from_a_checkpoint_equals_the_fold_from_the_start(log: list[Signal], data: st.DataObject) -> None:
    timeline = timeline_of(log)
    assume(log)
    first = log[0].seq
    for seq in data.draw(st.lists(st.integers(first - 1, first + len(log) - 1), min_size=1, max_size=6)):
        assert timeline.snapshot(seq) == timeline_of(log[: max(1, seq - first + 1)]).snapshot(seq)


@pytest.mark.proves("SIG-02")
def test_state_at_a_position_is_rebuilt_from_the_signals_before_it() -> None:
    timeline = timeline_of([
        signal(1, "workflow:start", payload={"state": {"a": 0, "b": [1]}}), signal(2, "state:a:changed", "x", 1, {"value": 1}),
        signal(3, "state:a:changed", "x", 1, {"value": None}), signal(4, "state:c:changed", "x", 1, {"newValue": {"d": 2}}),
    ])  # fmt: skip
    assert [timeline.snapshot(seq).state for seq in range(5)] == [
        {}, {"a": 0, "b": [1]}, {"a": 1, "b": [1]}, {"a": None, "b": [1]}, {"a": None, "b": [1], "c": {"d": 2}},
    ]  # fmt: skip


@pytest.mark.proves("SIG-02")
def test_list_at_a_position_is_rebuilt_from_its_parts() -> None:
    timeline = timeline_of([
        signal(1, "workflow:start", payload={"state": {"a": [0]}}), signal(2, "state:a:changed", "x", 1, {"value": [1], "from_index": 1}),
        signal(3, "state:b:changed", "x", 1, {"value": [5]}), signal(4, "state:a:changed", "x", 1, {"value": [2], "from_index": 2}),
        signal(5, "state:b:changed", "x", 1, {"value": [6], "from_index": 1}), signal(6, "state:a:changed", "x", 1, {"value": []}),
        signal(7, "workflow:forked", payload={"state": {"a": [9], "b": [8]}}), signal(8, "state:b:changed", "x", 1, {"value": [7], "from_index": 1}),
    ])  # fmt: skip
    assert [timeline.snapshot(seq).state for seq in (2, 3, 4, 5, 6, 8)] == [
        {"a": [0, 1]}, {"a": [0, 1], "b": [5]}, {"a": [0, 1, 2], "b": [5]}, {"a": [0, 1, 2], "b": [5, 6]}, {"a": [], "b": [5, 6]},
        {"a": [9], "b": [8, 7]},
    ]  # fmt: skip


@pytest.mark.proves("SIG-02")
def test_object_at_a_position_is_rebuilt_from_its_parts() -> None:
    parts: JsonObject = {"value": {"/m/1": 5}, "parts": True}
    timeline = timeline_of([
        signal(1, "workflow:start", payload={"state": {"a": {"m": [4], "n": 0}}}), signal(2, "state:a:changed", "x", 1, parts),
        signal(3, "state:a:changed", "x", 1, {"value": {"/k": 6}, "parts": True, "removed": ["/n", "/m/1"]}),
        signal(4, "state:b:changed", "x", 1, {"value": {"/k": 6}, "parts": True}),
    ])  # fmt: skip
    assert [timeline.snapshot(seq).state for seq in (2, 3, 4)] == [
        {"a": {"m": [4, 5], "n": 0}}, {"a": {"m": [4], "k": 6}}, {"a": {"m": [4], "k": 6}, "b": {"k": 6}},
    ]  # fmt: skip


def test_snapshot_does_not_change_when_the_log_grows() -> None:
    log = [signal(1, "text:delta", "a", None, {"content": "one "}), signal(2, "text:delta", "a", None, {"content": "two"}),
           signal(3, "text:complete", "a", None, {"content": "one two"})]  # fmt: skip
    timeline = timeline_of(log[:1])
    before = timeline.snapshot(1)
    timeline.extend(log[1:])
    assert (before.agents["a"].text, timeline.snapshot(2).agents["a"].text) == ("one ", "one two")


def test_complete_text_counts_when_the_log_lacks_deltas() -> None:
    timeline = timeline_of([signal(9, "text:delta", "a", 4, {"content": "end", "offset": 10}),
                            signal(10, "text:complete", "a", 4, {"content": "begin and end"})])  # fmt: skip
    assert timeline.snapshot(9).agents["a"].text == "end"
    assert timeline.snapshot(10).agents["a"].text == "begin and end"


def test_interleaved_streams_of_one_agent_are_two_texts() -> None:
    timeline = timeline_of([
        signal(1, "agent:activated", "a"), signal(2, "harness:start", "a", 1), signal(3, "harness:start", "a", 1),
        signal(4, "text:delta", "a", 2, {"content": "x"}), signal(5, "text:delta", "a", 3, {"content": "1"}),
        signal(6, "text:delta", "a", 2, {"content": "y"}), signal(7, "text:complete", "a", 3, {"content": "1"}),
        signal(8, "text:complete", "a", 2, {"content": "xy"}),
    ])  # fmt: skip
    assert [timeline.snapshot(seq).agents["a"].text for seq in range(4, 9)] == ["x", "1", "xy", "1", "xy"]


def test_turn_waits_for_a_delegation_until_its_response_ends_it() -> None:
    timeline = timeline_of([
        signal(1, "agent:activated", "a"), signal(2, "delegation", "a", 1, {"id": "c1", "target_agent": "b", "task": "count"}),
        signal(3, "agent:activated", "b", 2), signal(4, "delegation_response", "b", 3, {"id": "c1", "status": "in_progress"}),
        signal(5, "delegation_response", "a", 1, {"id": "c1", "status": "completed", "target_agent": "b", "result": 5}),
    ])  # fmt: skip
    waiting = timeline.snapshot(4)
    assert [(wait.agent, wait.kind, wait.name, wait.input, wait.status) for wait in waiting.waits] == [
        ("a", "delegation", "b", "count", "open")
    ]
    assert [each.cause for each in timeline.snapshot(3).pending_reactions] == ["sig_r_2"]
    assert waiting.pending_reactions == []
    done = timeline.snapshot(5)
    assert (done.waits, [call.output for call in done.agents["a"].calls_done]) == ([], [5])


def test_run_ends_with_outcome_and_reason() -> None:
    log = [signal(1, "workflow:start", payload={"state": {"a": 1}}), signal(2, "workflow:terminating", payload={"reason": "stopped"}),
           signal(3, "workflow:end", payload={"outcome": "canceled", "state": {}})]  # fmt: skip
    timeline = timeline_of(log)
    assert [(s.status, s.outcome, s.reason) for s in map(timeline.snapshot, range(4))] == [
        ("new", None, None), ("running", None, None), ("terminating", None, "stopped"), ("ended", "canceled", None),
    ]  # fmt: skip
    assert timeline.snapshot(3).state == {"a": 1}


@pytest.mark.parametrize(("wrong", "code"), [
    (signal(3, "a:b"), "log_gap"), (signal(1, "a:b"), "log_gap"),
    (Signal("sig_x_2", "a:b", None, signal(1, "a:b").timestamp, None, "x", 2), "other_run"),
    (signal(2, "a:b", payload="\ud800"), "invalid_unicode"),
])  # fmt: skip
def test_log_rejects_a_signal_that_does_not_follow(wrong: Signal, code: str) -> None:
    timeline = timeline_of([signal(1, "workflow:start")])
    with pytest.raises(InvalidInput) as caught:
        timeline.extend([wrong])
    assert caught.value.code == code
    assert timeline.log.last_seq == timeline.snapshot(1).seq == 1


def test_signals_are_read_back_unchanged() -> None:
    log = [
        signal(1, "a:b", payload={"n": 2**80, "t": "日本\x1b"}),
        signal(2, "a:c", "x", "sig_other_1", [1.5]),
        signal(3, "a:d", "x", 1),
    ]
    assert timeline_of(log).log.signals(0, 3) == log
    assert log_module.BLOCK == 3


def test_log_of_a_fork_has_the_signals_that_it_shares_under_their_ids() -> None:
    shared = [signal(1, "workflow:start", payload={"state": {"a": 1, "b": 2}}), signal(2, "agent:activated", "x", 1),
              signal(3, "tool:call", "x", 2, {"id": "c", "name": "search"}), signal(4, "state:a:changed", "x", 2, {"value": 5})]  # fmt: skip
    own = [of_fork(5, "workflow:forked", None, "sig_r_4", {"run_id": "r", "signal": "sig_r_4", "turns": []}),
           of_fork(6, "agent:activated", "x", "sig_r_1"), of_fork(7, "ready", "x", "sig_f_6")]  # fmt: skip
    log = [*shared, *own]
    timeline = timeline_of(log)
    assert timeline.log.signals(0, 7) == log
    assert (timeline.log.run_id, timeline.log.find("sig_r_3"), timeline.log.find("sig_f_6")) == ("f", 3, 6)
    with pytest.raises(NotFound):
        timeline.log.find("sig_f_3")
    before, forked, after = (timeline.snapshot(seq) for seq in (4, 5, 7))
    assert [wait.name for wait in before.waits] == ["search"]
    assert (forked.waits, forked.agents["x"].status, forked.state) == ([], "idle", {"a": 5, "b": 2})
    assert [turn.activation for turn in after.agents["x"].turns] == ["sig_f_6"]


def test_fork_with_another_state_begins_with_it() -> None:
    timeline = timeline_of([signal(1, "workflow:start", payload={"state": {"a": 1}}), signal(2, "state:a:changed", "x", 1, {"value": 5}),
                            of_fork(3, "workflow:forked", None, "sig_r_2", {"state": {"b": 7}})])  # fmt: skip
    assert [timeline.snapshot(seq).state for seq in (2, 3)] == [{"a": 5}, {"b": 7}]


def of_fork(seq: int, name: str, agent: str | None, parent: str, payload: Json = None) -> Signal:
    """A signal that the fork `f` of run `r` recorded."""
    return Signal(f"sig_f_{seq}", name, payload, signal(seq, name).timestamp, Source(agent, parent), "f", seq)


def test_checkpoints_of_many_agents_that_emit_by_turns_are_a_small_part_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoints_module, "DISTANCE_MAX", 12)
    monkeypatch.setattr(checkpoints_module, "LOG_SHARE_MAX", 0.02)
    log = [signal(seq, "text:delta", f"agent{seq % 30}", None, {"content": "x" * 20}) for seq in range(1, 2001)]
    made = timeline_of(log)
    assert made.checkpoints.count > 1
    assert 0.005 * made.log.byte_count < made.checkpoints.byte_count <= 0.02 * made.log.byte_count
    for seq in (3, 900, 1500):
        assert made.snapshot(seq) == timeline_of(log[:seq]).snapshot(seq)
