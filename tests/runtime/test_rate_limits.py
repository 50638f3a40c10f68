"""Rate limits of an application: which calls they delay, and what the agents receive."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from heliograph import Call, Context, Delegation, Heliograph, Step, tool
from heliograph.codes import RATE_LIMITED
from heliograph.errors import DelegationFailed, HeliographError, InvalidInput, RateLimited
from heliograph.models import ModelReply, ScriptedModel
from tests.runtime.kit import START, Rig, one, until
from tests.runtime.loop_kit import agent, call, payloads, results


async def buckets(rig: Rig) -> dict[tuple[str, str], Any]:
    """The buckets of the project, each with the seconds between the last start and the time at which it is full."""
    rows = await rig.fetch(
        "select kind, name, extract(epoch from full_at - last_start)::float8 as seconds from heliograph.rate_overview"
        " where project_id = $1",
        rig.runtime.settings.project,
    )
    return {(row["kind"], row["name"]): row["seconds"] for row in rows}


@pytest.mark.more
@pytest.mark.proves("RTE-08", "G-24")
async def test_step_waits_for_its_token_and_one_that_would_wait_too_long_fails(rig: Rig) -> None:
    app, began = Heliograph("waiting"), list[float]()

    @app.agent(activate_on=START, updates="out")
    async def search(ctx: Context) -> Any:
        for _ in range(2):
            await ctx.step(
                Step("search", effect="idempotent", rate_limit="1/s"), lambda: began.append(time.monotonic())
            )
        try:
            for _ in range(2):
                await ctx.step(Step("rare", timeout=600, rate_limit="1/h"), str)
        except RateLimited as error:
            return [error.code, error.tool, error.rate["name"], error.rate["count"], error.recoverable]
        return None

    result = await rig.run(app)
    assert result.state["out"] == [RATE_LIMITED, "rare", "rare", 1, True]
    assert (
        began[1] - began[0] > 0.9
    )  # it starts a second after the first at the earliest, less the way of the first answer


@pytest.mark.proves("G-24", "CB-06")
async def test_fallback_replaces_calls_over_their_limit(rig: Rig) -> None:
    app = Heliograph("replaced")

    def cached(error: HeliographError) -> str:
        return f"cached: {error.code}"

    @app.agent(activate_on=START, updates="out")
    async def search(ctx: Context) -> Any:
        steps = [
            await ctx.step(Step("rare", timeout=600, rate_limit="1/h", fallback=cached), lambda: "fresh")
            for _ in range(2)
        ]
        return [*steps, await ctx.call("rare", {}, timeout=600, rate_limit="1/h", fallback=cached)]

    result = await rig.run(app)
    assert result.state["out"] == ["fresh", "cached: RATE_LIMITED", "cached: RATE_LIMITED"]


@pytest.mark.proves("RTE-08", "G-24")
async def test_call_over_its_limit_is_not_made_and_a_resumed_function_sees_the_same_rejection(rig: Rig) -> None:
    app = Heliograph("calling")

    @app.agent(activate_on=START, updates="out")
    async def ask(ctx: Context) -> Any:
        outcomes = list[str]()
        for name in ("search", "search", "fetch"):
            try:
                outcomes.append(str(await ctx.call(name, {}, timeout=600, rate_limit="1/h")))
            except RateLimited as error:
                outcomes.append(str(error.code))
        return outcomes

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        await command.report(result="one")
        (command,) = await rig.taken("fetch")
        assert await rig.client.take_commands(["search"], 1) == []
        await command.report(result="two")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == ["one", RATE_LIMITED, "two"]
    assert [payload["name"] for payload in payloads(signals, "tool:call")] == ["search", "search", "fetch"]
    (error,) = [p["error"] for p in payloads(signals, "tool:result") if p["status"] == "failed"]
    assert error["details"]["retry_after_ms"] > 2_900_000


@pytest.mark.more
@pytest.mark.proves("RTE-08", "G-24")
async def test_delegations_to_an_agent_share_its_limit(rig: Rig) -> None:
    app, began = Heliograph("delegating"), list[float]()

    @app.agent(activate_on=START, updates="out")
    async def chief(ctx: Context) -> Any:
        codes = list[Any]()
        for timeout in (None, None, 0.05):
            try:
                codes.append(await ctx.delegate("hand", timeout=timeout))
            except DelegationFailed as error:
                codes.append(error.code)
        return codes

    @app.agent(on_request=True, rate_limit="1/s")
    def hand(ctx: Context) -> str:
        began.append(time.monotonic())
        return "done"

    run_id = await rig.start(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == ["done", "done", RATE_LIMITED]
    assert len(began) == 2 == len(payloads(signals, "delegation"))


@pytest.mark.proves("RTE-08", "G-24")
async def test_calls_of_one_route_share_its_limit(rig: Rig) -> None:
    route = {"match": {"tool_name": "external_*"}, "destination": {"queue": "out", "rate_limit": "2/h"}}
    other = {"queue": "rest", "rate_limit": "9/h"}
    app = Heliograph("routed", routes={"kind": "MessageRouting", "routes": [route], "default": other})

    @app.agent(activate_on=START, updates="out")
    async def ask(ctx: Context) -> Any:
        calls = [Call(name, {}, timeout=600) for name in ("external_a", "external_b", "inner", "external_a")]
        return [result.error and result.error["code"] for result in await ctx.calls(calls)]

    run_id = await rig.start(app)
    async with rig.serving(app):
        async with asyncio.timeout(60):
            taken = [*await rig.client.take_commands(["external_a"], 1, pool="out")]
            while len(taken) < 3:
                for name, pool in (("external_a", "out"), ("external_b", "out"), ("inner", "rest")):
                    taken += await rig.client.take_commands([name], 1, pool=pool)
        for command in taken:
            await command.report(result="done")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == [None, None, None, RATE_LIMITED]
    assert set(await buckets(rig)) == {("route", "routed/0"), ("route", "routed/default")}


@pytest.mark.proves("RTE-08")
async def test_model_receives_the_rejection_of_its_tool(rig: Rig) -> None:
    ran = list[str]()

    @tool(rate_limit="1/h", effect="idempotent")
    def buy(item: str) -> str:
        """Buy something."""
        ran.append(item)
        return item

    model = ScriptedModel([call("buy", {"item": "tea"}), call("buy", {"item": "milk"}, "x2"), "only tea"])
    result = await rig.run(agent(model, [buy]))
    assert (result.state["out"], ran) == ("only tea", ["tea"])
    assert "rate limit of tool buy" in str(results(model)[1])


@pytest.mark.proves("RTE-08", "CB-07")
async def test_limit_of_a_signal_type_holds_for_each_target_unless_a_narrower_one_is_set(rig: Rig) -> None:
    """By default once an hour; twice for the calls of one agent, and thrice for the delegations to another."""
    limits = {"tool_call": {"rate_limit": "1/h"}, "delegation": {"rate_limit": "1/h"}}
    app = Heliograph("nesting", control_signals=limits)

    @app.agent(activate_on=START, updates="first")
    async def first(ctx: Context) -> Any:
        calls = await ctx.calls([Call(name, {}, timeout=0.05, effect="pure") for name in ("a", "a", "b")])
        named = [Delegation(name, timeout=600) for name in ("hand", "hand", "other", "other", "other", "other")]
        return [(result.error or {}).get("code") for result in [*calls, *await ctx.delegates(named)]]

    @app.agent(activate_on=START, updates="second", control_signals={"tool_call": {"rate_limit": "2/h"}})
    async def second(ctx: Context) -> Any:
        calls = [Call("c", {}, timeout=0.05, effect="pure") for _ in range(3)]
        own = Call("d", {}, timeout=0.05, effect="pure", rate_limit="1/h")
        return [(result.error or {}).get("code") for result in await ctx.calls([*calls, own, own])]

    @app.agent(on_request=True)
    def hand(ctx: Context) -> str:
        return "done"

    app.agent(name="other", on_request=True, rate_limit="3/h")(hand)
    result = await rig.run(app)
    late, limited = "TOOL_TIMEOUT", RATE_LIMITED
    assert result.state["first"] == [late, limited, late, None, limited, None, None, None, limited]
    assert result.state["second"] == [late, late, limited, late, limited]
    named = {("tool", name) for name in "abcd"} | {("agent", "hand"), ("agent", "other")}
    assert set(await buckets(rig)) == named


@pytest.mark.proves("RTE-08")
async def test_tools_of_a_model_follow_the_limit_of_the_tool_and_then_that_of_the_signal_type(rig: Rig) -> None:
    def made(name: str, **options: Any) -> Any:
        def use() -> str:
            """Use it."""
            return "used"

        return tool(name=name, effect="pure", **options)(use)

    app = Heliograph("tools", control_signals={"tool_call": {"rate_limit": "1/h"}, "delegation": {"rate_limit": "1/h"}})
    calls = [call(name, {"task": "x", "deadline": 60} if "_" in name else {}, f"{name}{n}") for n in range(2)
             for name in ("own", "general", "delegate_to_hand")]  # fmt: skip
    model = ScriptedModel([calls, "done"])
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, updates="out", agents=["hand"],
                     tools=[made("own", rate_limit="2/h"), made("general")])  # fmt: skip

    @app.agent(on_request=True, trusted=True)
    def hand(ctx: Context) -> str:
        return "used"

    await rig.run(app)
    assert ["rate limit" in str(each) for each in results(model)] == [False, False, False, False, True, True]


# ── Models ──


def limited(model: Any, **limits: str) -> Heliograph:
    app = Heliograph("limited", models={"scripted*": limits})
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, updates="out", retries=0,
                     model_timeout_seconds=60)  # fmt: skip
    return app


@pytest.mark.proves("G-24")
async def test_requests_of_a_model_are_limited_across_runs(rig: Rig) -> None:
    app = limited(ScriptedModel(["fine"] * 3), requests="2/h")
    assert [(await rig.run(app)).state.get("out") for _ in range(2)] == ["fine", "fine"]
    rig.ends_with_open_work = True
    result = await rig.run(app)
    (failed,) = payloads(result.signals, "agent:failed")
    assert failed["error"]["code"] == RATE_LIMITED
    assert await buckets(rig) == {("model", "scripted*"): pytest.approx(3600, abs=60)}


@pytest.mark.proves("G-24")
async def test_tokens_of_a_model_are_estimated_and_corrected_by_the_actual_usage(rig: Rig) -> None:
    app = limited(ScriptedModel(lambda _: ModelReply("fine", input_tokens=20, output_tokens=16)), tokens="7000/h")
    for _ in range(3):  # the estimate is more than half of the limit
        assert (await rig.run(app)).state["out"] == "fine"
    assert (await buckets(rig))["model_tokens", "scripted*"] < 100  # seconds; the estimate is more than half an hour


@pytest.mark.proves("G-24")
async def test_model_over_its_limit_gives_way_to_its_fallback(rig: Rig) -> None:
    class Other(ScriptedModel):
        model = "other"

    app = Heliograph("falling", models={"scripted*": {"tokens": "1/h"}})
    app.prompt_agent(
        "worker", "Work.", model=[ScriptedModel(["first"]), Other(["second"])], activate_on=START, updates="out"
    )
    assert (await rig.run(app)).state["out"] == "second"


@pytest.mark.proves("RTE-08")
@pytest.mark.parametrize("rate", ["10/x", "0/s", "ten", 5, "10", "1/d"])
def test_invalid_rate_names_its_place(rate: Any) -> None:
    app = Heliograph("bad")
    for made, path in (
        (lambda: app.agent(name="one", on_request=True, rate_limit=rate)(print), "/agents/one/rate_limit"),
        (lambda: tool(name="buy", description="", rate_limit=rate)(print), "/tools/buy/rate_limit"),
        (lambda: Heliograph("bad", models={"a:*": {"tokens": rate}}), "/models/a:*/tokens"),
        (
            lambda: Heliograph("bad", control_signals={"delegation": {"rate_limit": rate}}),
            "/control_signals/delegation/rate_limit",
        ),
    ):
        with pytest.raises(InvalidInput, match="for example 10/s") as caught:
            made()
        assert (caught.value.code, caught.value.path) == ("invalid_rate", path)


@pytest.mark.more
@pytest.mark.proves("K14", "G-24")
async def test_once_step_whose_worker_stops_before_its_start_is_run_by_the_next_worker(rig: Rig) -> None:
    app, ran = Heliograph("deployed"), list[int]()

    @app.agent(activate_on=START, updates="out")
    async def mail(ctx: Context) -> Any:
        for n in range(2):
            await ctx.step(Step("mail", effect="once", rate_limit="1/s"), ran.append, n)
        return "sent"

    async def waits() -> bool:
        return bool(await rig.fetch("select 1 from heliograph.turn_waiting_tools where project_id = $1 and rate ? 'is_waiting'",
                                    rig.runtime.settings.project))  # fmt: skip

    run_id = await rig.start(app)
    async with rig.serving(app, grace_seconds=0.01):
        await until(waits)
    assert ran == [0]
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"]["out"] == "sent"
    assert ran == [0, 1]
