"""Fallbacks of tools: what a model receives in place of the error of a call that a breaker or a rate limit rejects."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Heliograph, external_tool, tool
from heliograph.agents import Agent
from heliograph.errors import HeliographError, InvalidInput, RecoverableError
from heliograph.models import ScriptedModel
from heliograph.phases import PhaseContext, Plan, ToolStep
from tests.runtime.kit import START, Rig
from tests.runtime.loop_kit import agent, call, payloads, results

ONCE: dict[str, Any] = {"failure_threshold": 1, "success_threshold": 1, "half_open_max_calls": 1}


def cached(error: HeliographError, arguments: Any) -> str:
    return f"{arguments.pop('item')} for {error.code}"  # it may change its own copy of the arguments


async def cached_later(error: HeliographError, arguments: Any) -> str:
    return cached(error, arguments)


@pytest.mark.proves("CB-06", "G-24")
async def test_model_receives_the_result_of_a_fallback_in_place_of_a_rejection(rig: Rig) -> None:
    ran = list[str]()

    @tool(circuit_breaker=ONCE, effect="idempotent", fallback=cached)
    def buy(item: str) -> str:
        """Buy something."""
        ran.append(item)
        raise RecoverableError("closed")

    @tool(rate_limit="1/h", effect="idempotent", fallback=cached_later)
    def look(item: str) -> str:
        """Look at something."""
        ran.append(item)
        return f"fresh {item}"

    model = ScriptedModel([[call("buy", {"item": "tea"}, "a"), call("look", {"item": "milk"}, "b")], [call("buy", {"item": "jam"}, "c"), call("look", {"item": "oil"}, "d")], "done"])  # fmt: skip
    result = await rig.run(agent(model, [buy, look]))
    assert ran == ["tea", "milk"]
    found = [str(each) for each in results(model)]
    assert "closed" in found[0]
    assert found[1:] == ["fresh milk", "jam for CIRCUIT_OPEN", "oil for RATE_LIMITED"]
    logged = {p["id"]: (p["name"], p["status"]) for p in payloads(result.signals, "tool:result")}
    assert logged["m2-1"] == ("buy", "failed")
    assert logged["m2-1-fallback"] == ("fallback", "success")
    inputs = {p["id"]: p["input"] for p in payloads(result.signals, "tool:call")}
    assert inputs["m2-1"] == {"item": "jam"}


@pytest.mark.proves("CB-06", "G-24")
async def test_fallback_of_an_external_tool_is_called_once_even_if_the_turn_resumes(rig: Rig) -> None:
    ran = list[str]()

    def cached(error: Any, arguments: Any) -> str:
        ran.append(arguments["page"])
        return "cached"

    page = {"type": "object", "properties": {"page": {"type": "string"}}}
    fetch = external_tool("fetch", "Fetch.", page, rate_limit="1/h", timeout_seconds=600, fallback=cached)
    other = external_tool("other", "Another.", None)
    model = ScriptedModel(
        [[call("fetch", {"page": "a"}, "a"), call("fetch", {"page": "b"}, "b"), call("other", {}, "c")], "done"]
    )
    app = agent(model, [fetch, other])
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("fetch")
        await command.report(result="fresh")
        (command,) = await rig.taken("other")
        await command.report(result="found")
        await rig.ended(run_id)
    assert ran == ["b"]
    assert ["fresh" in str(each) for each in results(model)] == [True, False, False]
    assert "cached" in str(results(model)[1])


@pytest.mark.proves("CB-06")
async def test_error_and_invalid_result_of_a_fallback_are_the_error_of_the_call(rig: Rig) -> None:
    def broken(error: Any, arguments: Any) -> str:
        raise ValueError("no copy")

    def tools(fallback: Any, name: str) -> Any:
        def use() -> int:
            """Use it."""
            return 1

        return tool(name=name, rate_limit="1/h", effect="pure", result_schema=int, fallback=fallback)(use)

    both = [
        tools(broken, "one"),
        tools(lambda error, arguments: "x", "two"),
        tools(lambda error, arguments: 7, "three"),
    ]
    calls = [[call(name, {}, f"{name}{n}") for name in ("one", "two", "three")] for n in range(2)]
    model = ScriptedModel([*calls, "done"])
    result = await rig.run(agent(model, both))
    assert result.outcome == "success"
    found = [str(each) for each in results(model)]
    assert found[:3] == ["1"] * 3
    assert "no copy" in found[3]
    assert "does not match its schema" in found[4]
    assert found[5] == "7"


@pytest.mark.proves("CB-06")
async def test_fallback_whose_result_is_too_large_fails_the_call_and_not_the_turn(rig: Rig) -> None:
    @tool(rate_limit="1/h", effect="pure", fallback=lambda error, arguments: "x" * 2_000_000)
    def read() -> str:
        """Read."""
        return "fine"

    await rig.runtime.world.call(
        "set_limits", rig.runtime.settings.project, {"result_bytes_max": 100_000, "blob_bytes_max": 100_000}
    )
    model = ScriptedModel([call("read", {}, "a"), call("read", {}, "b"), "done"])
    result = await rig.run(agent(model, [read]))
    assert result.state["out"] == "done"
    assert "RESULT_TOO_LARGE" in str(results(model)[1])


@pytest.mark.proves("CB-06")
async def test_step_of_a_plan_has_the_result_of_the_fallback(rig: Rig) -> None:
    @tool(rate_limit="1/h", effect="pure", fallback=cached)
    def look(item: str) -> str:
        """Look."""
        return f"fresh {item}"

    app = Heliograph("planned")

    @app.agent(activate_on=START, updates="out", tools=[look])
    class Looker(Agent):
        def plan(self, ctx: PhaseContext) -> Plan:
            return Plan([ToolStep("look", {"item": "tea"}), ToolStep("look", {"item": "jam"})])

    result = await rig.run(app)
    assert result.state["out"] == "jam for RATE_LIMITED"


@pytest.mark.proves("CB-06")
@pytest.mark.parametrize(
    "fallback", ["cached", lambda: 1, lambda error: 1, lambda a, b, c: 1], ids=["text", "none", "one", "three"]
)
def test_fallback_of_a_tool_must_take_the_error_and_the_arguments(fallback: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        tool(name="buy", description="", fallback=fallback)(print)
    assert (caught.value.code, caught.value.path) == ("wrong_type", "/tools/buy/fallback")
