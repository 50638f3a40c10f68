"""Calls whose worker died in the middle: once calls are not repeated, and the doubt is reported."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import tool
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig, lost, one
from tests.runtime.loop_kit import agent, results
from tests.runtime.tools_kit import Pay, called


@pytest.mark.proves("K14")
async def test_once_tool_in_doubt_is_not_repeated_and_the_model_receives_the_doubt(rig: Rig) -> None:
    pay, script = Pay(), ScriptedModel([called("pay", amount=5), "done"])
    app = agent(script, [pay.tool()])
    run_id = await lost(rig, app, pay.begun)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert pay.made == 1
    [(how, text)] = results(script)
    assert how == "error"
    assert text.startswith("IN_DOUBT: ")


@pytest.mark.proves("K14")
@pytest.mark.parametrize(
    ("effect", "message"), [("once", "IN_DOUBT: "), ("idempotent", "TOOL_ERROR: not made again: ")]
)
async def test_begun_call_is_in_doubt_although_the_next_version_lacks_its_tool(
    rig: Rig, effect: Any, message: str
) -> None:
    pay, script = Pay(), ScriptedModel([called("pay", amount=5), "done"])
    run_id = await lost(rig, agent(script, [pay.tool(effect=effect)]), pay.begun)

    def other() -> None:
        """Something else."""

    app = agent(script, [other])
    async with rig.serving(app):
        await rig.ended(run_id)
    assert pay.made == 1
    [(how, text)] = results(script)
    assert how == "error"
    assert text.startswith(message)


@pytest.mark.proves("K14")
async def test_begun_call_is_in_doubt_although_the_next_version_takes_other_arguments(rig: Rig) -> None:
    pay, script = Pay(), ScriptedModel([called("pay", amount=5), "done"])
    run_id = await lost(rig, agent(script, [pay.tool()]), pay.begun)

    async def pay_in(amount: int, currency: str) -> None:
        """Pay."""

    app = agent(script, [tool(name="pay")(pay_in)])
    async with rig.serving(app):
        await rig.ended(run_id)
    assert results(script)[0][1].startswith("IN_DOUBT: ")


@pytest.mark.proves("K14")
async def test_in_doubt_fail_ends_the_turn_in_doubt(rig: Rig) -> None:
    pay, script = Pay(), ScriptedModel([called("pay", amount=5), "done"])
    app = agent(script, [pay.tool(in_doubt="fail")])
    run_id = await lost(rig, app, pay.begun)
    async with rig.serving(app):
        failure = one(await rig.ended(run_id), "agent:failed")["error"]
    assert (failure["code"], pay.made) == ("IN_DOUBT", 1)
