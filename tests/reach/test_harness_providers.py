"""The harness over the real protocols of two providers: streaming, usage, tools, structured answers, and failures.

`provider` rejects an invalid conversation, as the real ones do, so every conversation that it answers was valid.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, ToolCallPart

from heliograph.errors import HarnessError, SetupError
from heliograph.harness.call_ids import with_unique_ids
from heliograph.harness.pydantic_model import PydanticHarness
from heliograph.harness.resolve import Harnesses
from heliograph.ports import (
    AssistantMessage,
    Chunk,
    Message,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from heliograph.turn.conversation import record_of, reply_of
from tests.grids import mostly_more
from tests.reach.model_server import Answer, Provider, env_of, serve

BOTH = pytest.mark.parametrize("name", ["openai-chat:test", "anthropic:claude-test"])
OPENAI, ANTHROPIC = "openai-chat:test", "anthropic:claude-test"
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})


class Verdict(BaseModel):
    score: float


@pytest.fixture
def provider(clients_of_providers: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    with serve(Provider()) as serving:
        for variable, value in env_of(serving).items():
            monkeypatch.setenv(variable, value)
        yield serving


async def chunks_of(name: str, *messages: Message, **options: Any) -> list[Chunk]:
    harnesses = Harnesses(name)
    request = ModelRequest(messages or (UserMessage("hello?"),), **options)
    try:
        stream: AsyncIterator[Chunk] = harnesses(None).stream(request)
        return [chunk async for chunk in stream]
    finally:
        await harnesses.close()


async def reply_to(name: str, *messages: Message, **options: Any) -> ModelReply:
    *_, reply = await chunks_of(name, *messages, **options)
    assert isinstance(reply, ModelReply)
    return reply


@BOTH
@pytest.mark.proves("SIG-26", "SIG-28")
async def test_reply_streams_in_order_and_ends_with_its_text_and_usage(provider: Provider, name: str) -> None:
    chunks = await chunks_of(name, system="be brief")
    assert [c.content for c in chunks if isinstance(c, TextDelta)] == ["hello ", "from ", "afar"]
    assert chunks[-1] == ModelReply("hello from afar", input_tokens=7, output_tokens=3)
    [body] = provider.requests
    assert "be brief" in json.dumps(body.get("system", body["messages"][0]))
    assert body["messages"][-1]["role"] == "user"


@BOTH
@pytest.mark.proves("S12")
async def test_provider_receives_the_output_limit_and_reports_a_truncated_reply(provider: Provider, name: str) -> None:
    provider.answers = [Answer(("hello ",), is_cut=True), Answer(("hello",))]
    assert (await reply_to(name, output_tokens_max=77)).is_cut
    assert not (await reply_to(name)).is_cut
    bounds = [body.get("max_completion_tokens", body.get("max_tokens")) for body in provider.requests]
    assert bounds[0] == 77
    assert bounds[1] != 77


@BOTH
async def test_rejected_request_has_no_usage_and_a_broken_reply_unknown_usage(provider: Provider, name: str) -> None:
    provider.answers = [Answer(status=429), Answer(("hello ", "from"), cut_after=2)]
    counted = []
    for _ in range(2):
        with pytest.raises(HarnessError) as caught:
            await reply_to(name)
        counted.append(caught.value.tokens)
    assert counted == [0, None]


@pytest.mark.parametrize(("is_metered", "requests_made"), [(False, 3), (True, 1)])
async def test_invalid_output_reports_its_usage_and_is_requested_once_under_a_budget(
    provider: Provider, is_metered: bool, requests_made: int
) -> None:
    provider.answers = [Answer(calls=[("a", "final_result", '{"score": "high"}')])]
    with pytest.raises(HarnessError) as caught:
        await reply_to(OPENAI, output=Verdict, is_metered=is_metered)
    assert (caught.value.tokens, len(provider.requests)) == (10 * requests_made, requests_made)


def test_maximum_cost_is_known_only_for_known_models(provider: Provider) -> None:
    known, unknown = PydanticHarness("openai-chat:gpt-4o-mini"), PydanticHarness(OPENAI)
    assert known.cost_at_most(1_000_000, 0) == pytest.approx(0.15)
    assert known.cost_at_most(0, 1_000_000) == pytest.approx(0.6)
    assert unknown.cost_at_most(1, 1) is None


@BOTH
async def test_first_delta_arrives_before_the_end_of_the_reply(provider: Provider, name: str) -> None:
    gate = threading.Event()
    provider.answers = [Answer(("one ", "two"), gate=gate)]
    harnesses = Harnesses(name)
    received: list[Chunk] = []
    async for chunk in harnesses(None).stream(ModelRequest((UserMessage("hello?"),))):
        received.append(chunk)
        gate.set()  # only after the first chunk; the reply cannot end before
    await harnesses.close()
    assert [type(chunk) for chunk in received] == [TextDelta, TextDelta, ModelReply]


@BOTH
@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # models with a price grow old
async def test_cost_follows_the_price_list_and_is_never_guessed(provider: Provider, name: str) -> None:
    assert (await reply_to(name)).cost_usd is None
    provider.answers = [Answer(("dear",), usage=(1_000_000, 1_000_000))]
    known = {OPENAI: "openai-chat:gpt-4o", ANTHROPIC: "anthropic:claude-sonnet-4-5"}[name]
    cost = (await reply_to(known)).cost_usd
    assert cost is not None
    assert 1 < cost < 100


# ── Tools ──


@BOTH
async def test_calls_and_results_round_trip_in_a_valid_conversation(provider: Provider, name: str) -> None:
    calls = (("t1", "add", '{"a": 1}'), ("t2", "add", '{"a": 2}'), ("t3", "nope", "{}"))
    provider.answers = [Answer(("let me see",), calls=calls), Answer(("3",))]
    question = UserMessage("1 + 2?")
    first = await reply_to(name, question, tools=(ADD,))
    assert first.text == "let me see"
    assert first.tool_calls == (
        ToolCall("t1", "add", {"a": 1}),
        ToolCall("t2", "add", {"a": 2}),
        ToolCall("t3", "nope", {}),
    )
    first = reply_of(json.loads(json.dumps(record_of(first))))  # as it is read back from the ledger
    answers = (ToolMessage("t1", "add", {"sum": 1}), ToolMessage("t2", "add", "no ink", is_error=True),
               ToolMessage("t3", "nope", "there is no tool nope", is_error=True))  # fmt: skip
    last = await reply_to(
        name, question, AssistantMessage(first.text, first.tool_calls, first.raw), *answers, tools=(ADD,)
    )
    assert last.text == "3"
    sent = json.dumps(provider.requests[1]["messages"])
    assert "no ink" in sent
    assert r"\"sum\"" in sent
    if name == ANTHROPIC:
        results = provider.requests[1]["messages"][-1]["content"]
        assert [result["is_error"] for result in results] == [False, True, True]


@BOTH
async def test_provider_receives_the_tools_of_the_conversation_and_a_ban_on_further_calls(
    provider: Provider, name: str
) -> None:
    provider.answers = [Answer(("3",))]
    talk: list[Message] = [
        UserMessage("1 + 2?"),
        AssistantMessage("", (ToolCall("t1", "add", {"a": 1}),)),
        ToolMessage("t1", "add", 3),
    ]
    assert (await reply_to(name, *talk)).text == "3"
    [body] = provider.requests
    assert [tool.get("name") or tool["function"]["name"] for tool in body["tools"]] == ["add"]
    assert body["tool_choice"] in ("none", {"type": "none"})


@BOTH
async def test_calls_with_the_same_id_in_each_reply_are_sent_under_different_ids(provider: Provider, name: str) -> None:
    provider.answers = [Answer(calls=(("call_0", "add", '{"a": 1}'),))]
    messages: list[Message] = [UserMessage("1?")]
    for n in range(4):
        calling = await reply_to(name, *messages, tools=(ADD,))
        assert calling.tool_calls == (ToolCall("call_0", "add", {"a": 1}),)
        messages += [AssistantMessage(calling.text, calling.tool_calls, calling.raw), ToolMessage("call_0", "add", n)]
    sent = [json.dumps(request["messages"])[:-1] for request in provider.requests]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(sent))  # so that a provider may cache it
    assert sent[3].count('"call_0"') == sent[3].count('"call_0_1"') == sent[3].count('"call_0_2"') == 2


@BOTH
@pytest.mark.parametrize("call_id", ["functions.add:0", "add 1", "a" * 60])
async def test_id_of_another_provider_is_sent_in_portable_characters(
    provider: Provider, name: str, call_id: str
) -> None:
    calls = (ToolCall(call_id, "add", {"a": 1}), ToolCall("plain", "add", {"a": 2}))
    answers = ToolMessage(call_id, "add", 1), ToolMessage("plain", "add", 2)
    reply = await reply_to(name, UserMessage("1?"), AssistantMessage("", calls), *answers, tools=(ADD,))
    assert reply.text == "hello from afar"
    assert call_id not in json.dumps(provider.requests)


async def test_id_of_a_provider_is_returned_to_it_unchanged(provider: Provider) -> None:
    provider.answers = [Answer(calls=(("functions.add:0", "add", '{"a": 1}'),)), Answer(("done",))]
    calling = await reply_to(OPENAI, UserMessage("1?"), tools=(ADD,))
    answered = AssistantMessage(calling.text, calling.tool_calls, calling.raw), ToolMessage("functions.add:0", "add", 1)
    await reply_to(OPENAI, UserMessage("1?"), *answered, tools=(ADD,))
    assert provider.requests[1]["messages"][-1]["tool_call_id"] == "functions.add:0"


@BOTH
@pytest.mark.parametrize("result", mostly_more([None, "", [], {}, 0, False, "text", [1, {"a": None}]], {0, 2, 7}))
async def test_any_tool_result_can_be_sent(provider: Provider, name: str, result: Any) -> None:
    calling = AssistantMessage("", (ToolCall("x", "add", {"a": 1}),))
    reply = await reply_to(name, UserMessage("1?"), calling, ToolMessage("x", "add", result), tools=(ADD,))
    assert reply.text == "hello from afar"
    result_message = provider.requests[0]["messages"][-1]
    content = result_message["content"] if name == OPENAI else result_message["content"][0]["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    assert text == result if isinstance(result, str) else json.loads(text) == result


@BOTH
async def test_reply_of_another_harness_is_translated(provider: Provider, name: str) -> None:
    calling = AssistantMessage("let me see", (ToolCall("x", "add", {"a": 1}),), raw={"my own": ["words"]})
    reply = await reply_to(name, UserMessage("1?"), calling, ToolMessage("x", "add", 1), tools=(ADD,))
    assert reply.text == "hello from afar"
    assert "my own" not in json.dumps(provider.requests)


@BOTH
@pytest.mark.parametrize("arguments", mostly_more(["[1, 2]", '"text"', "nonsense", '{"a": 1', '{"a": "q"}'], {0, 3}))
async def test_invalid_arguments_are_kept_and_the_next_request_is_valid(
    provider: Provider, name: str, arguments: str
) -> None:
    provider.answers = [Answer(calls=(("t1", "add", arguments),)), Answer(("sorry",))]
    first = await reply_to(name, UserMessage("?"), tools=(ADD,))
    [call] = first.tool_calls
    assert call.arguments == ({"a": "q"} if "q" in arguments else arguments)
    calling = AssistantMessage(first.text, first.tool_calls, first.raw)
    again = await reply_to(
        name, UserMessage("?"), calling, ToolMessage("t1", "add", "wrong", is_error=True), tools=(ADD,)
    )
    assert again.text == "sorry"
    plain = AssistantMessage(first.text, first.tool_calls)  # as another harness would have recorded it
    again = await reply_to(
        name, UserMessage("?"), plain, ToolMessage("t1", "add", "wrong", is_error=True), tools=(ADD,)
    )
    assert again.text == "sorry"


async def test_thinking_is_streamed_and_sent_back_with_its_signature(provider: Provider) -> None:
    thinks = Answer(("so ",), ("hm, ", "well"), "sig-1", calls=(("t1", "add", '{"a": 1}'),))
    provider.answers = [thinks, Answer(("done",))]
    chunks = await chunks_of(ANTHROPIC, UserMessage("?"), tools=(ADD,))
    assert [chunk.content for chunk in chunks if isinstance(chunk, ThinkingDelta)] == ["hm, ", "well"]
    reply = chunks[-1]
    assert isinstance(reply, ModelReply)
    assert reply.thinking == "hm, well"
    reply = reply_of(json.loads(json.dumps(record_of(reply))))
    calling = AssistantMessage(reply.text, reply.tool_calls, reply.raw)
    await reply_to(ANTHROPIC, UserMessage("?"), calling, ToolMessage("t1", "add", 1), tools=(ADD,))
    thought = provider.requests[1]["messages"][1]["content"][0]
    assert (thought["type"], thought["thinking"], thought["signature"]) == ("thinking", "hm, well", "sig-1")


# ── Structured answers ──


@BOTH
async def test_structured_output_is_validated_into_its_type_also_beside_tools(provider: Provider, name: str) -> None:
    provider.answers = [
        Answer(calls=(("t1", "add", '{"a": 1}'),)),
        Answer(calls=(("t2", "final_result", '{"score": 0.5}'),)),
    ]
    first = await reply_to(name, UserMessage("score"), tools=(ADD,), output=Verdict)
    assert (first.output, [call.tool for call in first.tool_calls]) == (None, ["add"])
    calling = AssistantMessage(first.text, first.tool_calls, first.raw)
    last = await reply_to(
        name, UserMessage("score"), calling, ToolMessage("t1", "add", 1), tools=(ADD,), output=Verdict
    )
    assert (last.output, last.tool_calls) == ({"score": 0.5}, ())


@BOTH
async def test_output_beside_calls_waits_and_the_conversation_is_valid(provider: Provider, name: str) -> None:
    both = (("t1", "add", '{"a": 1}'), ("t2", "final_result", '{"score": 0.5}'))
    provider.answers = [Answer(calls=both), Answer(calls=(("t3", "final_result", '{"score": 1}'),))]
    first = await reply_to(name, UserMessage("score"), tools=(ADD,), output=Verdict)
    assert (first.output, [call.tool for call in first.tool_calls]) == (None, ["add"])
    calling = AssistantMessage(first.text, first.tool_calls, first.raw)
    last = await reply_to(
        name, UserMessage("score"), calling, ToolMessage("t1", "add", 1), tools=(ADD,), output=Verdict
    )
    assert last.output == {"score": 1.0}


@BOTH
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Answer(calls=(("t1", "final_result", '{"score": "high"}'),)), "is not a valid Verdict"),
        (Answer(calls=(("t1", "final_result", '{"sco'),)), "is not a valid Verdict"),
        (Answer(("0.5",)), "text instead of structured output"),
    ],
)
async def test_output_of_the_wrong_type_is_recoverable(provider: Provider, name: str, answer: Answer, why: str) -> None:
    provider.answers = [answer]
    with pytest.raises(HarnessError, match=why) as raised:
        await chunks_of(name, output=Verdict)
    assert raised.value.recoverable


# ── Failures ─────────


@BOTH
@pytest.mark.parametrize(
    ("status", "may_pass"), [(429, True), (500, True), (503, True), (529, True), (408, True), (400, False), (401, False), (404, False)]
)  # fmt: skip
async def test_rejecting_provider_is_called_once_and_the_error_has_a_recoverable_flag(
    provider: Provider, name: str, status: int, may_pass: bool
) -> None:
    provider.answers = [Answer(status=status, retry_after="9" if may_pass else None)]
    with pytest.raises(HarnessError, match=str(status)) as raised:
        await chunks_of(name)
    assert raised.value.recoverable is may_pass
    assert raised.value.retry_after_seconds == (9.0 if may_pass else 0.0)
    assert len(provider.requests) == 1


@BOTH
@pytest.mark.parametrize("after", mostly_more(range(4), {0, 2}))
@pytest.mark.parametrize("fault", ["cut_after", "garble_after"])
async def test_stream_cut_or_garbled_anywhere_is_a_recoverable_error_and_no_short_reply(
    provider: Provider, name: str, fault: str, after: int
) -> None:
    faults: dict[str, Any] = {fault: after}
    provider.answers = [Answer(("one ", "two ", "three"), **faults)]
    with pytest.raises(HarnessError) as raised:
        await chunks_of(name)
    assert raised.value.recoverable
    assert len(provider.requests) == 1


@BOTH
async def test_unreachable_provider_is_recoverable(
    provider: Provider, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(HarnessError) as raised:
        await chunks_of(name)
    assert raised.value.recoverable


def test_unknown_model_name_is_rejected_with_the_expected_form() -> None:
    with pytest.raises(SetupError, match="nobody:nothing") as raised:
        Harnesses("nobody:nothing")(None)
    assert "provider:model" in (raised.value.hint or "")


def test_missing_model_is_rejected_with_its_variable() -> None:
    with pytest.raises(SetupError, match="HELIOGRAPH_MODEL"):
        Harnesses(None)(None)


def test_ids_of_an_unknown_provider_are_never_taken_for_native_ones() -> None:
    call = ToolCallPart("add", {}, tool_call_id="functions.add:0")
    [renamed] = with_unique_ids([ModelResponse([call])], None)
    assert [part.tool_call_id for part in renamed.parts if isinstance(part, ToolCallPart)] == ["functions_add_0_1"]
