"""Several questions and people, late decisions, nested turns, and dying workers."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.errors import InvalidInput, Rejected
from heliograph.models import ScriptedModel, ToolCall, ToolMessage
from tests.runtime.human_task_kit import PAY, Till, is_open_question, open_tasks
from tests.runtime.kit import START, Rig, kill, seen, until


async def test_one_of_two_simultaneous_decisions_wins_and_the_other_receives_its_author(rig: Rig) -> None:
    for n in range(5):
        till = Till(PAY)
        run_id = await rig.start(till.app)
        async with rig.serving(till.app):
            (task,) = await open_tasks(rig)
            yes, no = await asyncio.gather(
                rig.client.grant(task.turn_id, task.call_id, by="ann"), rig.client.deny(task.turn_id, task.call_id, by="bob"),
                return_exceptions=True,
            )  # fmt: skip
            await rig.ended(run_id)
            with pytest.raises(Rejected):  # and later still
                await rig.client.deny(task.turn_id, task.call_id, by="eve")
        winner, loser = (yes, no) if yes == "applied" else (no, yes)
        assert winner == "applied", n
        assert isinstance(loser, Rejected)
        assert loser.code in ("already_decided", "turn_done")
        if loser.code == "already_decided":
            assert ("granted by ann" if yes == "applied" else "denied by bob") in loser.message
        assert till.paid == ([(5, "bob")] if yes == "applied" else [])


async def test_repeated_decision_is_not_rejected(rig: Rig) -> None:
    app = Heliograph("again")

    @app.agent(activate_on=START, updates="seen")
    async def agent(ctx: Context) -> Any:
        return [(await ctx.approve("one?")).by, (await ctx.approve("two?")).by]

    run_id = await rig.start(app)
    async with rig.serving(app):
        (first,) = await open_tasks(rig)
        assert await rig.client.grant(first.turn_id, first.call_id, by="ann") == "applied"
        await until(lambda: is_open_question(rig, "two?"))
        assert await rig.client.grant(first.turn_id, first.call_id, by="ann") == "duplicate"
        with pytest.raises(Rejected, match="was already granted by ann"):
            await rig.client.grant(first.turn_id, first.call_id, by="eve")
        (second,) = await open_tasks(rig)
        await rig.client.grant(second.turn_id, second.call_id)
        assert await seen(rig, run_id) == ["ann", None]


async def test_decision_after_the_deadline_is_rejected_also_without_a_sweep(rig: Rig) -> None:
    till = Till(PAY, approval_seconds=0.3)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app, sweep_seconds=3600):
        (task,) = await open_tasks(rig)
    assert task.deadline is not None
    await until(lambda: rig.runtime.world.now() > task.deadline)
    assert await open_tasks(rig) == [task]  # no sweep has run
    with pytest.raises(Rejected) as error:
        await rig.client.grant(task.turn_id, task.call_id)
    assert error.value.code == "too_late"
    async with rig.serving(till.app):
        await rig.ended(run_id)
    with pytest.raises(Rejected) as error:
        await rig.client.grant(task.turn_id, task.call_id)
    assert error.value.code == "too_late"
    assert till.paid == []


async def test_question_of_a_stopped_turn_is_closed(rig: Rig) -> None:
    till = Till(PAY)
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        (task,) = await open_tasks(rig)
        await rig.client.stop_turn(task.turn_id)
        await rig.ended(run_id)
        assert await open_tasks(rig, 0) == []
        with pytest.raises(Rejected) as error:
            await rig.client.grant(task.turn_id, task.call_id)
        assert error.value.code == "turn_done"
    assert till.paid == []


@pytest.mark.proves("L0-50", "L0-61", "L0-62", "L0-63")
async def test_several_approvals_are_decided_in_any_order_and_each_once(rig: Rig) -> None:
    calls = [ToolCall(f"x{n}", "pay", {"amount": n, "to": "bob"}) for n in range(1, 5)]
    till = Till(
        *calls, ToolCall("x5", "ask_human", {"question": "Which?", "options": ["red", "blue"]}), asks_human=True
    )
    run_id = await rig.start(till.app)
    async with rig.serving(till.app):
        tasks = await open_tasks(rig, 5)
        assert len({task.call_id for task in tasks}) == 5
        question = tasks[4]
        assert (question.kind, question.question, question.options) == ("answer", "Which?", ("red", "blue"))
        with pytest.raises(InvalidInput) as error:
            await rig.client.answer(question.turn_id, question.call_id, "green")
        assert error.value.code == "invalid_answer"
        await rig.client.answer(question.turn_id, question.call_id, "blue", by="ann")
        for task in reversed(tasks[:4]):
            assert till.paid == []  # the turn waits for all of them
            await (rig.client.deny if task is tasks[1] else rig.client.grant)(task.turn_id, task.call_id)
        await rig.ended(run_id)
    assert sorted(till.paid) == [(1, "bob"), (3, "bob"), (4, "bob")]
    assert [till.results[f"x{n}"].is_error for n in range(1, 6)] == [False, True, False, False, False]
    assert till.results["x5"].content == {"answer": "blue", "by": "ann"}
    assert till.model_calls == 2


async def test_approval_in_a_grandchild_blocks_only_its_ancestors(rig: Rig) -> None:
    till = Till(PAY)
    app = Heliograph("nested")
    made: list[str] = []

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        await ctx.step("before", lambda: made.append("parent"))
        delegated, approval = await asyncio.gather(ctx.delegate("middle"), ctx.approve("May the parent?"))
        return [delegated, approval.by]

    app.prompt_agent("middle", "Delegate", on_request=True, agents=["leaf"], model=ScriptedModel(
        lambda r: f"middle: {r.messages[-1].content}" if isinstance(r.messages[-1], ToolMessage)
        else ToolCall("x", "delegate_to_leaf", {"task": "pay"})))  # fmt: skip
    app.prompt_agent("leaf", "Pay", on_request=True, tools=[till.pay], model=ScriptedModel(till._script([PAY])))
    run_id = await rig.start(app)
    async with rig.serving(app):
        tasks = {task.agent: task for task in await open_tasks(rig, 2, run_id)}
        leaf, own = tasks["leaf"], tasks["parent"]
        assert (await rig.turn_of("leaf")).depth == 2
        await rig.client.grant(own.turn_id, own.call_id, by="ann")
        await rig.client.grant(leaf.turn_id, leaf.call_id, by="bob")
        assert await seen(rig, run_id) == ["middle: done", "ann"]
    assert till.paid == [(5, "bob")]
    assert made == ["parent"]


@pytest.mark.proves("L0-111")
async def test_killed_worker_does_not_affect_a_pending_approval(rig: Rig) -> None:
    once: list[str] = []

    @tool(effect="once")
    def prepare() -> str:
        """Prepare."""
        once.append("prepared")
        return "ready"

    till = Till(PAY, ToolCall("x2", "prepare", {}), ToolCall("x3", "ask_human", {"question": "sure?"}), tools=(prepare,),
                asks_human=True)  # fmt: skip
    run_id = await rig.start(till.app)
    for open_count, decision in ((2, "nothing"), (2, "answer"), (1, "grant")):
        worker = rig.runtime.worker(till.app.workflow, lease_seconds=0.2)
        working = asyncio.create_task(worker.run())
        tasks = await open_tasks(rig, open_count)
        await kill(worker, working)
        if decision == "answer":
            await rig.client.answer(tasks[1].turn_id, tasks[1].call_id, "yes")
        elif decision == "grant":
            await rig.client.grant(tasks[0].turn_id, tasks[0].call_id)
    async with rig.serving(till.app):
        await rig.ended(run_id)
    assert (till.paid, once, till.model_calls) == ([(5, "bob")], ["prepared"], 2)
