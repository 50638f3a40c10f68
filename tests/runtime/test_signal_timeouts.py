"""The timeouts of `control_signals`: they end calls and delegations that have none of their own; the narrowest setting counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Delegation, Heliograph, Signal, Step, external_tool, tool
from heliograph.errors import DelegationFailed, ToolFailed, ToolTimedOut
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import call, payloads

QUICK = {"tool_call": {"timeout_seconds": 0.2}, "delegation": {"timeout_seconds": 0.3}}


async def ran(rig: Rig, app: Heliograph) -> list[Signal]:
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


async def forever(ctx: Context) -> None:
    await ctx.call("nothing", {}, timeout=None)


def timeouts(signals: list[Signal], name: str, key: str) -> dict[str, float | None]:
    """The timeouts of the calls or delegations in the log, by the tool or the task."""
    return {payload[key]: payload.get("timeout_seconds") for payload in payloads(signals, name)}


@pytest.mark.more
@pytest.mark.proves("CTL-71", "CTL-72", "CTL-76")
async def test_timeouts_of_an_application_end_a_slow_call_and_a_slow_delegation(rig: Rig) -> None:
    app = Heliograph("hasty", control_signals=QUICK)

    @app.agent(activate_on=START, updates="out")
    async def worker(ctx: Context) -> Any:
        codes = []
        try:
            await ctx.call("slow")
        except ToolTimedOut as error:
            codes.append(error.code)
        try:
            await ctx.delegate("hand")
        except DelegationFailed as error:
            codes.append(error.code)
        both = await ctx.calls([Call("slow"), Delegation("hand")])
        return [*codes, *((result.error or {}).get("code") for result in both)]

    app.agent(name="hand", on_request=True)(forever)
    signals = await ran(rig, app)
    assert one(signals, "workflow:end")["state"]["out"] == ["TOOL_TIMEOUT", "DELEGATION_TIMEOUT"] * 2


@pytest.mark.proves("CTL-76")
async def test_own_timeout_counts_before_that_of_the_agent_and_that_before_the_one_of_the_application(rig: Rig) -> None:
    app = Heliograph(
        "nested", control_signals={"tool_call": {"timeout_seconds": 40}, "delegation": {"timeout_seconds": 400}}
    )
    narrower = {"tool_call": {"timeout_seconds": 30}, "delegation": {"timeout_seconds": 300}}

    async def return_early(ctx: Context) -> None:
        name = ctx.agent
        calls = [Call(f"{name}_unset"), Call(f"{name}_60", timeout=60), Call(f"{name}_none", timeout=None)]
        children = [Delegation("hand", f"{name}_unset"), Delegation("hand", f"{name}_9", timeout=9),
                    Delegation("hand", f"{name}_none", timeout=None)]  # fmt: skip
        async for _ in ctx.as_completed([*calls, *children, Call("first", timeout=0.05)]):
            return

    app.agent(name="wide", activate_on=START)(return_early)
    app.agent(name="narrow", activate_on=START, control_signals=narrower)(return_early)
    app.agent(name="hand", on_request=True)(forever)
    signals = await ran(rig, app)
    of_calls, of_children = timeouts(signals, "tool:call", "name"), timeouts(signals, "delegation", "task")
    assert [of_calls[f"wide_{each}"] for each in ("unset", "60", "none")] == [40, 60, None]
    assert [of_calls[f"narrow_{each}"] for each in ("unset", "60", "none")] == [30, 60, None]
    assert [of_children[f"wide_{each}"] for each in ("unset", "9", "none")] == [400, 9, None]
    assert [of_children[f"narrow_{each}"] for each in ("unset", "9", "none")] == [300, 9, None]


@pytest.mark.proves("CTL-76")
async def test_timeout_of_all_calls_together_shortens_that_of_the_application(rig: Rig) -> None:
    app = Heliograph("together", control_signals={"tool_call": {"timeout_seconds": 40}})

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        await ctx.calls([Call("slow"), Call("own", timeout=0.1)], timeout=0.2)

    assert timeouts(await ran(rig, app), "tool:call", "name") == {"slow": 0.2, "own": 0.1}


@pytest.mark.more
@pytest.mark.proves("CTL-76")
async def test_timeouts_apply_to_the_tools_and_delegations_of_a_model_that_have_none_of_their_own(rig: Rig) -> None:
    @tool
    async def local() -> None:
        """Sleep."""
        await asyncio.sleep(60)

    @tool(timeout_seconds=60)
    def patient() -> str:
        """Answer."""
        return "done"

    far = external_tool("far", "Fetch.")
    own = external_tool("own", "Fetch.", timeout_seconds=0.1)
    first = [call("local", {}, "a"), call("patient", {}, "b"), call("far", {}, "c"), call("own", {}, "d"),
             call("delegate_to_hand", {"task": "unset"}, "e"), call("delegate_to_hand", {"task": "own", "deadline": 1}, "f")]  # fmt: skip
    app = Heliograph("modelled", control_signals=QUICK)
    app.prompt_agent("worker", "Work.", model=ScriptedModel([first, "over"]), activate_on=START, updates="out", agents=["hand"],
                     tools=[local, patient, far, own])  # fmt: skip
    app.agent(name="hand", on_request=True)(forever)
    signals = await ran(rig, app)
    assert one(signals, "workflow:end")["state"]["out"] == "over"
    assert {**timeouts(signals, "tool:call", "name"), "nothing": None} == {
        "local": 0.2, "patient": 60, "far": 0.2, "own": 0.1, "nothing": None,
    }  # fmt: skip
    assert timeouts(signals, "delegation", "task") == {"unset": 0.3, "own": 1}
    codes = {payload["name"]: (payload.get("error") or {}).get("code") for payload in payloads(signals, "tool:result")}
    late = "TOOL_TIMEOUT"
    assert [codes[name] for name in ("local", "patient", "far", "own")] == [late, None, late, late]
    ended: list[Any] = [each for each in payloads(signals, "delegation_response") if each["status"] != "in_progress"]
    assert {each["error"]["code"] for each in ended} == {"DELEGATION_TIMEOUT"}


@pytest.mark.proves("CTL-71")
async def test_calls_without_any_setting_have_sixty_seconds_and_delegations_no_limit(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        async for _ in ctx.as_completed([Call("slow"), Delegation("hand", "any"), Call("first", timeout=0.05)]):
            return

    app.agent(name="hand", on_request=True)(forever)
    signals = await ran(rig, app)
    assert timeouts(signals, "tool:call", "name")["slow"] == 60
    assert timeouts(signals, "delegation", "task") == {"any": None}


async def test_settings_of_tool_calls_do_not_apply_to_steps(rig: Rig) -> None:
    settings = {"timeout_seconds": 0.05, "rate_limit": "1/h", "retry": {"max_attempts": 3, "initial_delay_ms": 1},
                "circuit_breaker": {"failure_threshold": 1}}  # fmt: skip
    app = Heliograph("own", control_signals={"tool_call": settings})
    made = []

    def fail() -> None:
        made.append("failed")
        raise ToolFailed("busy", code="NETWORK_ERROR", error={"recoverable": True})

    @app.agent(activate_on=START, updates="out", control_signals={"tool_call": settings})
    async def worker(ctx: Context) -> Any:
        for _ in range(2):
            with pytest.raises(ToolFailed):
                await ctx.step("same", fail)
        return await ctx.step(Step("same", effect="idempotent"), slow)

    async def slow() -> str:
        await asyncio.sleep(0.2)
        return "done"

    result = await rig.run(app)
    assert (result.state, made) == ({"out": "done"}, ["failed", "failed"])
    calls = [(each["name"], each.get("timeout_seconds")) for each in payloads(result.signals, "tool:call")]
    assert calls == [("same", None)] * 3
