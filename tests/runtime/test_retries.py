"""Retried calls: each attempt and each pause is recorded, and only records decide how often a call is made again."""

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Delegation, Heliograph, RetryPolicy, Signal, Step, external_tool, tool
from heliograph.errors import DelegationFailed, HarnessError, InvalidInput, StepInDoubt, ToolFailed
from heliograph.models import ScriptedModel
from tests.runtime.kit import START, Rig, names, one
from tests.runtime.loop_kit import agent, call, payloads, results

QUICK = {"strategy": "constant", "initial_delay_ms": 5, "jitter": False}
LONG_PAUSES = {"strategy": "constant", "initial_delay_ms": 1100, "max_delay_ms": 1100, "jitter": False}


async def ran(rig: Rig, app: Heliograph) -> list[Signal]:
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


def seen(signals: list[Signal]) -> Any:
    return one(signals, "workflow:end")["state"].get("seen")


def calls_of(signals: list[Signal], name: str) -> list[tuple[str, int | None]]:
    """The id and the attempt number of each call of a tool, in the order of the log."""
    return [(p["id"], p.get("attempt")) for p in payloads(signals, "tool:call") if p["name"] == name]


def one_agent(function: Any, **options: Any) -> Heliograph:
    app = Heliograph("retries", **options)
    app.agent(name="worker", activate_on=START, updates="seen")(function)
    return app


# ── Steps ──


@pytest.mark.proves("RET-02", "RET-03")
async def test_step_is_repeated_until_it_succeeds_and_each_attempt_is_recorded(rig: Rig) -> None:
    made: list[int] = []

    async def flaky() -> int:
        made.append(1)
        if len(made) < 3:
            raise ToolFailed("refused", code="NETWORK_ERROR")
        return len(made)

    async def worker(ctx: Context) -> Any:
        first = await ctx.step(Step("flaky", retry={**QUICK, "max_attempts": 4}), flaky)
        return [first, await ctx.step("then", lambda: "next")]

    signals = await ran(rig, one_agent(worker))
    assert seen(signals) == [3, "next"]
    assert calls_of(signals, "flaky") == [("c1", 1), ("c1-again-1", 2), ("c1-again-2", 3)]
    assert [p["id"] for p in payloads(signals, "tool:result") if p["name"] == "timer"] == ["c1-pause-1", "c1-pause-2"]
    statuses = {w.call_id: w.status for w in await rig.runtime.reader.waits((await rig.turn_of("worker")).turn_id)}
    assert [statuses[each] for each in ("c1", "c1-again-1", "c1-again-2")] == ["failed", "failed", "success"]


@pytest.mark.proves("RET-07", "RET-03")
async def test_step_ends_with_its_last_attempt_or_with_an_unlisted_code(rig: Rig) -> None:
    made: list[str] = []

    async def fail(code: str) -> None:
        made.append(code)
        raise ToolFailed("refused", code=code)

    async def worker(ctx: Context) -> Any:
        errors = []
        for code in ("NETWORK_ERROR", "AUTH_ERROR", "mine"):
            try:
                await ctx.step(Step("fail", retry=QUICK), fail, code)
            except ToolFailed as error:
                errors.append([error.code, error.error["details"]])
        return errors

    signals = await ran(rig, one_agent(worker))
    assert made == ["NETWORK_ERROR"] * 3 + ["AUTH_ERROR", "mine"]  # the default is three attempts
    assert seen(signals) == [
        ["NETWORK_ERROR", {"retry_count": 2, "max_retries": 2}],
        ["AUTH_ERROR", {"retry_count": 0, "max_retries": 2}], ["mine", {"retry_count": 0, "max_retries": 2}],
    ]  # fmt: skip


@pytest.mark.proves("RET-01")
async def test_call_without_a_policy_and_one_with_a_disabled_policy_are_made_once(rig: Rig) -> None:
    async def fail() -> None:
        raise ToolFailed("refused", code="NETWORK_ERROR")

    async def worker(ctx: Context) -> Any:
        for retry in (None, {"enabled": False}):
            with pytest.raises(ToolFailed) as caught:
                await ctx.step(Step("fail", retry=retry), fail)
            assert "details" not in caught.value.error
        return "once each"

    signals = await ran(rig, one_agent(worker, control_signals={"tool_call": {"retry": QUICK}}))
    assert seen(signals) == "once each"
    assert calls_of(signals, "fail") == [("c1", None), ("c2", None)]  # steps follow only their own policy


async def test_step_in_doubt_is_not_repeated(rig: Rig) -> None:
    async def worker(ctx: Context) -> Any:
        async def lose() -> None:
            raise StepInDoubt("the connection broke")

        with pytest.raises(StepInDoubt):
            await ctx.step(Step("pay", retry=RetryPolicy(retryable_errors="any")), lose)
        return "in doubt"

    signals = await ran(rig, one_agent(worker))
    assert seen(signals) == "in doubt"
    assert calls_of(signals, "pay") == [("c1", 1)]


