"""The loop of a model agent: its requests, its endings, and its submitted results."""

from typing import Any

import pytest
from pydantic import BaseModel

from heliograph import Heliograph, ToolContext, tool
from heliograph.errors import HarnessError, InvalidInput
from heliograph.models import ModelReply, ScriptedModel, TextDelta, UserMessage
from heliograph.testing import eventually
from tests.runtime.kit import SOON_SECONDS, START, Rig, names, one
from tests.runtime.loop_kit import agent, call, results


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


async def shout(text: str) -> str:
    return text.upper()


def broken() -> None:
    raise ValueError("no ink")


async def test_model_is_called_with_every_tool_result_until_it_answers(rig: Rig) -> None:
    model = ScriptedModel([[call("add", {"a": 1, "b": 2}, "x1"), call("shout", {"text": "hi"}, "x2")], call("add", {"a": 3, "b": 4}), "ten"])  # fmt: skip
    result = await rig.run(agent(model, [add, shout]))
    assert result.state == {"out": "ten"}
    assert results(model) == [3, "HI", 7]
    assert names(result.signals).count("harness:end") == 3
    usage = one(result.signals, "workflow:end")["metrics"]["usage"]
    assert usage["outputTokens"] == 2 + 1 + 1


async def test_tool_is_described_once_with_its_parameters_in_the_schema_alone(rig: Rig) -> None:
    model = ScriptedModel(["done"])
    await rig.run(agent(model, [add]))
    [spec] = model.requests[-1].tools
    assert spec.description == "Add two numbers."
    assert spec.parameters["properties"]["a"]["description"] == "the first"  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (call("nope"), "there is no tool nope; there are add, broken"),
        (call("add", {"a": "q", "b": 1}), "the arguments of add are invalid: a: Input should be a valid integer"),
        (call("add", {}), "a: Field required; b: Field required"),
        (call("add", [1]), "the arguments of add must be a JSON object, not [1]"),
        (call("add", "{half"), "the arguments of add must be a JSON object, not {half"),
        (call("broken"), "TOOL_ERROR: ValueError: no ink"),
    ],
)
async def test_impossible_call_returns_an_error_to_the_model_and_the_turn_continues(
    rig: Rig, requested: Any, message: str
) -> None:
    model = ScriptedModel([[requested, call("add", {"a": 1, "b": 1}, "x2")], "sorry"])
    result = await rig.run(agent(model, [add, broken]))
    assert result.state == {"out": "sorry"}
    [(kind, text), added] = results(model)
    assert (kind, added) == ("error", 2)
    assert message in text


async def test_tool_context_has_the_call_and_the_dependencies_of_the_application(rig: Rig) -> None:
    seen: list[Any] = []

    @tool
    async def look(ctx: ToolContext, at: str) -> str:
        seen.append((ctx.agent, ctx.call_id, ctx.idempotency_key, ctx.deps, at))
        return "seen"

    app = Heliograph("given", deps={"store": 1})
    app.prompt_agent(
        "worker", "Look.", model=ScriptedModel([call("look", {"at": "it"}), "ok"]), activate_on=START, tools=[look]
    )
    await rig.run(app)
    turn, project = await rig.turn_of("worker"), rig.runtime.settings.project
    assert seen == [("worker", "m1-1", f"{project}/given/{turn.turn_id}/m1-1", {"store": 1}, "it")]


# ── Ends ──


async def test_turn_at_its_last_step_ends_as_partial_with_the_text_of_the_model(rig: Rig) -> None:
    reply = ModelReply("so far: 3", tool_calls=(call("add", {"a": 1, "b": 2}),))
    result = await rig.run(agent(ScriptedModel([reply] * 3), [add], max_steps=3))
    assert names(result.signals).count("harness:start") == 3
    terminated = one(result.signals, "terminated")
    assert (terminated["status"], terminated["limit"]["message"]) == (
        "partial",
        "the model was not done after 3 steps (max_steps)",
    )
    assert (result.state, result.outcome) == ({"out": "so far: 3"}, "partial")


async def test_last_step_offers_no_call_that_cannot_end_the_turn_and_makes_none(rig: Rig) -> None:
    model = ScriptedModel([ModelReply("so far: 3", tool_calls=(call("add", {"a": 1, "b": 2}),))] * 2)
    await rig.run(agent(model, [add], asks_human=True, max_steps=2))
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["add", "ask_human"], []]
    turn = await rig.turn_of("worker")
    assert [(w.call_id, w.tool) for w in await rig.runtime.reader.waits(turn.turn_id)] == [
        ("m1", "model"), ("m1-1", "add"), ("m2", "model"),
    ]  # fmt: skip


