"""Approvals and questions of models: their presentation, decisions, and the result for the model."""

from datetime import timedelta
from typing import Any

import pytest

from heliograph import external_tool
from heliograph.errors import InvalidInput, NotFound, Rejected
from heliograph.models import ToolCall
from tests.runtime.human_task_kit import PAY, Till, open_tasks
from tests.runtime.kit import Rig


async def test_approval_shows_the_call_and_the_tool_runs_when_it_is_granted(rig: Rig) -> None:
    till = Till(PAY, approval_seconds=600.0)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        assert (task.run_id, task.agent, task.tool, task.call_id) == (run_id, "clerk", "pay", "m1-1-approval")
        assert (task.kind, task.question) == ("decision", "May clerk call pay?")
        assert (task.arguments, task.may_edit) == ({"amount": 5, "to": "bob"}, False)
        assert task.deadline is not None
        assert timedelta(seconds=599) < task.deadline - task.since < timedelta(seconds=601)
        assert await open_tasks(rig, 0, "another") == []
        assert till.paid == []
        assert await rig.client.grant(task.turn_id, task.call_id, by="ann") == "applied"
        await rig.ended(run_id)
    assert till.paid == [(5, "bob")]
    assert till.model_calls == 2  # nothing before the question is repeated
    assert till.results["x1"].content == "5 to bob"
    # card, log and inbox name the person
    (result,) = [c for c in await rig.runtime.reader.cards(task.turn_id) if c.content.get("call_id") == task.call_id]
    assert result.content["output"] == {"decision": "grant", "arguments": {"amount": 5, "to": "bob"}, "by": "ann"}
    rows = await rig.fetch(
        "select actor from heliograph.inbox_overview where turn_id = $1 and correlation_id = $2",
        task.turn_id,
        task.call_id,
    )
    assert [row["actor"] for row in rows] == ["ann"]


async def test_model_receives_a_denial_with_its_author_and_reason_and_the_tool_does_not_run(rig: Rig) -> None:
    till = Till(PAY)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        assert await rig.client.deny(task.turn_id, task.call_id, reason="too\nmuch", by="ann") == "applied"
        await rig.ended(run_id)
    assert till.paid == []
    assert till.results["x1"].is_error
    assert till.results["x1"].content == "pay was denied by ann: too\\nmuch; it was not called"


@pytest.mark.proves("L0-75")
async def test_approval_past_its_deadline_is_a_denial_that_the_model_receives(rig: Rig) -> None:
    till = Till(PAY, ToolCall("x2", "ask_human", {"question": "why?"}), approval_seconds=0.1, asks_human=0.1)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        await rig.ended(run_id)
    assert till.paid == []
    assert till.results["x1"].content == (
        'nobody answered "May clerk call pay?" within 0.100 s; approval_seconds sets how long that may take; it was not called'
    )
    assert till.results["x2"].is_error
    assert "TOOL_TIMEOUT" in str(till.results["x2"].content)


@pytest.mark.proves("S9")
@pytest.mark.parametrize(
    "body",
    ["grant", {"decision": "yes"}, {"decision": "grant", "arguments": {"amount": 6, "to": "eve"}}, ["grant"], None],
    ids=str,
)
async def test_report_without_a_decision_returns_an_error_and_the_tool_does_not_run(rig: Rig, body: Any) -> None:
    till = Till(PAY)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        assert await rig.client.report(task.turn_id, task.call_id, result=body) == "applied"
        await rig.ended(run_id)
    assert till.paid == []
    assert till.results["x1"].is_error
    assert str(till.results["x1"].content).endswith("it was not called")


async def test_allowed_edits_apply_and_invalid_edits_are_rejected(rig: Rig) -> None:
    till = Till(PAY, may_edit=True)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        assert task.may_edit
        assert task.form is not None
        for wrong in ({"amount": "lots", "to": "bob"}, {"amount": 1}, {"amount": 1, "to": "bob", "tip": 2}):
            with pytest.raises(InvalidInput) as error:
                await rig.client.grant(task.turn_id, task.call_id, arguments=wrong)
            assert error.value.code == "invalid_arguments"
        with pytest.raises(InvalidInput, match="arguments must be an object"):
            await rig.client.grant(task.turn_id, task.call_id, arguments=[1])  # type: ignore[arg-type]
        assert await open_tasks(rig) == [task]  # nothing has changed
        await rig.client.grant(task.turn_id, task.call_id, arguments={"amount": 4, "to": "bob"})
        await rig.ended(run_id)
    assert till.paid == [(4, "bob")]


async def test_forbidden_edits_are_rejected_and_the_approval_remains_open(rig: Rig) -> None:
    till = Till(PAY)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        with pytest.raises(Rejected) as error:
            await rig.client.grant(task.turn_id, task.call_id, arguments={"amount": 4, "to": "bob"})
        assert error.value.code == "no_edits"
        assert await open_tasks(rig) == [task]
        await rig.client.grant(task.turn_id, task.call_id, arguments={"to": "bob", "amount": 5})  # the same: no edit
        await rig.ended(run_id)
    assert till.paid == [(5, "bob")]


