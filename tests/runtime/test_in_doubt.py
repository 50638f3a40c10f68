"""Human decisions about calls in doubt: repeat under the same key, skip, or supply the result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from heliograph import Client, Heliograph, ToolContext, tool
from heliograph.client import HumanTask
from heliograph.errors import InvalidInput, StepInDoubt
from heliograph.models import ScriptedModel
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import Rig, lost
from tests.runtime.loop_kit import agent, call, results
from tests.runtime.tools_kit import Pay, called


class Bank:
    """A tool that is cut off in the middle, so often, and an agent that calls it."""

    def __init__(self, doubts: int, **options: Any):
        self.keys: list[str] = []
        self.model = ScriptedModel([call("pay", {"amount": 5}), "done"])

        def pay(amount: int, ctx: ToolContext) -> str:
            self.keys.append(ctx.idempotency_key)
            if len(self.keys) <= doubts:
                raise StepInDoubt("cut off", step="pay")
            return f"paid {amount}"

        self.app: Heliograph = agent(self.model, [tool(in_doubt="ask", **options)(pay)])

    @property
    def last_result(self) -> Any:
        [result] = results(self.model)
        return result


Decide = Callable[[Client, HumanTask], Awaitable[str]]


@pytest.mark.proves("K14")
@pytest.mark.parametrize(
    ("decide", "made", "expected"),
    [
        (lambda client, task: client.grant(task.turn_id, task.call_id, by="ann"), 2, "paid 5"),
        (lambda client, task: client.answer(task.turn_id, task.call_id, {"id": 5}, by="ann"), 1, {"id": 5}),
        (
            lambda client, task: client.deny(task.turn_id, task.call_id, reason="I cannot tell", by="ann"),
            1,
            (
                "error",
                "IN_DOUBT: its outcome is unknown, and it was not called again: another try was denied by ann: "
                "I cannot tell",
            ),
        ),
    ],
    ids=["grant", "answer", "deny"],
)
async def test_call_in_doubt_waits_for_a_human_decision(rig: Rig, decide: Decide, made: int, expected: Any) -> None:
    pay, script = Pay(), ScriptedModel([called("pay", amount=5), "done"])
    app = agent(script, [pay.tool(in_doubt="ask")])
    run_id = await lost(rig, app, pay.begun)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        assert (task.call_id, task.kind, task.may_answer) == ("m1-1-doubt", "decision", True)
        assert task.arguments == {"amount": 5}
        assert await decide(rig.client, task) == "applied"
        await rig.ended(run_id)
    assert pay.made == made
    assert results(script) == [expected]


@pytest.mark.proves("K14")
async def test_repeated_call_has_its_first_key_and_requires_another_decision_when_in_doubt_again(
    rig: Rig,
) -> None:
    bank = Bank(doubts=2)
    run_id = await rig.start(bank.app)
    async with rig.serving(bank.app):
        for call_id in ("m1-1-doubt", "m1-1-doubt2"):
            (task,) = await open_tasks(rig)
            assert task.call_id == call_id
            await rig.client.grant(task.turn_id, task.call_id)
        await rig.ended(run_id)
    assert bank.last_result == "paid 5"
    turn, project = await rig.turn_of("worker"), rig.runtime.settings.project
    assert bank.keys == [f"{project}/{bank.app.name}/{turn.turn_id}/m1-1"] * 3


async def test_result_of_a_call_in_doubt_must_match_the_declared_schema(rig: Rig) -> None:
    bank = Bank(doubts=1, result_schema=str)
    run_id = await rig.start(bank.app)
    async with rig.serving(bank.app):
        (task,) = await open_tasks(rig)
        with pytest.raises(InvalidInput) as error:
            await rig.client.answer(task.turn_id, task.call_id, {"id": 5})
        assert error.value.code == "invalid_answer"
        await rig.client.report(task.turn_id, task.call_id, result={"answer": 5})
        await rig.ended(run_id)
    assert bank.last_result[1].startswith("result_schema: the result of pay does not match its schema")


@pytest.mark.parametrize("body", ["grant", {"decision": "grant", "arguments": {"amount": 500}}, None], ids=str)
async def test_report_without_a_decision_repeats_no_call(rig: Rig, body: Any) -> None:
    bank = Bank(doubts=1)
    run_id = await rig.start(bank.app)
    async with rig.serving(bank.app):
        (task,) = await open_tasks(rig)
        await rig.client.report(task.turn_id, task.call_id, result=body)
        await rig.ended(run_id)
    assert len(bank.keys) == 1
    assert bank.last_result[0] == "error"


async def test_undecided_call_in_doubt_returns_an_error_to_the_model(rig: Rig) -> None:
    bank = Bank(doubts=1, approval_seconds=0.1)
    run_id = await rig.start(bank.app)
    async with asyncio.timeout(60), rig.serving(bank.app):
        await rig.ended(run_id)
    assert "it was not called again: nobody answered" in bank.last_result[1]
    assert "within 0.100 s; approval_seconds sets how long that may take" in bank.last_result[1]