async def test_last_step_offers_the_call_that_ends_the_turn(rig: Rig) -> None:
    model = ScriptedModel([call("broken"), call("add", {"a": 2, "b": 2})])
    result = await rig.run(agent(model, [add, broken], must_end_with="add", max_steps=2))
    assert [[spec.name for spec in request.tools] for request in model.requests] == [["add", "broken"], ["add"]]
    assert (result.state, result.outcome) == ({"out": 4}, "success")


class Total(BaseModel):
    total: int


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"must_end_with": "add"}, "a call of add"),
        ({"result_fields": [{"name": "total"}]}, "a call of submit_result"),
        ({"output": Total}, "an answer of its output type"),
    ],
)
@pytest.mark.parametrize("limit", [{"max_steps": 2}, {"budget": {"model_calls": 2}}], ids=["steps", "budget"])
async def test_turn_without_its_required_result_fails_and_its_text_does_not_enter_the_state(
    rig: Rig, options: Any, wanted: str, limit: Any
) -> None:
    reply = ModelReply("nearly there", tool_calls=(call("broken"),))
    result = await rig.run(agent(ScriptedModel([reply] * 2), [add, broken], **options, **limit), {"out": "before"})
    assert (result.state, result.outcome) == ({"out": "before"}, "failed")
    error = one(result.signals, "agent:failed")["error"]
    assert error["code"] == "RESULT_MISSING"
    assert f"must end with {wanted}, and did not: " in error["message"]
    turn = await rig.turn_of("worker")
    [deliverable] = [c.content for c in await rig.runtime.reader.cards(turn.turn_id) if c.kind == "task.deliverable"]
    assert deliverable["error"]["code"] == "RESULT_MISSING"


async def test_output_of_the_last_step_is_delivered_even_if_it_does_not_match_the_state(rig: Rig) -> None:
    app = Heliograph("typed")
    reply = ModelReply("not yet", tool_calls=(call("add", {"a": 1, "b": 2}),))
    app.prompt_agent(
        "worker", "Work.", model=ScriptedModel([reply]), activate_on=START, tools=[add], max_steps=1, updates=["a", "b"]
    )
    result = await rig.run(app)
    assert result.state == {}
    assert one(result.signals, "terminated")["status"] == "partial"
    assert one(result.signals, "agent:completed")["output"] == "not yet"


async def test_empty_reply_is_returned_to_the_model_and_the_turn_continues(rig: Rig) -> None:
    answers: list[Any] = [[call("add", {"a": 1, "b": 2})], "", "  ", "three"]
    requests: list[Any] = []

    def script(request: Any) -> Any:
        requests.append(request)
        return answers[len(requests) - 1]

    result = await rig.run(agent(ScriptedModel(script), [add]))
    assert result.state == {"out": "three"}
    assert requests[-1].messages[-1] == UserMessage("Your reply was empty: give your answer, or call a tool.")


@pytest.mark.more
async def test_silent_model_without_tools_is_called_again_and_then_fails(rig: Rig) -> None:
    model = ScriptedModel(["", "there"])
    assert (await rig.run(agent(model))).state == {"out": "there"}
    result = await rig.run(agent(ScriptedModel([""]), retries=0))
    assert one(result.signals, "agent:failed")["error"]["message"] == "the model gave an empty reply"


