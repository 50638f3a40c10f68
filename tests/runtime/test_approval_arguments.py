"""The approved arguments are the executed ones, for the rule and for the function."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator

from heliograph import tool
from heliograph.models import ScriptedModel, ToolCall
from tests.runtime.human_task_kit import open_tasks
from tests.runtime.kit import Rig, until
from tests.runtime.loop_kit import agent, results

did: list[Any] = []


def even(value: int) -> int:
    if value % 2:
        raise ValueError("it is an even number")
    return value


@tool(approval=True, may_edit=True)
def pay(amount: Annotated[int, AfterValidator(even)]) -> str:
    did.append(amount)
    return "paid"


@tool(approval=lambda arguments: arguments["env"] == "prod")
def deploy(env: Literal["test", "prod"] = "prod") -> str:
    did.append(env)
    return f"deployed {env}"


@pytest.fixture(autouse=True)
def _nothing_is_done() -> None:
    did.clear()


async def test_approval_rule_sees_defaults_of_omitted_arguments(rig: Rig) -> None:
    model = ScriptedModel([[ToolCall("1", "deploy", {}), ToolCall("2", "deploy", {"env": "test"})], "done"])
    app = agent(model, [deploy])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        assert task.arguments == {"env": "prod"}
        assert did == ["test"]
        await rig.client.deny(task.turn_id, task.call_id)
        await rig.ended(run_id)
    assert did == ["test"]
    assert results(model)[1] == "deployed test"


async def test_edits_rejected_by_the_function_reopen_the_approval_with_the_reason(rig: Rig) -> None:
    model = ScriptedModel([ToolCall("1", "pay", {"amount": 4}), "done"])
    app = agent(model, [pay])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (first,) = await open_tasks(rig)
        await rig.client.grant(first.turn_id, first.call_id, arguments={"amount": 5})
        for time in (2, 3):

            async def is_again(time: int = time) -> bool:
                return [t.call_id for t in await rig.client.approvals()] == [f"m1-1-approval-{time}"]

            await until(is_again)
            (again,) = await open_tasks(rig)
            assert "it is an even number" in again.question
            assert (again.arguments, again.may_edit) == ({"amount": 4}, True)
            assert did == []
            await rig.client.grant(again.turn_id, again.call_id, arguments={"amount": 7 if time == 2 else 6})
        await rig.ended(run_id)
    assert did == [6]
    assert results(model) == ["paid"]
    assert len(model.requests) == 2
