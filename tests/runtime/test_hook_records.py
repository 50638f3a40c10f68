"""The recorded ends of hooks: their size, and what a turn that resumes reads from them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.phases import GoalAchieved, IterationNeeded, PhaseContext
from tests.runtime.hooks_kit import ORDER, PHASES, Hooked, of_phases
from tests.runtime.kit import START, Rig, lost, one

MIB = 1_048_576


@pytest.mark.more
@pytest.mark.proves("LC-33")
async def test_output_of_act_is_recorded_once_and_reaches_the_later_hooks_after_a_wait(rig: Rig) -> None:
    output = {"text": "x" * (MIB - 4096)}
    seen = list[bool]()

    async def act(_ctx: PhaseContext) -> Any:
        return output

    async def reflect(ctx: PhaseContext) -> Any:
        await ctx.pause(0.01)
        seen.append(
            ctx.output == output and ctx.working_memory["action_results"] == [{"success": True, "output": output}]
        )
        return GoalAchieved(0.5)

    result = await rig.run(Hooked(["act", "reflect"], act=act, reflect=reflect).app())
    assert result.state == {"out": output}
    assert seen == [True]


@pytest.mark.more
async def test_results_of_an_act_hook_that_differ_from_its_output_are_restored(rig: Rig) -> None:
    seen = list[Any]()

    async def act(ctx: PhaseContext) -> str:
        ctx.working_memory["action_results"] = [{"success": True, "output": 1}]
        return "other"

    async def reflect(ctx: PhaseContext) -> Any:
        await ctx.pause(0.01)
        seen.append((ctx.output, ctx.working_memory["action_results"], ctx.plan.steps[0].prompt))
        assert ctx.plan == ctx.plan
        if ctx.iteration == 0:
            return IterationNeeded("once more", resume_at="act")
        return None

    result = await rig.run(Hooked(act=act, reflect=reflect).app())
    assert seen == [("other", [{"success": True, "output": 1}], "work")] * 2
    assert result.state == {"out": "other"}


async def test_output_of_act_over_the_limit_of_a_record_fails_with_the_limit_and_the_remedy(rig: Rig) -> None:
    async def act(_ctx: PhaseContext) -> str:
        return "x" * (MIB + 1)

    error = one((await rig.run(Hooked(["act", "reflect"], act=act).app())).signals, "agent:failed")["error"]
    assert error["code"] == "ACTION_FAILED"
    assert "because its output and its working memory are recorded together" in error["message"]
    assert "1048576 are allowed" in error["message"]
    assert "store it elsewhere and report its location" in error["message"]


async def ask(ctx: PhaseContext) -> None:
    await ctx.call("ask")


@pytest.mark.proves("LC-32")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["act", "reflect"], ["plan", "act", "reflect"]),
        (["plan", "act", "reflect"], ["act", "reflect"]),
        (["plan", "act", "terminate"], ["plan", "act", "reflect", "terminate"]),
    ],
    ids=["plan added", "plan removed", "reflect added"],
)
async def test_turn_whose_hooks_have_changed_fails_and_repeats_no_signal(
    rig: Rig, before: list[str], after: list[str]
) -> None:
    waits = "terminate" if "terminate" in before else "act"
    older = Hooked(before, **{waits: ask}).app()
    run_id = await rig.start(older)
    async with rig.serving(older):
        (command,) = await rig.taken("ask")
        await rig.turn_of("worker", "suspended")
    await command.report(result="yes")
    newer = Hooked(after)
    async with rig.serving(newer.app()):
        signals = await rig.ended(run_id)
    assert one(signals, "agent:failed")["error"]["code"] == "NOT_DETERMINISTIC"
    phases = of_phases(signals)
    assert all(phases.count(name) <= 1 for name in PHASES)
    assert set(newer.ran) <= {"terminate"}


@pytest.mark.parametrize("learnings", ["abc", [1], None])
async def test_learnings_that_are_not_a_list_of_texts_fail_the_turn(rig: Rig, learnings: Any) -> None:
    async def reflect(_ctx: PhaseContext) -> GoalAchieved:
        return GoalAchieved(learnings=learnings)

    error = one((await rig.run(Hooked(["act", "reflect"], reflect=reflect).app())).signals, "agent:failed")["error"]
    assert error["code"] == "REFLECTION_ERROR"
    assert f"learnings must be a list of texts, not {learnings!r}" in error["message"]


async def test_working_memory_that_is_no_dict_is_rejected_where_it_is_assigned(rig: Rig) -> None:
    async def init(ctx: PhaseContext) -> None:
        ctx.working_memory = [1]  # type: ignore[assignment]

    error = one((await rig.run(Hooked(["init", "act"], init=init).app())).signals, "agent:failed")["error"]
    assert "working_memory must be a dict of JSON values, not [1]" in error["message"]


@pytest.mark.more
@pytest.mark.proves("LC-32")
async def test_result_of_a_step_is_the_same_in_its_first_run_and_after_a_wait(rig: Rig) -> None:
    seen, app = list[str](), Heliograph("steps")

    def found() -> Any:
        return {"zebra": 1, "b": {"yy": 1, "x": 2}, "aa": [1e23, 60.0, -2.5e-8]}

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        seen.append(repr(await ctx.step("find", found)))
        await ctx.pause(0.01)

    await rig.run(app)
    assert seen[0] == seen[1]


@pytest.mark.proves("LC-02")
async def test_lost_function_whose_progress_was_logged_announces_its_phases_once(rig: Rig) -> None:
    app, begun = Heliograph("progress"), asyncio.Event()

    @app.agent(activate_on=START, updates="out")
    async def worker(ctx: Context) -> str:
        if ctx.attempt == 1:
            ctx.progress(0.5)
            async for signal in rig.runtime.follow(ctx.run_id):
                if signal.name == "agent:progress":
                    break
            begun.set()
            await asyncio.Event().wait()
        return "done"

    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert of_phases(signals) == PHASES


@pytest.mark.more
@pytest.mark.proves("LC-52")
async def test_cleanups_of_finished_hooks_run_when_the_turn_is_released_and_others_at_its_end(rig: Rig) -> None:
    did = list[str]()

    async def init(ctx: PhaseContext) -> None:
        ctx.on_cleanup(did.append, "init")

    async def act(ctx: PhaseContext) -> None:
        ctx.on_cleanup(did.append, "act")
        did.append("acts")
        await ctx.pause(0.01)

    await rig.run(Hooked(ORDER, init=init, act=act).app())
    assert did == ["acts", "init", "acts", "act"]
