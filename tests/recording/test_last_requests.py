"""The request for the reply that ends a turn: its texts are compared with hashes in the log, also without any tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from heliograph import Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import replay_recording
from heliograph.signals.payload import TRUNCATED_BYTES_MAX
from tests.recording.simulated import record_simulated


def newsroom(
    *,
    system: str = "Be polite.",
    prompt: str = "Greet",
    has_tool: bool = False,
    must_end: bool = False,
    temperature: float | None = None,
    output: int | None = None,
) -> Heliograph:
    app = Heliograph("newsroom")

    @tool(effect="pure")
    def look(word: str) -> str:
        return word.upper()

    greeting = ToolCall("1", "look", {"word": "a"}) if must_end else "Hello."
    app.prompt_agent("greeter", prompt, model=ScriptedModel([greeting]), system=system, activate_on=["workflow:start"],
                     tools=[look] if has_tool else [], must_end_with="look" if must_end else None, temperature=temperature,
                     max_output_tokens=output)  # fmt: skip
    return app


@pytest.fixture(scope="module")
def unrecorded() -> Recording:
    return record_simulated(newsroom(), 1, record=False)


def _marks(recording: Recording) -> Any:
    [end] = [s.payload for s in recording.signals if s.name == "harness:end"]
    assert isinstance(end, dict)
    return end.get("marks")


@pytest.mark.proves("P-26")
def test_changed_system_text_of_the_only_request_of_a_turn_is_named_at_the_request(unrecorded: Recording) -> None:
    assert replay_recording(unrecorded, newsroom().workflow).is_same
    first = replay_recording(unrecorded, newsroom(system="Be brief.").workflow).first
    assert first is not None
    assert (first.kind, unrecorded.signals[first.seq - 1].name, first.agent) == ("request", "harness:start", "greeter")
    assert "would receive another system text (the ledger has hashes of them)" in first.message
    assert first.request is not None
    assert first.request["system"] == "Be brief."
    assert replay_recording(unrecorded, newsroom(system="Be brief.").workflow, ReplayPolicy(["prompts"])).is_same


@pytest.mark.proves("P-26")
def test_added_tool_is_named_before_the_turn_is_replayed_with_it() -> None:
    with_tool = record_simulated(newsroom(has_tool=True), 1, record=False)
    assert set(_marks(with_tool)) == {"system", "prompt", "tools", "settings"}
    first = replay_recording(with_tool, newsroom(has_tool=True, system="Be brief.").workflow).first
    assert first is not None
    assert [each.path for each in first.differences] == ["/system"]


def test_recorded_run_names_the_request_and_accepts_it_with_the_policy() -> None:
    recorded = record_simulated(newsroom(), 1)
    first = replay_recording(recorded, newsroom(system="Be brief.").workflow).first
    assert first is not None
    assert (first.kind, first.differences[0].path) == ("request", "/system")
    assert replay_recording(recorded, newsroom(system="Be brief.").workflow, ReplayPolicy(["prompts"])).is_same


def test_reply_that_has_a_record_has_its_marks_there_alone() -> None:
    assert _marks(record_simulated(newsroom(has_tool=True, must_end=True), 1, record=False)) is None


@pytest.mark.proves("P-26")
def test_request_without_hashes_of_an_earlier_version_is_a_gap_of_its_turn(unrecorded: Recording) -> None:
    signals = [
        with_fields(s, payload={k: v for k, v in s.payload.items() if k != "marks"})
        if isinstance(s.payload, dict)
        else s
        for s in unrecorded.signals
    ]
    result = replay_recording(replace(unrecorded, signals=signals), newsroom(system="Be brief.").workflow)
    assert result.is_same
    [start] = [s.seq for s in unrecorded.signals if s.name == "harness:start"]
    assert (
        f"no hashes of the system text and the tools of the model request at signal {start}" in result.gaps[-1].reason
    )


def test_prompt_that_is_too_long_for_the_log_is_compared_by_its_template() -> None:
    long = "word " * (TRUNCATED_BYTES_MAX // 4)
    recorded = record_simulated(newsroom(prompt=long), 1, record=False)
    assert replay_recording(recorded, newsroom(prompt=long).workflow).is_same
    first = replay_recording(recorded, newsroom(prompt=f"{long} more").workflow).first
    assert first is not None
    assert (first.kind, [each.path for each in first.differences]) == ("request", ["/prompt"])


@pytest.mark.proves("P-26")
@pytest.mark.parametrize("change", [{"temperature": 0.5}, {"output": 77}])
def test_changed_temperature_and_output_limit_are_named_at_the_request(unrecorded: Recording, change: Any) -> None:
    first = replay_recording(unrecorded, newsroom(**change).workflow).first
    assert first is not None
    assert (first.kind, [each.path for each in first.differences]) == ("request", ["/settings"])
    assert "would receive another temperature or output limit" in first.message