async def test_must_end_with_continues_the_turn_until_that_tool_succeeds_and_outputs_its_result(rig: Rig) -> None:
    model = ScriptedModel(["I am done", call("add", {"a": "q"}), call("add", {"a": 2, "b": 2}), "never asked"])
    result = await rig.run(agent(model, [add], must_end_with="add"))
    assert result.state == {"out": 4}
    assert model.requests[1].messages[-1] == UserMessage("You are not done: end by calling add.")
    assert len(model.requests) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"must_end_with": "sub"}, "must_end_with must name one of the agent's tools, submit_result, add, not sub"),
        ({"must_end_with": "add", "output": int}, "output and must_end_with exclude each other"),
    ],
)
def test_impossible_must_end_with_is_rejected_at_the_definition(options: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        agent(ScriptedModel(["x"]), [add], **options)


# ── submit_result ──

FIELDS: list[dict[str, Any]] = [{"name": "total", "type": "integer"}, {"name": "why", "required": False}]


@pytest.mark.proves("L0-85", "L0-88", "L0-89")
async def test_submitted_result_stands_alone_and_has_the_required_fields(rig: Rig) -> None:
    good = call("submit_result", {"total": 3, "why": "sum"})
    model = ScriptedModel(
        [
            "in words",
            [call("add", {"a": 1, "b": 2}, "x1"), call("submit_result", {"total": 3}, "x2")],
            call("submit_result", {"total": "three"}),
            call("submit_result", {}),
            call("submit_result", "3"),
            [good],
        ]
    )
    result = await rig.run(agent(model, [add], result_fields=FIELDS))
    assert result.state == {"out": {"total": 3, "why": "sum"}}
    assert model.requests[1].messages[-1] == UserMessage("You are not done: end by calling submit_result.")
    assert results(model) == [
        *[("error", "submit_result must be the only call: none of these calls was made")] * 2,
        ("error", "the result does not match the result fields: total is not of type integer"),
        ("error", "the result does not match the result fields: total is missing"),
        ("error", "the arguments of submit_result must be a JSON object"),
    ]
    [_, spec] = model.requests[-1].tools
    assert spec.parameters["required"] == ["total"]
    turn = await rig.turn_of("worker")
    assert [wait.tool for wait in await rig.runtime.reader.waits(turn.turn_id)] == ["model"] * 6  # add was never begun


@pytest.mark.proves("L0-85", "L0-88")
async def test_message_may_require_its_own_fields(rig: Rig) -> None:
    model = ScriptedModel([call("submit_result", {"total": 1}), call("submit_result", {"mood": "fine"})])
    model_of_worker = ScriptedModel([call("submit_result", {"total": 1})])
    app = Heliograph("asked")
    app.prompt_agent("worker", "Work.", model=model_of_worker, activate_on=START, updates="out", result_fields=FIELDS)  # fmt: skip
    app.prompt_agent("other", "Work.", model=model, on_request=True, updates="said", result_fields=FIELDS)
    app.agent(name="holds", activate_on=START)(_until_continued)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.client.enqueue(run_id, "other", "hello", result_fields=[{"name": "mood"}])
        await eventually(rig, run_id, "state:said:changed", within_seconds=SOON_SECONDS)
        [command] = await rig.taken("go")
        await command.report(result="on")
        state = one(await rig.ended(run_id), "workflow:end")["state"]
    assert state == {"out": {"total": 1}, "said": {"mood": "fine"}}
    assert results(model) == [("error", "the result does not match the result fields: mood is missing")]


async def _until_continued(ctx: Any) -> None:
    await ctx.call("go")


async def test_typed_answer_has_its_fields_checked_without_a_submission(rig: Rig) -> None:
    class Sum(BaseModel):
        total: int

    model = ScriptedModel([call("add", {"a": 1, "b": 2}), ModelReply("", output={"total": 3})])
    result = await rig.run(agent(model, [add], output=Sum, result_fields=FIELDS))
    assert result.state == {"out": {"total": 3}}
    assert [spec.name for spec in model.requests[-1].tools] == ["add"]


# ── Harnesses that break their word ──


class Odd:
    model = "odd"

    def __init__(self, *chunks: Any):
        self._chunks = chunks

    async def stream(self, _request: Any) -> Any:
        for chunk in self._chunks:
            yield chunk


@pytest.mark.parametrize(
    ("chunks", "message"),
    [
        (("text",), "the harness for odd yielded text, which is none of TextDelta, ThinkingDelta and ModelReply"),
        ((), "the harness for odd ended without a reply; it must yield a ModelReply last"),
        ((TextDelta("a"), ModelReply("b")), "the harness for odd streamed another text than its reply has"),
    ],
)
async def test_harness_that_breaks_its_contract_fails_the_turn_with_the_reason(
    rig: Rig, chunks: Any, message: str
) -> None:
    result = await rig.run(agent(Odd(*chunks), retries=0))
    assert one(result.signals, "agent:failed")["error"]["message"] == message
    assert one(result.signals, "harness:error")["message"] == message


async def test_unexpected_error_of_a_harness_ends_the_turn_with_its_text(rig: Rig) -> None:
    result = await rig.run(
        agent(ScriptedModel([call("add", {"a": 1, "b": 1}), HarnessError("gone", code="GONE")]), [add])
    )
    assert one(result.signals, "agent:failed")["error"]["code"] == "GONE"
