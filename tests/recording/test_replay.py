"""Replay: generated applications give the same signals again, and a changed input is named as the first divergence."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from heliograph import Context, Heliograph, tool
from heliograph.errors import InvalidInput
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.file import lines_of
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Part, Recording
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated
from tests.recording.topologies import Effects, topology

THIN = {"text": "hello"}


def thin(reply: str = "The answer is W.", *, prompt: str = "Look up {state.text}", tool_name: str = "look",
         more: bool = False, guard: Callable[[Any], bool] = lambda state: True, system: str | None = None,
         description: str | None = None) -> Heliograph:  # fmt: skip
    """Two prompt agents in parallel, one with a tool, and an agent that joins them with a step."""
    app = Heliograph("thin")

    @tool(name=tool_name, description=description, effect="idempotent")
    async def look(word: str) -> str:
        return word.upper()

    model = ScriptedModel([ToolCall("1", tool_name, {"word": "w"}), reply])
    app.prompt_agent(
        "ann", prompt, model=model, tools=[look], activate_on=["workflow:start"], updates="ann", system=system
    )
    app.prompt_agent(
        "bob", "Greet", model=ScriptedModel(["Hello to all."]), activate_on=["workflow:start"], updates="bob"
    )

    @app.agent(activate_when_all=["state:ann:changed", "state:bob:changed"], when=guard, updates="both")
    async def join(ctx: Context) -> str:
        return f"{ctx.state['ann']} {await ctx.step('stamp', lambda: 'stamped')}"

    if more:

        @app.agent(activate_on=["workflow:start"])
        def late(ctx: Context) -> None:
            raise AssertionError("an agent that was added does not run")

    return app


@pytest.fixture(scope="module")
def recording() -> Recording:
    found = record_simulated(thin(), 1, state=THIN)
    assert found.header.outcome == "success"
    return found


def changed(recording: Recording, change: Callable[[list[Any]], bool]) -> Recording:
    """The recording with the first entry changed for which `change`, which receives each entry, returns True."""
    parts, is_done = [], False
    for part in recording.parts:
        entries = msgspec.json.decode(msgspec.json.encode(part.entries))
        for entry in entries:
            is_done = is_done or change(entry)
        parts.append(Part(part.name, part.data, entries))
    assert is_done
    return replace(recording, parts=parts)


@pytest.mark.proves("SIG-04", "G-45")
@pytest.mark.parametrize("seed", [1, 6, 13])
def test_generated_application_is_replayed_bit_for_bit_and_the_replay_too(seed: int) -> None:
    assert_same(seed)


@pytest.mark.more
@pytest.mark.proves("SIG-04", "G-45")
def test_more_generated_applications_are_replayed_bit_for_bit() -> None:
    for seed in range(100, 124):
        assert_same(seed)


@pytest.mark.proves("SIG-04", "G-45")
def test_order_of_tasks_within_a_moment_decides_about_no_commit_of_a_replay() -> None:
    assert_same(1001)  # a task waited for its turn to send urgent signals, which another commit had sent by then


def assert_same(seed: int, **options: Any) -> None:
    recorded, replayed = Effects(), Effects()
    found = record_simulated(topology(seed, recorded), seed, **options)
    result = replay_recording(found, topology(seed, replayed).workflow)
    assert result.is_same, (seed, *result.lines())
    assert replayed.count == 0, "a replay calls no model, no tool and no step"
    assert list(lines_of(result.recording)) == list(lines_of(found)), seed
    again = replay_recording(result.recording, topology(seed).workflow)
    assert again.is_same
    assert list(lines_of(again.recording)) == list(lines_of(found)), seed


@pytest.mark.proves("SIG-04", "G-45")
def test_changed_reply_is_the_first_divergence_at_its_signal(recording: Recording) -> None:
    def reply(entry: list[Any]) -> bool:
        if entry[0] == "reply" and entry[2]["text"] == "Hello to all.":
            entry[2]["text"] = "Hallo to all."
            return True
        if entry[0] == "text" and entry[2].startswith("Hello"):
            entry[2] = entry[2].replace("Hello", "Hallo")
        return False

    result = replay_recording(changed(recording, reply), thin().workflow)
    assert result.first is not None
    [delta] = [s for s in recording.signals if s.agent == "bob" and s.name == "text:delta"]
    assert (result.first.kind, result.first.seq) == ("signal", delta.seq)
    [difference] = result.first.differences
    assert (difference.left, difference.right) == ("Hello to all.", "Hallo to all.")
    assert "Greet" in str(result.first.request)
    assert "/payload/content" in result.first.line()


@pytest.mark.proves("SIG-04")
def test_changed_result_of_a_tool_is_the_first_divergence(recording: Recording) -> None:
    def result_of_tool(entry: list[Any]) -> bool:
        if entry[0] == "answer" and isinstance(entry[2], dict) and entry[2].get("output") == "W":
            entry[2]["output"] = "V"
            return True
        return False

    first = replay_recording(changed(recording, result_of_tool), thin().workflow).first
    assert first is not None
    [signal] = [s for s in recording.signals if s.name == "tool:result" and s.agent == "ann"]
    assert (first.kind, first.seq, first.differences[0].left, first.differences[0].right) == (
        "signal",
        signal.seq,
        "W",
        "V",
    )


@pytest.mark.proves("SIG-04")
def test_changed_clock_is_the_first_divergence(recording: Recording) -> None:
    def clock(entry: list[Any]) -> bool:
        if entry[0] == "now":
            entry[1] = "2031-01-01T00:00:00Z"
            return True
        return False

    first = replay_recording(changed(recording, clock), thin().workflow).first
    assert first is not None
    assert (first.seq, first.differences[0].path, first.differences[0].right) == (1, "/at", "2031-01-01T00:00:00+00:00")


@pytest.mark.proves("SIG-04")
def test_guard_that_decides_otherwise_is_the_first_divergence(recording: Recording) -> None:
    first = replay_recording(recording, thin(guard=lambda state: False).workflow).first
    assert first is not None
    [woken] = [s for s in recording.signals if s.name == "agent:activated" and s.agent == "join"]
    assert (first.seq, first.differences[0].path, first.differences[0].right) == (woken.seq, "/name", "agent:skipped")


@pytest.mark.proves("SIG-04", "G-45")
def test_other_prompt_is_a_divergence_that_names_the_request(recording: Recording) -> None:
    first = replay_recording(recording, thin(prompt="Find {state.text}").workflow).first
    assert first is not None
    assert first.kind == "request"
    assert "Look up hello" in str(first.recorded)
    assert "Find hello" in str(first.replayed)
    assert replay_recording(recording, thin(prompt="Find {state.text}").workflow, ReplayPolicy(["prompts"])).is_same


@pytest.mark.proves("SIG-04")
def test_request_without_a_recorded_reply_is_named_and_no_model_is_called(recording: Recording) -> None:
    without = [Part(p.name, p.data, [e for e in p.entries if e[0] not in ("model", "text", "thinking", "reply")])
               for p in recording.parts]  # fmt: skip
    first = replay_recording(replace(recording, parts=without), thin().workflow).first
    assert first is not None
    assert first.kind == "request"
    assert "no reply of scripted" in first.message
    assert first.agent == "bob"
    assert first.request is not None
    assert "Greet" in str(first.request["messages"])


def test_policy_accepts_added_agents_and_renamed_tools(recording: Recording) -> None:
    assert not replay_recording(recording, thin(more=True).workflow).is_same
    assert replay_recording(recording, thin(more=True).workflow, ReplayPolicy(["agents"])).is_same
    renamed = thin(tool_name="find")
    assert not replay_recording(recording, renamed.workflow).is_same
    assert replay_recording(recording, renamed.workflow, ReplayPolicy(renamed_tools={"look": "find"})).is_same
    with pytest.raises(InvalidInput, match="cannot accept tools"):
        ReplayPolicy(["tools"])


def test_call_whose_id_was_edited_into_a_list_is_a_divergence(recording: Recording) -> None:
    def change(entry: list[Any]) -> bool:
        if entry[0] == "call" and "call_id" in entry[3]:
            entry[3]["call_id"] = [1]
            return True
        return False

    assert not replay_recording(changed(recording, change), thin().workflow).is_same


def test_recording_of_another_application_is_rejected(recording: Recording) -> None:
    with pytest.raises(InvalidInput, match="of the application thin, not of generated") as raised:
        replay_recording(recording, topology(1).workflow)
    assert raised.value.code == "other_application"


@pytest.mark.more
@pytest.mark.proves("SIG-04")
def test_one_changed_value_of_a_generated_application_is_named_at_its_signal() -> None:
    for seed in range(200, 205):
        assert_change_is_named(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_thousand_generated_applications_are_replayed_and_a_change_is_named(first: int) -> None:
    """`make test ARGS="-m long tests/recording"`: each part takes a minute, so a process that is killed loses one of them."""
    for seed in range(first, first + 50):
        assert_same(seed)
        assert_change_is_named(seed)


def test_generated_applications_have_everything_that_a_replay_has_to_reproduce(recording: Recording) -> None:
    """Parallel agents, joins, guards, retries, delegations, answers of people and deltas are in the runs, not only in the code."""
    names, joined, guards, retries, people = set[str](), 0, set[bool](), 0, 0
    for seed in (29, 59):
        for signal in record_simulated(topology(seed), seed).signals:
            names.add(signal.name)
            payload: Any = signal.payload
            joined += len(payload.get("joined", [])) > 1
            guards |= {payload["guard"]["verdict"]} if "guard" in payload else set()
            retries += signal.name == "tool:call" and payload.get("attempt", 1) > 1
            people += (
                signal.name == "tool:result"
                and isinstance(payload.get("output"), dict)
                and payload["output"].get("by") == "ann"
            )
    assert {
        "text:delta",
        "thinking:delta",
        "delegation",
        "delegation_response",
        "harness:error",
        "agent:skipped",
        "noted",
    } <= names
    assert (joined > 0, guards, retries > 0, people > 0) == (True, {True, False}, True, True)


def assert_change_is_named(seed: int) -> None:
    """Change one reply or result, one guard and one clock value of a seed: the first divergence is the signal that contains it."""
    found = record_simulated(topology(seed), seed)
    dice = random.Random(seed)
    assert_guard_is_named(seed, found)
    assert_clock_is_named(seed, found, dice)
    places = [(n, m) for n, part in enumerate(found.parts) for m, entry in enumerate(part.entries) if _value_of(entry)]
    if not places:
        return
    n, m = dice.choice(places)
    parts = msgspec.json.decode(msgspec.json.encode([p.entries for p in found.parts]))
    _change(parts[n][m])
    edited = replace(found, parts=[Part(p.name, p.data, e) for p, e in zip(found.parts, parts, strict=True)])
    result = replay_recording(edited, topology(seed).workflow)
    assert result.first is not None, (seed, found.parts[n].entries[m])
    assert {each.part for each in result.divergences} == {found.parts[n].name}, seed
    assert "!" in str(result.first.replayed), (seed, result.first.line())
    assert "!" not in str(result.first.recorded), (seed, result.first.line())


def assert_guard_is_named(seed: int, found: Recording) -> None:
    """Negate the guard of an agent: the first signal with its verdict differs."""
    decided = [s for s in found.signals if s.agent == "guarded" and s.name in ("agent:activated", "agent:skipped")]
    if decided:
        result = replay_recording(found, topology(seed, is_guard_negated=True).workflow)
        assert result.first is not None
        assert (result.first.seq, result.first.kind) == (decided[0].seq, "signal"), (seed, result.first.line())
        assert result.first.differences[0].path == "/name", seed


def assert_clock_is_named(seed: int, found: Recording, dice: random.Random) -> None:
    """Change a time that a part has read and given to signals: the first of these differs."""
    places = [(n, m, first) for n, part in enumerate(found.parts) for m, first in _times_of(found, part)]
    n, m, first = dice.choice(places)
    parts = [Part(part.name, part.data, msgspec.json.decode(msgspec.json.encode(part.entries))) for part in found.parts]
    parts[n].entries[m][1] = "2031-01-01T00:00:00Z"  # type: ignore[index]
    result = replay_recording(replace(found, parts=parts), topology(seed).workflow)
    assert result.first is not None, (seed, found.parts[n].entries[m])
    assert {each.part for each in result.divergences} == {found.parts[n].name}, seed
    assert result.first.seq == first, (seed, result.first.line())
    assert (result.first.differences[0].path, result.first.differences[0].right) == ("/at", "2031-01-01T00:00:00+00:00")


def _times_of(found: Recording, part: Part) -> list[tuple[int, int]]:
    """The entries of the clock whose times signals of the part have, each with the position of the first one."""
    reads = [(m, entry[1]) for m, entry in enumerate(part.entries) if entry[0] == "now"]
    signals = [signal for call in part.calls() if "first" in call[4] for signal in found.signals_of(call[4])]
    return [
        (m, min(signal.seq for signal in signals if signal.timestamp == at))
        for m, text in reads
        if [other for _, other in reads].count(text) == 1
        and any(signal.timestamp == (at := datetime.fromisoformat(text)) for signal in signals)
    ]


def test_two_replays_run_at_once_and_within_a_running_loop(recording: Recording) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: replay_recording(recording, thin().workflow), range(2)))
    assert [result.is_same for result in found] == [True, True]

    async def inside() -> bool:
        return replay_recording(recording, thin().workflow).is_same

    assert asyncio.run(inside())


def _value_of(entry: Any) -> bool:
    """Whether an entry is a reply or the result of a step, which the next signals of its turn contain."""
    is_result = entry[0] == "answer" and isinstance(entry[2], dict) and isinstance(entry[2].get("output"), str)
    return is_result or (entry[0] == "reply" and bool(entry[2]["text"]))


def _change(entry: Any) -> None:
    if entry[0] == "reply":
        entry[2]["text"] += "!"
    else:
        entry[2]["output"] += "!"
