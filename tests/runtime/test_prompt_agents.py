"""Agents with a model: streaming, deliverables, and failures of the model."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from heliograph import Context, Heliograph
from heliograph.errors import HarnessError
from heliograph.models import ModelReply, ModelRequest, ScriptedModel, TextDelta, ThinkingDelta
from tests.runtime.kit import START, Rig, names, one


def writing(model: Any, prompt: Any = "Write.", **options: Any) -> Heliograph:
    app = Heliograph("asking")
    app.prompt_agent("writer", prompt, model=model, activate_on=START, updates="text", **options)
    return app


class Thinker:
    """A harness of one's own: thinks, then speaks, with pauses between."""

    model = "thinker"

    async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
        for piece in ("let ", "me ", "see"):
            yield ThinkingDelta(piece)
            await asyncio.sleep(0.06)  # longer than a batch, so the deltas so far are sent early
        for piece in ("here ", "it ", "is"):
            yield TextDelta(piece)
            await asyncio.sleep(0.06)
        yield ModelReply("here it is", thinking="let me see", input_tokens=3, output_tokens=4)


@pytest.mark.proves("SIG-28", "SIG-29", "SIG-30", "SIG-31", "G-48")
async def test_complete_text_is_the_joined_deltas_and_their_offsets_match(rig: Rig) -> None:
    result = await rig.run(writing(Thinker()))
    for kind, text in (("text", "here it is"), ("thinking", "let me see")):
        deltas: list[Any] = [signal.payload for signal in result.signals if signal.name == f"{kind}:delta"]
        assert len(deltas) > 1
        assert (
            "".join(delta["content"] for delta in deltas) == one(result.signals, f"{kind}:complete")["content"] == text
        )
        for delta in deltas:
            assert text[delta["offset"] :].startswith(delta["content"])
    assert result.state == {"text": "here it is"}


@pytest.mark.proves("G-48")
async def test_deltas_faster_than_their_batches_share_a_signal_and_lose_no_character(rig: Rig) -> None:
    text = " ".join(f"word{n}" for n in range(500))
    result = await rig.run(writing(ScriptedModel([text])))
    deltas: list[Any] = [signal.payload for signal in result.signals if signal.name == "text:delta"]
    assert len(deltas) < 100
    assert "".join(delta["content"] for delta in deltas) == text
    assert [delta["offset"] for delta in deltas] == [
        sum(len(each["content"]) for each in deltas[:n]) for n in range(len(deltas))
    ]


@pytest.mark.proves("SIG-25", "SIG-26", "G-43")
async def test_model_call_is_recorded_with_prompt_usage_and_duration(rig: Rig) -> None:
    result = await rig.run(
        writing(Thinker(), "Write about {state.topic}, woken by {signal.name}."), {"topic": "{braces}"}
    )
    start, end = one(result.signals, "harness:start"), one(result.signals, "harness:end")
    assert start == {"model": "thinker", "input": "Write about {braces}, woken by workflow:start."}
    assert end["usage"] == {"inputTokens": 3, "outputTokens": 4}
    assert end["durationMs"] >= 300
    assert result.metrics["usage"] == {"inputTokens": 3, "outputTokens": 4}


async def test_deltas_of_a_model_reference_its_call(rig: Rig) -> None:
    result = await rig.run(writing(Thinker()))
    start = next(signal for signal in result.signals if signal.name == "harness:start")
    for signal in result.signals:
        if signal.name.startswith(("text:", "thinking:")) or signal.name == "harness:end":
            assert signal.parent == start.id


async def test_deltas_are_visible_while_the_model_streams(rig: Rig) -> None:
    may_end = asyncio.Event()

    class Waits:
        model = "waits"

        async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
            yield TextDelta("hello ")
            async with asyncio.timeout(60):
                await may_end.wait()
            yield TextDelta("world")
            yield ModelReply("hello world")

    def watch(signal: Any) -> None:
        if signal.name == "text:delta":
            may_end.set()

    result = await rig.run(writing(Waits()), on_signal=watch)
    assert result.state == {"text": "hello world"}


@pytest.mark.parametrize("model", [TestModel(custom_output_text="from the test model"), "test"])
async def test_pydantic_ai_model_is_given_by_object_or_by_name(rig: Rig, model: Any) -> None:
    result = await rig.run(writing(model))
    assert result.outcome == "success"
    assert result.state["text"] == one(result.signals, "text:complete")["content"] != ""
    assert one(result.signals, "harness:start")["model"] == "test"


