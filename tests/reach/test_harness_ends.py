"""Incomplete replies of a provider: truncated, refused, blank, or unstorable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph.agent_loop.reply_validation import validate_reply
from heliograph.errors import HarnessError
from heliograph.ports import AssistantMessage, ToolMessage, ToolSpec, UserMessage
from heliograph.turn.conversation import record_of, reply_of
from tests.reach.model_server import Answer, Provider
from tests.reach.test_harness_providers import ADD, ANTHROPIC, BOTH, OPENAI, chunks_of, provider, reply_to

__all__ = ["provider"]

WIPE = ToolSpec("wipe", "Wipe.", {"type": "object", "properties": {"path": {"type": "string"}}})
CALL = Answer(calls=(("t1", "wipe", '{"path": "/tmp/x"}'),))
FINISHES = {
    "length": {OPENAI: "length", ANTHROPIC: "max_tokens"},
    "refusal": {OPENAI: "content_filter", ANTHROPIC: "refusal"},
}


class Verdict(BaseModel):
    score: float


@BOTH
@pytest.mark.parametrize("answer", [Answer(("half ", "an ", "answer")), CALL], ids=["text", "call"])
@pytest.mark.parametrize("missing", [1, 2, 3])
async def test_reply_without_a_finish_reason_is_recoverable(
    provider: Provider, name: str, answer: Answer, missing: int
) -> None:
    after = {OPENAI: {1: 2, 2: 3, 3: 4}, ANTHROPIC: {1: 2, 2: 3, 3: 4}}[name][missing]
    provider.answers = [Answer(answer.words, calls=answer.calls, ends_after=after if answer.words else after - 1)]
    with pytest.raises(HarnessError, match="stopped in the middle") as raised:
        await chunks_of(name, tools=(WIPE,))
    assert raised.value.recoverable


@BOTH
@pytest.mark.parametrize(("end", "message"), [("length", "limit of output tokens"), ("refusal", "refused")])
@pytest.mark.parametrize("answer", [Answer(("half ", "an ", "answer")), CALL], ids=["text", "call"])
async def test_truncated_or_filtered_reply_is_an_error_and_none_of_its_calls_runs(
    provider: Provider, name: str, end: str, message: str, answer: Answer
) -> None:
    provider.answers = [Answer(answer.words, calls=answer.calls, finish=FINISHES[end][name])]
    with pytest.raises(HarnessError, match=message) as raised:
        await chunks_of(name, tools=(WIPE,))
    assert not raised.value.recoverable


async def test_paused_reply_is_recoverable(provider: Provider) -> None:
    provider.answers = [Answer(("wait",), finish="pause_turn")]
    with pytest.raises(HarnessError, match="stopped in the middle") as raised:
        await chunks_of(ANTHROPIC)
    assert raised.value.recoverable


# ── Requests are valid, and replies can be stored ──────────


@BOTH
@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("\n\n",), ("t1", "add", '{"a": 1}')),
        ((" ",), ("t1", "functions.add now!", "{}")),
        ((), ("t1", "x" * 200, "{}")),
        ((), ("t1", "", "{}")),
        ((), ("t1", "add", '{"a": NaN}')),
        ((), ("t1", "add", '{"a": 1e999}')),
        ((), ("t1", "add", '{"a": "q\\u0000q"}')),
        ((), ("t1", "add", '{"a": "q\\ud800q"}')),
        (("a\0b\ud800",), ("t1", "add\0", '{"a": "\ud800"}')),
    ],
    ids=["blank", "name", "long", "nameless", "nan", "infinity", "nul", "surrogate", "raw"],
)
async def test_any_text_of_a_model_is_recorded_and_the_next_request_is_valid(
    provider: Provider, name: str, words: Any, call: Any
) -> None:
    provider.answers = [Answer(words, calls=(call,)), Answer(("done",))]
    first = validate_reply(name, await reply_to(name, UserMessage("?"), tools=(ADD,)))
    text = json.dumps(record_of(first), allow_nan=False, ensure_ascii=False)
    assert "\\u0000" not in text.replace("\\\\u0000", "")
    text.encode()
    first = reply_of(json.loads(text))
    for raw in (first.raw, None):
        calling = AssistantMessage(first.text, first.tool_calls, raw)
        result = ToolMessage(first.tool_calls[0].id, first.tool_calls[0].tool, "there is no such tool", is_error=True)
        assert (await reply_to(name, UserMessage("?"), calling, result, tools=(ADD,))).text == "done"


# ── Structured answers ──


@BOTH
@pytest.mark.parametrize(
    ("kind", "given", "output"),
    [(list[int], {"response": [1, 2]}, [1, 2]), (int, {"response": 3}, 3), (Verdict | None, {"response": {"score": 1}}, {"score": 1.0}),
     (dict[str, int], {"a": 1}, {"a": 1})],
    ids=["list", "number", "union", "object"],
)  # fmt: skip
async def test_any_type_can_be_an_output(provider: Provider, name: str, kind: Any, given: Any, output: Any) -> None:
    provider.answers = [Answer(calls=(("t1", "final_result", json.dumps(given)),))]
    assert (await reply_to(name, output=kind)).output == output
    [described] = provider.requests[0]["tools"]
    schema = described["function"]["parameters"] if name == OPENAI else described["input_schema"]
    assert schema["type"] == "object"


@BOTH
async def test_invalid_output_is_returned_to_the_model_with_its_problems_for_another_try(
    provider: Provider, name: str
) -> None:
    provider.answers = [
        Answer(("hm ",), calls=(("t1", "final_result", '{"score": "high"}'),)), Answer(("0.5",)),
        Answer(calls=(("t3", "final_result", '{"score": 0.5}'),)),
    ]  # fmt: skip
    reply = await reply_to(name, UserMessage("score"), output=Verdict)
    assert (reply.output, reply.text) == ({"score": 0.5}, "hm 0.5")
    assert (reply.input_tokens, reply.output_tokens) == (21, 9)
    assert "unable to parse string" in json.dumps(provider.requests[1]["messages"])
    assert "final_result" in json.dumps(provider.requests[2]["messages"][-1])


@BOTH
async def test_two_invalid_outputs_are_returned_twice_and_the_next_request_is_valid(
    provider: Provider, name: str
) -> None:
    wrong = (("t1", "final_result", '{"score": "high"}'), ("t2", "final_result", '{"score": 1}'))
    provider.answers = [Answer(calls=wrong), Answer(calls=(("t3", "final_result", '{"score": 0.5}'),))]
    assert (await reply_to(name, output=Verdict)).output == {"score": 0.5}


@BOTH
async def test_empty_reply_in_place_of_an_output_is_recoverable(provider: Provider, name: str) -> None:
    provider.answers = [Answer()]
    with pytest.raises(HarnessError) as raised:
        await chunks_of(name, output=Verdict)
    assert raised.value.recoverable
    assert len(provider.requests) == 1


async def test_truncated_reply_after_an_invalid_output_reports_the_tokens_of_both(provider: Provider) -> None:
    provider.answers = [Answer(calls=(("t1", "final_result", '{"score": "high"}'),)), Answer(("half",), is_cut=True)]
    with pytest.raises(HarnessError, match="limit of output tokens") as raised:
        await reply_to(OPENAI, UserMessage("score"), output=Verdict)
    assert (raised.value.tokens, len(provider.requests)) == (20, 2)