async def test_wrong_ids_and_wrong_kinds_are_named_and_nothing_is_changed(rig: Rig) -> None:
    weather = external_tool("weather", "The weather")
    till = Till(PAY, ToolCall("x2", "weather", {}), ToolCall("x3", "ask_human", {"question": "sure?"}), tools=(weather,),
                asks_human=True)  # fmt: skip
    rig.ends_with_open_work = True
    await rig.start(till.app)
    async with rig.serving(till.app):
        tasks = await open_tasks(rig, 2)
        turn = tasks[0].turn_id
        client, fails = rig.client, []
        for attempt, kind, code in (
            (client.grant("turn_none", "m1-1-approval"), NotFound, "unknown_turn"),
            (client.grant(turn, "m9"), NotFound, "unknown_call"),
            (client.grant(turn, "m1-2"), InvalidInput, "wrong_type"),  # a tool's
            (client.deny(turn, "m1-2"), InvalidInput, "wrong_type"),
            (client.grant(turn, "m1-3"), InvalidInput, "wrong_type"),  # a question
            (client.answer(turn, "m1-1-approval", "yes"), InvalidInput, "wrong_type"),
            (client.answer(turn, "m1-3", 5), InvalidInput, "invalid_answer"),
            (client.answer(turn, "m1-3", float("nan")), InvalidInput, "json_non_finite"),
            (client.grant("'; drop", "m1-3"), InvalidInput, "invalid_id"),
            (client.grant(turn, "\x00"), InvalidInput, "invalid_id"),
            (client.deny(turn, "m1-3", reason="x" * 3000), InvalidInput, "too_long"),
            (client.deny(turn, "m1-3", by="x" * 201), InvalidInput, "too_long"),
            (client.deny(turn, "m1-3", by=""), InvalidInput, "too_long"),
            (client.approvals("a/b"), InvalidInput, "invalid_id"),
            (client.approvals(limit=0), InvalidInput, "out_of_range"),
        ):
            with pytest.raises(kind) as error:
                await attempt
            fails.append((error.value.code, code))
        assert [found for found, _ in fails] == [wanted for _, wanted in fails]
        assert await open_tasks(rig, 2) == tasks


async def test_declined_question_returns_an_error_to_the_model(rig: Rig) -> None:
    till = Till(ToolCall("x1", "ask_human", {"question": "Which?"}), asks_human=True)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        await rig.client.deny(task.turn_id, task.call_id, reason="not my call")
        await rig.ended(run_id)
    assert till.results["x1"].is_error
    assert till.results["x1"].content == "the question was denied: not my call"


@pytest.mark.parametrize("body", ["blue", {"answer": "green"}, {"answer": 5}, {"reply": "blue"}, None], ids=str)
async def test_report_without_an_answer_returns_an_error_to_the_model(rig: Rig, body: Any) -> None:
    till = Till(ToolCall("x1", "ask_human", {"question": "Which?", "options": ["red", "blue"]}), asks_human=True)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        await rig.client.report(task.turn_id, task.call_id, result=body)
        await rig.ended(run_id)
    assert till.results["x1"].is_error


async def test_remote_tool_gets_its_command_only_after_the_approval(rig: Rig) -> None:
    send = external_tool("send", "Send it", approval=True, may_edit=True)
    till = Till(ToolCall("x1", "send", {"to": "eve"}), tools=(send,))
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        assert await rig.client.take_commands(["send"]) == []
        await rig.client.grant(task.turn_id, task.call_id, arguments={"to": "bob"})
        (command,) = await rig.taken("send")
        assert command.arguments == {"to": "bob"}
        await command.report(result="sent")
        await rig.ended(run_id)
    assert till.results["x1"].content == "sent"


async def test_denial_applies_although_the_rule_no_longer_requires_approval(rig: Rig) -> None:
    most = [1]
    till = Till(PAY, approval=lambda arguments: arguments["amount"] > most[0])
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        most[0] = 1000  # another version of the application is deployed
        await rig.client.deny(task.turn_id, task.call_id, reason="never", by="ann")
        await rig.ended(run_id)
    assert till.paid == []
    assert till.results["x1"].content == "pay was denied by ann: never; it was not called"


async def test_no_approval_is_requested_for_a_finished_call_when_the_rule_tightens(rig: Rig) -> None:
    most = [1000]
    till = Till(PAY, ToolCall("x2", "ask_human", {"question": "sure?"}), asks_human=True,
                approval=lambda arguments: arguments["amount"] > most[0])  # fmt: skip
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        most[0] = 1
        await rig.client.answer(task.turn_id, task.call_id, "yes")
        await rig.ended(run_id)
    assert till.paid == [(5, "bob")]
    assert till.results["x1"].content == "5 to bob"