class Verdict(BaseModel):
    score: int
    why: str


async def _answers(_messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
    (tool,) = info.output_tools
    yield {0: DeltaToolCall(name=tool.name, json_args='{"score": 7, ')}
    yield {0: DeltaToolCall(json_args='"why": "short"}')}


async def test_structured_output_is_validated_and_updates_several_keys(rig: Rig) -> None:
    app = Heliograph("structured")
    app.prompt_agent("judge", "Judge.", model=FunctionModel(stream_function=_answers), output=Verdict, activate_on=START,
                     updates=["score", "why"])  # fmt: skip
    assert (await rig.run(app)).state == {"score": 7, "why": "short"}


async def _answers_nonsense(_messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, DeltaToolCall]]:
    yield {0: DeltaToolCall(name=info.output_tools[0].name, json_args='{"score": "many"}')}


async def test_invalid_output_fails_the_turn_with_the_reason(rig: Rig) -> None:
    model = FunctionModel(stream_function=_answers_nonsense)
    result = await rig.run(writing(model, output=Verdict, retries=0))
    assert result.outcome == "failed"
    assert "is not a valid Verdict" in one(result.signals, "harness:error")["message"]
    assert "text" not in result.state


async def _stream_words(_messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
    yield "hello "
    yield "world"


async def test_text_of_a_function_model_is_streamed(rig: Rig) -> None:
    result = await rig.run(writing(FunctionModel(stream_function=_stream_words)))
    assert result.state == {"text": "hello world"}


# ── Failures ──


def _unplugged(_request: ModelRequest) -> str:
    raise OSError("the cable is out")


@pytest.mark.proves("SIG-27")
@pytest.mark.parametrize(
    "model",
    [ScriptedModel([HarnessError("overloaded", code="NETWORK_ERROR")]), ScriptedModel(_unplugged), ScriptedModel([])],
)
async def test_failing_model_records_an_error_and_a_failed_turn(rig: Rig, model: ScriptedModel) -> None:
    result = await rig.run(writing(model, retries=0))
    assert result.outcome == "failed"
    error = one(result.signals, "harness:error")
    assert (
        error["error"] == error["message"] == one(result.signals, "agent:failed")["error"]["message"]
        or "OSError" in error["error"]
    )
    assert "harness:end" not in names(result.signals)


@pytest.mark.parametrize("text", ["a\0b", "half \ud800 pair"], ids=["nul", "surrogate"])
async def test_unstorable_prompt_fails_the_turn_at_once_with_the_reason(rig: Rig, text: str) -> None:
    result = await rig.run(writing(ScriptedModel(["never asked"]), lambda _context: text))
    assert result.outcome == "failed"
    assert one(result.signals, "agent:failed")["error"]["message"]
    assert one(result.signals, "agent:activated") == {"agent": "writer"}


async def test_template_with_an_unknown_key_fails_and_lists_the_known_keys(rig: Rig) -> None:
    result = await rig.run(writing(ScriptedModel(["never asked"]), "About {state.topci}"), {"topic": "t"})
    assert "state.topic" in one(result.signals, "agent:failed")["error"]["message"]
    assert "harness:start" not in names(result.signals)


async def test_missing_model_fails_the_turn_with_the_setting(rig: Rig) -> None:
    result = await rig.run(writing(None))
    assert "HELIOGRAPH_MODEL" in one(result.signals, "agent:failed")["error"]["message"]


async def test_model_that_never_answers_times_out(rig: Rig) -> None:
    class Silent:
        model = "silent"

        async def stream(self, _request: ModelRequest) -> AsyncIterator[Any]:
            yield TextDelta("so")
            await asyncio.Event().wait()

    result = await rig.run(writing(Silent(), timeout_seconds=0.1))
    assert one(result.signals, "agent:failed")["outcome"] == "timeout"


async def test_prompt_may_be_a_function_of_the_context(rig: Rig) -> None:
    def prompt(ctx: Context) -> str:
        return f"Write about {ctx.state['topic']}"

    result = await rig.run(writing(ScriptedModel({"about tea": "Tea."}), prompt), {"topic": "tea"})
    assert result.state["text"] == "Tea."