async def test_parallel_steps_are_retried_independently_of_each_other(rig: Rig) -> None:
    made: dict[str, int] = {}

    async def flaky(name: str, failures: int) -> str:
        made[name] = made.get(name, 0) + 1
        if made[name] <= failures:
            raise ToolFailed("refused", code="NETWORK_ERROR")
        return name

    async def worker(ctx: Context) -> Any:
        return await asyncio.gather(*(ctx.step(Step(f"{n}", retry=QUICK), flaky, f"{n}", n) for n in range(3)))

    assert seen(await ran(rig, one_agent(worker))) == ["0", "1", "2"]
    assert made == {"0": 1, "1": 2, "2": 3}


# ── Tools of other processes ──


@pytest.mark.proves("RET-08", "RET-07")
async def test_external_call_follows_the_narrowest_policy_and_the_delay_of_the_tool(rig: Rig) -> None:
    """The application allows two attempts, the agent three, the call four."""
    app = Heliograph("external", control_signals={"tool_call": {"retry": {**QUICK, "max_attempts": 2}}})

    async def attempts(ctx: Context, **options: Any) -> int:
        try:
            await ctx.call("fetch", **options)
        except ToolFailed as error:
            return int(error.error["details"]["retry_count"]) + 1
        raise AssertionError

    @app.agent(activate_on=START, updates="one")
    async def plain(ctx: Context) -> Any:
        return await attempts(ctx)

    @app.agent(activate_on=START, updates="two", control_signals={"tool_call": {"retry": QUICK}})
    async def narrower(ctx: Context) -> Any:
        return [await attempts(ctx), await attempts(ctx, retry={**QUICK, "max_attempts": 4})]

    run_id = await rig.start(app)
    async with rig.serving(app):
        for command in await rig.taken("fetch", count=1):
            await command.report(error={"code": "RATE_LIMITED", "message": "slowly", "details": {"retry_after_ms": 30}})
        for _ in range(8):
            [command] = await rig.taken("fetch")
            await command.report(error={"code": "NETWORK_ERROR", "message": "refused"})
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"one": 2, "two": [3, 4]}
    pauses = [p["input"]["seconds"] for p in payloads(signals, "tool:call") if p["name"] == "timer"]
    assert sorted(pauses) == [0.005] * 5 + [0.03]


async def test_calls_together_and_one_by_one_are_retried_by_their_own_policies(rig: Rig) -> None:
    app = Heliograph("several")

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> Any:
        calls = [Call("fetch", {"n": n}, retry=QUICK if n else None) for n in range(3)]
        together = await ctx.calls(calls)
        one_by_one = [result async for result in ctx.as_completed(calls)]
        return [[r.status for r in together], sorted((r.call_id, r.status) for r in one_by_one)]

    run_id = await rig.start(app)
    async with rig.serving(app):
        while (await rig.turn_of("worker")).status != "done":
            for command in await rig.client.take_commands(["fetch"]):
                is_good = command.arguments["n"] == 1 and "again" in command.call_id
                error = None if is_good else {"code": "NETWORK_ERROR", "message": "refused"}
                await command.report(result="ok" if is_good else None, error=error)
        signals = await rig.ended(run_id)
    together, one_by_one = seen(signals)
    assert together == ["failed", "success", "failed"]
    assert one_by_one == [["c7", "failed"], ["c8-again-1", "success"], ["c9-again-2", "failed"]]


async def test_call_that_ends_its_turn_cannot_be_retried(rig: Rig) -> None:
    async def worker(ctx: Context) -> Any:
        with pytest.raises(InvalidInput, match="after='terminate'"):
            await ctx.call("fetch", after="terminate", retry=QUICK)
        with pytest.raises(InvalidInput, match="the call id of a call that is retried"):
            await ctx.call("fetch", call_id="x" * 60, retry=QUICK)
        return "rejected"

    assert seen(await ran(rig, one_agent(worker))) == "rejected"


# ── Delegations ──


@pytest.mark.proves("RET-08")
async def test_delegation_is_repeated_as_a_new_child_by_the_policy_of_its_type(rig: Rig) -> None:
    app = Heliograph(
        "delegating", control_signals={"delegation": {"retry": {**QUICK, "retryable_errors": ["ACTION_FAILED"]}}}
    )

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        try:
            await ctx.delegate("child", retry=None)
        except DelegationFailed as error:
            return error.error["details"]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        raise ValueError("no")

    signals = await ran(rig, app)
    assert seen(signals) == {"retry_count": 2, "max_retries": 2}
    delegations = payloads(signals, "delegation")
    assert [(p["id"], p["attempt"]) for p in delegations] == [("c1", 1), ("c1-again-1", 2), ("c1-again-2", 3)]
    assert len({p["task_id"] for p in delegations}) == 3


