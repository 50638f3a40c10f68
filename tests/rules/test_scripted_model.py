from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph.errors import HarnessError
from heliograph.models import (
    AssistantMessage,
    ModelReply,
    ModelRequest,
    ScriptedModel,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    UserMessage,
)

ASK = ModelRequest((UserMessage("how many?"),))
SEARCH = ToolCall("1", "search", {"q": "x"})


class Count(BaseModel):
    n: int


@dataclass
class Pair:
    left: int
    right: int


async def streamed(model: ScriptedModel, request: ModelRequest = ASK) -> list[Any]:
    return [chunk async for chunk in model.stream(request)]


async def replied(reply: Any) -> ModelReply:
    *_, last = await streamed(ScriptedModel([reply]))
    assert isinstance(last, ModelReply)
    return last


@pytest.mark.parametrize(
    ("reply", "output"),
    [(Count(n=3), {"n": 3}), (Pair(1, 2), {"left": 1, "right": 2}), ({"n": 4}, {"n": 4}), ([1, 2], [1, 2]), (5, 5)],
)
async def test_value_is_the_typed_output(reply: Any, output: Any) -> None:
    assert (await replied(reply)).output == output


@pytest.mark.parametrize("reply", [SEARCH, [SEARCH], (SEARCH,)])
async def test_tool_calls_are_the_reply(reply: Any) -> None:
    assert (await replied(reply)).tool_calls == (SEARCH,)


async def test_deltas_are_streamed_as_they_are_and_joined_in_the_reply() -> None:
    script = [ThinkingDelta("hm, "), TextDelta("a b"), ThinkingDelta("so"), TextDelta(" c"), SEARCH]
    *deltas, reply = await streamed(ScriptedModel([script]))
    assert deltas == script[:4]
    assert (reply.text, reply.thinking, reply.tool_calls) == ("a b c", "hm, so", (SEARCH,))


async def test_exception_ends_a_stream_after_its_deltas() -> None:
    stream = ScriptedModel([[TextDelta("a"), HarnessError("lost", recoverable=True)]]).stream(ASK)
    assert await anext(stream) == TextDelta("a")
    with pytest.raises(HarnessError, match="lost"):
        await anext(stream)


async def test_list_per_turn_begins_again_in_each_conversation_and_repeats_its_replies() -> None:
    model = ScriptedModel([SEARCH, "done"], per_turn=True)
    later = ModelRequest((*ASK.messages, AssistantMessage("", (SEARCH,))))
    texts = [(await streamed(model, request))[-1].text for request in (ASK, ASK, later, later, ASK)]
    assert texts == ["", "", "done", "done", ""]


async def test_list_is_used_across_conversations_and_ends() -> None:
    model = ScriptedModel(["one"])
    assert (await streamed(model))[-1].text == "one"
    with pytest.raises(HarnessError, match="all 1 replies are used"):
        await streamed(model)


async def test_model_keeps_its_requests() -> None:
    model = ScriptedModel({"how": "three"})
    await streamed(model)
    with pytest.raises(HarnessError, match="no reply to this prompt"):
        await streamed(model, ModelRequest((UserMessage("why?"),)))
    assert [request.prompt for request in model.requests] == ["how many?", "why?"]


@pytest.mark.parametrize(
    ("model", "repeats"),
    [
        (ScriptedModel(["a"]), False),
        (ScriptedModel(["a"], per_turn=True), True),
        (ScriptedModel({"a": "b"}), True),
        (ScriptedModel(lambda _: "b"), True),
    ],
)
def test_scripts_know_whether_they_repeat_a_reply(model: ScriptedModel, repeats: bool) -> None:
    assert model.repeats is repeats


async def test_stream_with_anything_else_is_an_error_that_names_it() -> None:
    with pytest.raises(HarnessError, match="which has a str"):
        await streamed(ScriptedModel({"how": [TextDelta("a"), "b"]}))
