"""Functions that request approvals and answers to forms."""

import asyncio
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from heliograph import Context, Heliograph
from heliograph.errors import Denied, InvalidInput, ToolFailed, ToolTimedOut
from tests.runtime.human_task_kit import is_open_question, open_tasks
from tests.runtime.kit import START, Rig, names, one, seen, until


class Trip(BaseModel):
    to: str
    days: int
    by: Literal["train", "boat"] = "train"

    @field_validator("to")
    @classmethod
    def _is_somewhere(cls, value: str) -> str:
        if value == "nowhere":
            raise ValueError("that is nowhere")
        return value


def function(body: Any, **options: Any) -> Heliograph:
    app = Heliograph("asks")
    app.agent(activate_on=START, updates="seen", name="asker", **options)(body)
    return app


async def test_function_requests_approvals_and_answers_at_once_without_repeating_earlier_steps(rig: Rig) -> None:
    before: list[str] = []

    async def asker(ctx: Context) -> Any:
        await ctx.step("before", lambda: before.append("once"))
        approval, trip, size, colour, name = await asyncio.gather(
            ctx.approve("Book it?", arguments={"price": 9}, may_edit=True, timeout=600),
            ctx.ask("Where to?", form=Trip, timeout=700, call_id="trip"),
            ctx.ask("How many?", form={"type": "integer", "minimum": 1}),
            ctx.ask("Which?", options=["red", "blue"]),
            ctx.ask("Your name?"),
        )
        assert isinstance(trip, Trip)
        return [approval.arguments, approval.by, trip.model_dump(), size, colour, name]

    app = function(asker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        tasks = {task.question: task for task in await open_tasks(rig, 5)}
        assert tasks["Where to?"].call_id == "trip"
        assert tasks["Where to?"].form == Trip.model_json_schema()
        for question, wrong in (
            ("Where to?", {"to": "Oslo"}), ("Where to?", "Oslo"), ("How many?", 0), ("How many?", "3"), ("Which?", "green"),
            ("Your name?", 5),
        ):  # fmt: skip
            with pytest.raises(InvalidInput) as error:
                await rig.client.answer(tasks[question].turn_id, tasks[question].call_id, wrong)
            assert error.value.code == "invalid_answer"
        for question, right in (("Your name?", "Ann"), ("Which?", "red"), ("Where to?", {"to": "Oslo", "days": 2}),
                                ("How many?", 3)):  # fmt: skip
            await rig.client.answer(tasks[question].turn_id, tasks[question].call_id, right)
        await rig.client.grant(tasks["Book it?"].turn_id, "c2", arguments={"price": 8}, by="bob")
        assert await seen(rig, run_id) == [
            {"price": 8}, "bob", {"to": "Oslo", "days": 2, "by": "train"}, 3, "red", "Ann",
        ]  # fmt: skip
    assert before == ["once"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"decision": "deny", "reason": "no money", "by": "ann"}, ["Denied", "DENIED", "ann", "no money"]),
        ("yes", ["Denied", "DENIED", None, None]),
        ({"decision": "grant", "arguments": {"price": 1}}, ["Denied", "DENIED", None, None]),
    ],
    ids=str,
)
async def test_denied_approval_raises_in_a_function(rig: Rig, body: Any, expected: list[Any]) -> None:
    async def asker(ctx: Context) -> Any:
        try:
            await ctx.approve("Book it?", arguments={"price": 9})
        except Denied as error:
            return [type(error).__name__, error.code, error.by, error.reason]

    app = function(asker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        await rig.client.report(task.turn_id, task.call_id, result=body)
        assert await seen(rig, run_id) == expected


async def test_timeouts_and_invalid_answers_raise_in_a_function(rig: Rig) -> None:
    async def asker(ctx: Context) -> Any:
        raised: list[object] = []
        for request in (
            lambda: ctx.approve("Book it?", timeout=0.1), lambda: ctx.ask("Why?", timeout=0.1),
            lambda: ctx.ask("To?", form=Trip), lambda: ctx.ask("And?", form=Trip),
        ):  # fmt: skip
            try:
                raised.append(await request())
            except ToolTimedOut as error:
                raised.append(error.code)
            except ToolFailed as error:
                raised.append("does not match" in error.message)
        return raised

    app = function(asker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await until(lambda: is_open_question(rig, "To?"))
        (task,) = await open_tasks(rig)
        await rig.client.report(task.turn_id, task.call_id, result={"answer": {"to": 5}})
        await until(lambda: is_open_question(rig, "And?"))
        (task,) = await open_tasks(rig)
        await rig.client.answer(
            task.turn_id, task.call_id, {"to": "nowhere", "days": 1}
        )  # valid for the JSON Schema, invalid for the type
        assert await seen(rig, run_id) == ["TOOL_TIMEOUT", "TOOL_TIMEOUT", True, True]


async def test_invalid_question_is_rejected_before_any_request(rig: Rig) -> None:
    async def asker(ctx: Context) -> Any:
        codes = []
        for request in (
            lambda: ctx.approve(""), lambda: ctx.approve(5), lambda: ctx.approve("x", may_edit=True),  # type: ignore[arg-type]
            lambda: ctx.approve("x", arguments=[1]), lambda: ctx.ask("x", form={"type": "no such type"}),  # type: ignore[arg-type]
            lambda: ctx.ask("x", form={"$ref": "http://127.0.0.1:1/schema"}), lambda: ctx.ask("x", form=object()),  # type: ignore[call-overload]
            lambda: ctx.ask("x", options="ab"), lambda: ctx.ask("x", options=["a"], form=Trip),  # type: ignore[call-overload]
            lambda: ctx.ask("x", timeout=-1),
        ):  # fmt: skip
            try:
                request().close()
                codes.append("taken")
            except InvalidInput as error:
                codes.append(error.code)
        return codes

    result = await rig.run(function(asker))
    assert result.state["seen"] == [
        "wrong_type", "wrong_type", "required_field", "wrong_type", "invalid_schema", "invalid_schema", "wrong_type",
        "wrong_type", "wrong_type", "out_of_range",
    ]  # fmt: skip
    assert "tool:call" not in names(result.signals)


async def test_approval_of_other_arguments_does_not_count(rig: Rig) -> None:
    prices = iter([5, 500, 500])

    async def asker(ctx: Context) -> Any:
        price = next(prices)  # differs in the second run: the approved arguments are not those of the call
        return (await ctx.approve("Pay?", arguments={"price": price})).arguments

    app = function(asker)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (task,) = await open_tasks(rig)
        await rig.client.grant(task.turn_id, task.call_id)
        failure = one(await rig.ended(run_id), "agent:failed")["error"]
    assert failure["code"] == "DENIED"
    assert "other arguments" in failure["message"]
