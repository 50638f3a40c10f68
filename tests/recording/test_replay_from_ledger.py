"""Runs that nobody recorded: their recordings are made from the ledger, and replayed with the gaps that matter."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from heliograph import Context, Heliograph
from heliograph.errors import InvalidInput
from heliograph.recording.ended_turn import why_incomplete
from heliograph.recording.file import RecordingRejected, lines_of, read_recording, write_recording
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Part, Recording
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated
from tests.recording.test_replay import THIN, thin
from tests.recording.test_replay_of_features import FEATURES, World, app_of
from tests.recording.topologies import Effects, topology


def from_ledger_of(app: Heliograph, seed: int, **options: Any) -> Recording:
    return record_simulated(app, seed, record=False, **options)


@pytest.fixture(scope="module")
def unrecorded() -> Recording:
    return from_ledger_of(thin(), 1, state=THIN)


def test_every_signal_of_an_unrecorded_run_is_reproduced_from_the_ledger_and_from_its_file(
    unrecorded: Recording, tmp_path: Path
) -> None:
    write_recording(unrecorded, tmp_path / "run.jsonl")
    found = read_recording(tmp_path / "run.jsonl")
    assert list(lines_of(found)) == list(lines_of(unrecorded))
    for recording in (unrecorded, found, replay_recording(found, thin().workflow).recording):
        result = replay_recording(recording, thin().workflow)
        assert result.is_same, [*result.lines()]
        assert (result.reproduced, [gap.part for gap in result.gaps]) == (len(recording.signals), ["run"])


@pytest.mark.proves("P-22")
@pytest.mark.parametrize(("change", "agent", "name"), [
    ({"prompt": "Find {state.text}"}, "ann", "harness:start"), ({"tool_name": "find"}, "ann", "tool:call"),
    ({"guard": lambda state: False}, "join", "agent:activated"),
])  # fmt: skip
def test_changed_code_is_named_at_its_signal(
    unrecorded: Recording, change: dict[str, Any], agent: str, name: str
) -> None:
    first = replay_recording(unrecorded, thin(**change).workflow).first
    assert first is not None
    signal = unrecorded.signals[first.seq - 1]
    if name == "tool:call":  # the tool is missing from the list of the turn, before the model calls it
        assert (first.agent, signal.name, first.differences[0].path) == (agent, "ready", "/payload/capabilities/0")
        return
    assert (signal.name, signal.agent) == (name, agent)
    assert str(first.recorded) != str(first.replayed)


@pytest.mark.proves("P-22")
@pytest.mark.parametrize(("change", "message", "paths"), [
    ({"system": "Be brief."}, "another system text", ["/system"]), ({"description": "Finds words."}, "another list of tools", ["/tools"]),
    ({"system": "Be brief.", "description": "Finds words."}, "another system text and another list of tools", ["/system", "/tools"]),
])  # fmt: skip
def test_changed_system_text_and_tools_are_named_at_their_request(
    unrecorded: Recording, change: dict[str, Any], message: str, paths: list[str]
) -> None:
    first = replay_recording(unrecorded, thin(**change).workflow).first
    assert first is not None
    signal = unrecorded.signals[first.seq - 1]
    assert (first.kind, signal.name, [each.path for each in first.differences]) == ("request", "harness:start", paths)
    assert f"would receive {message} (the ledger has hashes of them)" in first.message
    assert first.request is not None
    assert first.request["system"] == change.get("system")
    assert replay_recording(unrecorded, thin(**change).workflow, ReplayPolicy(["prompts"])).is_same
    renamed = ReplayPolicy(renamed_tools={"look": "find"})
    assert replay_recording(unrecorded, thin(tool_name="find").workflow, renamed).is_same
    assert not replay_recording(unrecorded, thin(tool_name="find", **change).workflow, renamed).is_same


def test_policies_apply_to_recordings_from_the_ledger(unrecorded: Recording) -> None:
    assert replay_recording(unrecorded, thin(prompt="Find {state.text}").workflow, ReplayPolicy(["prompts"])).is_same
    assert not replay_recording(unrecorded, thin(more=True).workflow).is_same
    assert replay_recording(unrecorded, thin(more=True).workflow, ReplayPolicy(["agents"])).is_same
    assert replay_recording(
        unrecorded, thin(tool_name="find").workflow, ReplayPolicy(renamed_tools={"look": "find"})
    ).is_same


def test_deliverable_that_was_edited_is_a_divergence_of_the_end(unrecorded: Recording) -> None:
    parts = [
        Part(part.name, {**part.data, "ledger": {**part.data["ledger"], "content": {"text": "other"}}}, [])  # type: ignore[dict-item]
        if part.name != "start" else part for part in unrecorded.parts
    ]  # fmt: skip
    first = replay_recording(replace(unrecorded, parts=parts), thin().workflow).first
    assert first is not None
    assert (first.kind, first.message) == ("end", "the turn delivers something else")


def clocked(*, reads: bool = True, noted: int = 1) -> Heliograph:
    app = Heliograph("clocked")

    @app.agent(activate_on=["workflow:start"], updates="at")
    async def clock(ctx: Context) -> str:
        await ctx.step("stamp", time.time)
        return f"{time.time()}" if reads else "noon"

    @app.agent(activate_on=["workflow:start"], emits=["noted"])
    async def other(ctx: Context) -> None:
        ctx.emit("noted", {"n": noted})

    return app


@pytest.mark.proves("P-23")
def test_clock_outside_of_a_step_is_a_gap_and_hides_no_divergence_of_another_turn() -> None:
    recording = from_ledger_of(clocked(), 1)
    result = replay_recording(recording, clocked().workflow)
    assert result.is_same
    [_, gap] = result.gaps
    assert re.search(r"the code reads time.time at \S*test_replay_from_ledger.py:\d+, outside of a step", gap.reason)
    assert gap.reason.endswith("a second replay gives another value there")
    assert "/payload/outputs/0" in gap.reason
    first = replay_recording(recording, clocked(noted=2).workflow).first
    assert first is not None
    assert first.line().endswith("noted differs: /payload/n was 1, and is 2 now")
    constant = from_ledger_of(clocked(reads=False), 1)
    assert len(replay_recording(constant, clocked(reads=False).workflow).gaps) == 1, (
        "the clock in a step does not matter"
    )


def patient(waits: Callable[[Context], bool], **options: Any) -> Heliograph:
    app = Heliograph("patient")

    @app.agent(activate_on=["workflow:start"], updates="count", **options)
    async def waiter(ctx: Context) -> int:
        if waits(ctx):
            ctx.defer("the shop is closed", 0.5)
        return ctx.deferrals

    return app


@pytest.mark.proves("P-24")
def test_turn_that_is_deferred_again_and_again_ends_its_replay() -> None:
    deferred = from_ledger_of(patient(lambda ctx: ctx.deferrals < 2), 1)
    assert replay_recording(deferred, patient(lambda ctx: ctx.deferrals < 2).workflow).is_same
    first = replay_recording(deferred, patient(lambda ctx: True).workflow).first
    assert first is not None
    assert first.message == "the turn was deferred 2 times, and is deferred once more now"
    exhausted = from_ledger_of(patient(lambda ctx: True), 1)
    assert exhausted.header.outcome == "failed"
    assert replay_recording(exhausted, patient(lambda ctx: True).workflow).is_same


def test_changed_function_that_only_defers_is_a_divergence_where_deferrals_were_exhausted() -> None:
    def shopper(*, looks: bool) -> Heliograph:
        app = Heliograph("shopper")

        @app.agent(activate_on=["workflow:start"])
        async def shop(ctx: Context) -> None:
            if looks:
                await ctx.step("look", lambda: "closed")
            ctx.defer("the shop is closed", 0.5)

        return app

    exhausted = from_ledger_of(shopper(looks=True), 1)
    assert exhausted.header.outcome == "failed"
    assert replay_recording(exhausted, shopper(looks=True).workflow).is_same
    first = replay_recording(exhausted, shopper(looks=False).workflow).first
    assert first is not None
    assert first.message == "the code no longer makes step look (c1)"
    assert (first.recorded, first.replayed) == ({"kind": "inline", "name": "look"}, None)


def yielding(*, ends: bool) -> Heliograph:
    app = Heliograph("yielding")

    @app.agent(activate_on=["workflow:start"])
    async def waiter(ctx: Context) -> None:
        await ctx.step("look", lambda: 1)
        while not ends:  # noqa: ASYNC110
            await asyncio.sleep(0)

    return app


@pytest.mark.proves("P-24")
def test_code_that_yields_in_a_loop_ends_its_replay_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.recording.replay_loop._CALLBACKS_MAX", 10_000)
    for recording in (from_ledger_of(yielding(ends=True), 1), record_simulated(yielding(ends=True), 1)):
        first = replay_recording(recording, yielding(ends=False).workflow).first
        assert first is not None
        assert (first.kind, first.agent) == ("error", "waiter")
        assert first.message.startswith(
            "the code never ends: it yields 10,000 times, as with asyncio.sleep(0) in a loop"
        )


@pytest.mark.more
def test_turn_that_polled_until_its_timeout_ends_its_replay_with_a_gap() -> None:
    app = Heliograph("polling")

    @app.agent(activate_on=["workflow:start"], timeout_seconds=5)
    async def poller(ctx: Context) -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    result = replay_recording(from_ledger_of(app, 1), app.workflow)
    assert result.is_same
    assert "the turn ended as timeout" in result.gaps[-1].reason
    recorded = replay_recording(record_simulated(app, 1), app.workflow)
    assert (recorded.is_same, recorded.reproduced) == (True, len(recorded.signals)), [*recorded.lines()]


@pytest.mark.proves("P-21")
@pytest.mark.parametrize("seed", [26, 38])
def test_generated_application_is_reproduced_from_the_ledger_without_an_effect(seed: int) -> None:
    assert_reproduced(seed)


@pytest.mark.more
def test_more_generated_applications_are_reproduced_from_the_ledger() -> None:
    for seed in range(100, 108):
        assert_reproduced(seed)


def test_gap_names_one_worker_or_several_that_died() -> None:
    found = [why_incomplete("success", None, deaths) for deaths in (0, 1, 2)]
    assert found == [None, "its worker died", "its workers died 2 times"]


@pytest.mark.more
def test_turns_of_killed_workers_are_reproduced_or_a_gap() -> None:
    for seed in (*range(20, 30), 1856):  # in 1856, two parallel steps have no outcome
        assert_reproduced(seed, faults=True)


def assert_reproduced(seed: int, **options: Any) -> None:
    recording, effects = from_ledger_of(topology(seed), seed, **options), Effects()
    result = replay_recording(recording, topology(seed, effects).workflow)
    assert result.is_same, (seed, *result.lines())
    assert effects.count == 0, "a replay calls no model, no tool and no step"
    if not options:
        reported = [
            s for s in recording.signals if s.name in ("tool:result", "delegation_response") or s.turn_id is None
        ]
        assert result.reproduced >= len(recording.signals) - len(reported)
        assert len(result.gaps) == 1


@pytest.mark.parametrize(("name", "change"), [
    ("start", {"ledger": 7}), ("start", {"ledger": {"agents": "ann"}}), ("turn", {"ledger": 7}), ("turn", {"claimed": {}}),
])  # fmt: skip
def test_damaged_part_of_the_ledger_is_rejected_with_its_line(
    unrecorded: Recording, tmp_path: Path, name: str, change: Any
) -> None:
    parts = [Part(p.name, {**p.data, **change}, []) if p.name.startswith(name) else p for p in unrecorded.parts]
    write_recording(replace(unrecorded, parts=parts), tmp_path / "run.jsonl")
    with pytest.raises(RecordingRejected, match=r"line \d+: the part is incomplete or has a wrong type"):
        read_recording(tmp_path / "run.jsonl")


@pytest.mark.parametrize("change", [{"waits": 7}, {"waits": [{"call_id": "m1"}]}, {"cause": None}])
def test_claim_that_was_edited_is_an_error_of_its_turn_alone(unrecorded: Recording, change: Any) -> None:
    edited = unrecorded.parts[1]
    claimed: Any = edited.data["claimed"]
    part = Part(edited.name, {**edited.data, "claimed": {**claimed, **change}}, [])
    result = replay_recording(
        replace(unrecorded, parts=[unrecorded.parts[0], part, *unrecorded.parts[2:]]), thin().workflow
    )
    [divergence] = result.divergences
    assert (divergence.kind, divergence.part) == ("error", edited.name)
    assert "the part cannot be replayed" in divergence.message


def test_start_whose_agents_were_edited_away_is_rejected(unrecorded: Recording) -> None:
    start, *rest = unrecorded.parts
    data = {name: value for name, value in start.data.items() if name != "ledger"}
    edited = replace(unrecorded, parts=[Part(start.name, data, []), *rest])
    with pytest.raises(InvalidInput, match="does not have the agents of its application"):
        replay_recording(edited, thin().workflow)


def test_recorded_reply_that_was_edited_is_an_error_of_its_turn(unrecorded: Recording) -> None:
    text = msgspec.json.encode([part.data for part in unrecorded.parts]).replace(b'"tool_calls"', b'"tools_called"')
    parts = [Part(part.name, data, []) for part, data in zip(unrecorded.parts, msgspec.json.decode(text), strict=True)]
    [divergence] = replay_recording(replace(unrecorded, parts=parts), thin().workflow).divergences
    assert (divergence.kind, divergence.agent) == ("error", "ann")
    assert "the recorded reply m1 cannot be read" in divergence.message


@pytest.mark.more
@pytest.mark.parametrize("feature", FEATURES)
def test_features_are_reproduced_from_the_ledger_without_a_false_divergence(
    feature: Callable[[Heliograph, World], None],
) -> None:
    replayed = World()
    recording = from_ledger_of(app_of(feature, World()), 1, in_order=True)
    result = replay_recording(recording, app_of(feature, replayed).workflow)
    assert result.is_same, [*result.lines()]
    assert replayed.count == 0
    assert all("the ledger does not have where" in gap.reason for gap in result.gaps[1:])


@pytest.mark.more
def test_renamed_steps_of_generated_applications_are_named_in_their_turns() -> None:
    named = 0
    for seed in (22, 25, 35):
        recording = from_ledger_of(topology(seed), seed)
        result = replay_recording(recording, topology(seed, change="step").workflow)
        claims: dict[str, Any] = {part.name: part.data.get("claimed", {}) for part in recording.parts}
        expected = {
            name for name, each in claims.items() if any(wait["tool"] == "s0" for wait in each.get("waits", []))
        }
        assert {each.part for each in result.divergences} == expected, seed
        assert {each.kind for each in result.divergences} <= {"call"}
        named += len(expected)
    assert named > 2