async def test_child_that_missed_its_own_deadline_is_repeated(rig: Rig) -> None:
    app = Heliograph("late")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> Any:
        results = await ctx.delegates([Delegation("child", timeout=0.1)], retry={**QUICK, "max_attempts": 2})
        return [[r.call_id, r.status] for r in results]

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        await asyncio.Event().wait()

    assert seen(await ran(rig, app)) == [["c1-again-1", "timeout"]]


# ── Tools of models ──


@pytest.mark.proves("RET-08")
async def test_tools_of_a_model_follow_the_policy_of_the_tool_and_then_that_of_the_application(rig: Rig) -> None:
    made: list[str] = []

    def failing(name: str, **options: Any) -> Any:
        def fail() -> None:
            made.append(name)
            raise ToolFailed("refused", code="NETWORK_ERROR")

        return tool(name=name, effect="idempotent", **options)(fail)

    tools = [
        failing("own", retry={**QUICK, "max_attempts": 4}),
        failing("off", retry={"enabled": False}),
        failing("general"),
    ]
    model = ScriptedModel([[call(name, call_id=name) for name in ("own", "off", "general")], "done"])
    app = Heliograph("tools", control_signals={"tool_call": {"retry": {**QUICK, "max_attempts": 2}}})
    app.prompt_agent("worker", "Work.", model=model, activate_on=START, updates="out", tools=tools)
    signals = await ran(rig, app)
    assert sorted(made) == ["general"] * 2 + ["off"] + ["own"] * 4
    assert [each for _, each in results(model)] == ["NETWORK_ERROR: refused"] * 3
    assert calls_of(signals, "own") == [("m1-1", 1), ("m1-1-again-1", 2), ("m1-1-again-2", 3), ("m1-1-again-3", 4)]


@pytest.mark.more
async def test_turn_is_suspended_during_a_longer_pause_of_a_models_tool(rig: Rig) -> None:
    made: list[str] = []

    def failing(name: str) -> Any:
        def fail() -> str:
            made.append(name)
            if made.count(name) < 2:
                raise ToolFailed("refused", code="NETWORK_ERROR")
            return name

        return tool(name=name, effect="idempotent", retry=LONG_PAUSES)(fail)

    model = ScriptedModel([[call("a", call_id="a"), call("b", call_id="b")], "done"])
    app = agent(model, [failing("a"), failing("b")])
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("worker", "suspended")
        assert sorted(made) == ["a", "b"]
        signals = await rig.ended(run_id)
    assert sorted(made) == ["a", "a", "b", "b"]
    assert results(model) == ["a", "b"]
    assert sorted(p["id"] for p in payloads(signals, "tool:result") if p["name"] == "timer") == [
        "m1-1-pause-1",
        "m1-2-pause-1",
    ]


async def test_external_tool_of_a_model_is_called_again(rig: Rig) -> None:
    model = ScriptedModel([call("fetch"), "done"])
    app = agent(model, [external_tool("fetch", "Fetch.", retry=QUICK)])
    run_id = await rig.start(app)
    async with rig.serving(app):
        [command] = await rig.taken("fetch")
        await command.report(error={"code": "RATE_LIMITED", "message": "slowly"})
        [command] = await rig.taken("fetch")
        assert command.call_id == "m1-1-again-1"
        await command.report(result="page")
        await rig.ended(run_id)
    assert "page" in str(results(model))


# ── Models ──


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("agent_options", "app_options", "requests_made"),
    [({"retry": {"max_attempts": 2}}, {"models": {"scripted": {"retry": {"max_attempts": 5}}}}, 2),
     ({}, {"models": {"scr*": {"retry": {"max_attempts": 3}}}}, 3), ({}, {"models": {"other": {"retry": {"max_attempts": 2}}}}, 4),
     ({"retry": {"retryable_errors": ["RATE_LIMITED"]}}, {}, 1), ({"retry": {"max_attempts": 5}, "retries": 1}, {}, 2)],
)  # fmt: skip
async def test_model_call_follows_the_policy_of_its_agent_and_then_that_of_its_model(
    rig: Rig, agent_options: Any, app_options: Any, requests_made: int
) -> None:
    app = Heliograph("models", **app_options)
    busy = [HarnessError("overloaded", code="NETWORK_ERROR", recoverable=True) for _ in range(9)]
    app.prompt_agent("writer", "Write.", model=ScriptedModel(busy), activate_on=START, **agent_options)
    assert names(await ran(rig, app)).count("harness:start") == requests_made
