"""Circuit breakers of an application: which calls they guard, and what the agents receive."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Call, CircuitBreaker, Context, Heliograph, RetryPolicy, Step, tool
from heliograph.errors import CircuitOpen, DelegationFailed, HarnessError, InvalidInput, RecoverableError, ToolFailed
from heliograph.models import FunctionHarness, ScriptedModel
from heliograph.turn.calls import CallRequest
from heliograph.turn.fallbacks import with_fallback
from tests.runtime.kit import START, Rig, one
from tests.runtime.loop_kit import agent, call, payloads

ONCE: dict[str, Any] = {"failure_threshold": 1, "success_threshold": 1, "half_open_max_calls": 1}


async def states(rig: Rig) -> dict[tuple[str, str], str]:
    rows = await rig.fetch(
        "select type, target, state from heliograph.circuit_overview where project_id = $1",
        rig.runtime.settings.project,
    )
    return {(row["type"], row["target"]): row["state"] for row in rows}


@pytest.mark.proves("CB-02", "CB-06")
async def test_step_is_not_run_while_its_breaker_is_open(rig: Rig) -> None:
    app, calls = Heliograph("stepping"), list[int]()

    def charge(n: int) -> None:
        calls.append(n)
        raise RecoverableError("busy")

    @app.agent(activate_on=START, updates="out")
    async def pay(ctx: Context) -> Any:
        codes = list[Any]()
        for n in range(4):
            try:
                await ctx.step(Step("charge", effect="idempotent", circuit_breaker={"failure_threshold": 2}), charge, n)
            except CircuitOpen as error:
                codes.append((error.code, error.circuit["state"], error.tool, error.recoverable))
            except ToolFailed as error:
                codes.append(error.code)
        return codes

    result = await rig.run(app)
    assert calls == [0, 1]
    assert result.state["out"][2:] == [["CIRCUIT_OPEN", "open", "charge", True]] * 2
    assert await states(rig) == {("tool_call", "charge"): "open"}


@pytest.mark.proves("CB-07")
async def test_breaker_of_tool_calls_guards_calls_and_a_resumed_function_sees_the_same_rejection(rig: Rig) -> None:
    app = Heliograph("calling", control_signals={"tool_call": {"circuit_breaker": ONCE}})
    seen = list[str]()

    @app.agent(activate_on=START, updates="out")
    async def ask(ctx: Context) -> Any:
        outcomes = list[str]()
        for name in ("search", "search", "fetch"):
            try:
                outcomes.append(str(await ctx.call(name, {}, timeout=None)))
            except ToolFailed as error:
                outcomes.append(error.code)
        seen.append(",".join(outcomes))
        return outcomes

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("search")
        await command.report(error={"code": "TOOL_ERROR", "message": "down", "recoverable": True})
        (command,) = await rig.taken("fetch")
        assert await rig.client.take_commands(["search"], 1) == []
        await command.report(result="found")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == ["TOOL_ERROR", "CIRCUIT_OPEN", "found"]
    assert [payload["name"] for payload in payloads(signals, "tool:call")] == ["search", "search", "fetch"]


@pytest.mark.proves("CB-07", "G-27")
async def test_breaker_of_delegations_makes_no_child_and_that_of_an_agent_is_narrower(rig: Rig) -> None:
    app = Heliograph("delegating", control_signals={"delegation": {"circuit_breaker": ONCE}})

    @app.agent(activate_on=START, updates="out")
    async def chief(ctx: Context) -> Any:
        codes = list[Any]()
        for name in ("hand", "hand", "other", "other"):
            try:
                await ctx.delegate(name, timeout=0.05)
            except DelegationFailed as error:
                codes.append(error.code)
        return codes

    async def never(ctx: Context) -> None:
        await ctx.call("nothing", {}, timeout=None)

    app.agent(name="hand", on_request=True)(never)
    app.agent(name="other", on_request=True, circuit_breaker=CircuitBreaker(enabled=False))(never)
    run_id = await rig.start(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    late = "DELEGATION_TIMEOUT"
    assert one(signals, "workflow:end")["state"]["out"] == [late, "CIRCUIT_OPEN", late, late]
    assert len(payloads(signals, "delegation")) == 3
    assert await states(rig) == {("delegation", "hand"): "open"}


@pytest.mark.proves("CB-01")
async def test_model_receives_the_rejection_of_its_tool(rig: Rig) -> None:
    ran = list[str]()

    @tool(circuit_breaker=ONCE, effect="idempotent")
    def buy(item: str) -> str:
        """Buy something."""
        ran.append(item)
        raise RecoverableError("closed")

    model = ScriptedModel([call("buy", {"item": "tea"}), call("buy", {"item": "milk"}, "x2"), "no luck"])
    result = await rig.run(agent(model, [buy]))
    assert (result.state["out"], ran) == ("no luck", ["tea"])
    assert "circuit breaker" in str(model.requests[-1].messages[-1])


@pytest.mark.proves("CB-01")
@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"failure_threshold": 0}, "out_of_range"),
        ({"success_threshold": 4}, "out_of_range"),
        ({"half_open_max_calls": 2000}, "out_of_range"),
        ({"timeout_seconds": 1e9}, "out_of_range"),
        ({"timeout": 3}, "unknown_field"),
        ("open", "wrong_type"),
    ],
)
def test_invalid_breaker_names_its_place(settings: Any, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Heliograph("bad", control_signals={"delegation": {"circuit_breaker": settings}})
    assert (caught.value.path or "").startswith("/control_signals/delegation/circuit_breaker")
    app = Heliograph("bad")
    with pytest.raises(InvalidInput) as caught:
        app.agent(name="one", on_request=True, circuit_breaker=settings)(print)
    assert (caught.value.path or "").startswith("/agents/one/circuit_breaker"), caught.value.path
    with pytest.raises(InvalidInput):
        tool(name="buy", description="", circuit_breaker=settings)(print)


def test_breaker_of_a_type_that_calls_nothing_is_rejected() -> None:
    with pytest.raises(InvalidInput) as caught:
        Heliograph("bad", control_signals={"halt": {"circuit_breaker": {}}})
    assert (caught.value.code, caught.value.path) == ("no_effect", "/control_signals/halt/circuit_breaker")


# ── With retries ──


@pytest.mark.proves("CB-06", "RET-04")
async def test_each_attempt_passes_the_breaker_and_a_rejection_is_retried_only_if_the_policy_lists_it(rig: Rig) -> None:
    app, made = Heliograph("retrying"), list[str]()
    policy: dict[str, Any] = {"max_attempts": 4, "strategy": "constant", "initial_delay_ms": 5, "jitter": False}
    breaker = {**ONCE, "timeout_seconds": 0.3}

    def flaky(name: str) -> str:
        made.append(name)
        if made.count(name) == 1:
            raise RecoverableError("down")
        return "up"

    @app.agent(activate_on=START, updates="out")
    async def pay(ctx: Context) -> Any:
        codes = ["UNKNOWN", "CIRCUIT_OPEN"]
        listed = await ctx.step(Step("a", effect="idempotent", retry={**policy, "retryable_errors": codes}, circuit_breaker=breaker), flaky, "a")  # fmt: skip
        try:
            await ctx.step(Step("b", effect="idempotent", retry=RetryPolicy(4, initial_delay_seconds=0.005, retryable_errors="any"), circuit_breaker=ONCE), flaky, "b")  # fmt: skip
        except CircuitOpen as error:
            return [listed, error.circuit["target"], error.details["retry_count"], error.details["retry_after_ms"] > 0]

    run_id = await rig.start(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert made == ["a", "a", "b"]
    assert one(signals, "workflow:end")["state"]["out"] == ["up", "b", 1, True]


@pytest.fixture
def made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of the kernel that belong to steps and calls; each is one statement and one commit."""
    made, call = list[str](), rig.runtime.world.call

    async def counted(function: str, *args: Any) -> Any:
        kind = function.removesuffix("_and_claim")
        if kind in ("begin_call", "record_call", "suspend", "finish"):  # append depends on the time
            made.append(kind)
        return await call(function, *args)

    monkeypatch.setattr(rig.runtime.world, "call", counted)
    return made


@pytest.mark.proves("CB-06", "G-24")
@pytest.mark.parametrize(
    "guards", [{}, {"circuit_breaker": ONCE}, {"rate_limit": "9/s"}], ids=["none", "breaker", "rate"]
)
async def test_admission_adds_no_call_of_the_kernel_to_a_step_or_a_call(rig: Rig, made: list[str], guards: Any) -> None:
    app = Heliograph("counting")

    @app.agent(activate_on=START, updates="out")
    async def work(ctx: Context) -> Any:
        await ctx.step(Step("add", effect="idempotent", **guards), lambda: 1)
        return await ctx.call("ask", {}, timeout=None, **guards)

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ask")
        await command.report(result=2)
        await rig.ended(run_id)
    assert made == ["begin_call", "record_call", "suspend", "finish"]


@pytest.mark.proves("CB-06", "G-24")
@pytest.mark.parametrize(
    "guards", [{"circuit_breaker": ONCE}, {"rate_limit": "1/h", "timeout": 60}], ids=["breaker", "rate"]
)
@pytest.mark.parametrize("is_step", [True, False])
async def test_rejection_adds_one_record_and_no_wait(rig: Rig, made: list[str], guards: Any, is_step: bool) -> None:
    """The record is that of the result, which a function that runs again receives."""
    app = Heliograph("counting")

    def fail() -> None:
        raise RecoverableError("down")

    @app.agent(activate_on=START, updates="first")
    async def first(ctx: Context) -> Any:
        with pytest.raises(ToolFailed):
            await ctx.step(Step("add", effect="idempotent", **guards), fail)

    @app.agent(
        activate_on=["agent:completed"], updates="code", when=lambda state, signal: signal.payload["agent"] == "first"
    )
    async def second(ctx: Context) -> Any:
        try:
            await (
                ctx.step(Step("add", effect="idempotent", **guards), fail) if is_step else ctx.call("add", {}, **guards)
            )
        except ToolFailed as error:
            return error.code

    result = await rig.run(app)
    assert result.state["code"] == ("CIRCUIT_OPEN" if "circuit_breaker" in guards else "RATE_LIMITED")
    before = ["begin_call", "record_call", "finish"]
    assert made == [*before, "begin_call" if is_step else "suspend", "record_call", "finish"]
    assert [w.state for w in await rig.runtime.reader.waits((await rig.turn_of("second")).turn_id)] == ["resolved"]


# ── Models ──


class Calls:
    """Harnesses by name, and the names of those that were called."""

    def __init__(self) -> None:
        self.made = list[str]()

    def harness(self, name: str, *replies: str | HarnessError) -> FunctionHarness:
        waiting = list(replies)

        def answer(_request: Any) -> str:
            self.made.append(name)
            reply = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if isinstance(reply, HarnessError):
                raise reply
            return reply

        return FunctionHarness(answer, model=name)


DOWN = HarnessError("overloaded", code="NETWORK_ERROR", recoverable=True)


@pytest.mark.proves("CB-07", "G-27")
@pytest.mark.parametrize("budget", [None, {"model_calls": 9}])
async def test_open_breaker_of_a_model_passes_its_calls_to_the_fallback_model(rig: Rig, budget: Any) -> None:
    calls = Calls()
    app = Heliograph("models", models={"fir*": {"circuit_breaker": ONCE}})
    models = [calls.harness("first", DOWN), calls.harness("second", "hello")]
    app.prompt_agent("one", "Write.", model=models, activate_on=START, updates="one", budget=budget)
    result = await rig.run(app)
    assert result.state["one"] == "hello"
    assert calls.made[:2] == ["first", "second"]
    assert await states(rig) == {("model_call", "first"): "closed"}
    again = await rig.run(app)
    assert calls.made == ["first", "second", "second"]
    assert [error["code"] for error in payloads(again.signals, "harness:error")] == ["CIRCUIT_OPEN"]
    assert await states(rig) == {("model_call", "first"): "open"}


@pytest.mark.proves("CB-06")
@pytest.mark.more
async def test_open_breaker_of_the_only_model_fails_the_turn_unless_its_policy_lists_the_code(rig: Rig) -> None:
    calls, codes = Calls(), ("CIRCUIT_OPEN",)

    def app_of(name: str, breaker: Any, policy: RetryPolicy) -> Heliograph:
        app = Heliograph(name, models={name: {"circuit_breaker": breaker}})
        model = calls.harness(name, DOWN, "hello")
        app.prompt_agent("one", "Write.", model=model, activate_on=START, updates="out", retry=policy)
        return app

    plain = app_of("plain", ONCE, RetryPolicy(5, initial_delay_seconds=0.01, retryable_errors="recoverable"))
    assert one((await rig.run(plain)).signals, "agent:failed")["error"]["code"] == "CIRCUIT_OPEN"
    assert calls.made == ["plain"]
    listed = app_of("listed", {**ONCE, "timeout_seconds": 0.2},
                    RetryPolicy(5, initial_delay_seconds=0.01, retryable_errors=codes))  # fmt: skip
    outcomes = [one((await rig.run(listed)).signals, "workflow:end")["outcome"] for _ in range(2)]
    assert (outcomes, calls.made) == (["failed", "success"], ["plain", "listed", "listed"])


# ── Fallbacks ──


@pytest.mark.proves("CB-06")
async def test_fallback_replaces_rejected_steps_calls_and_delegations_and_is_called_once(rig: Rig) -> None:
    app = Heliograph("falling", control_signals={"tool_call": {"circuit_breaker": ONCE}})
    ran = list[str]()

    def fail() -> str:
        raise RecoverableError("down")

    async def cached(error: Any) -> str:
        ran.append(error.code)
        return f"cached {error.error['circuit']['target']}"

    @app.agent(activate_on=START, updates="out")
    async def work(ctx: Context) -> Any:
        found = list[Any]()
        for _ in range(2):
            try:
                found.append(await ctx.step(Step("charge", circuit_breaker=ONCE, fallback=cached), fail))
            except ToolFailed as error:
                found.append(error.code)
            try:
                found.append(await ctx.delegate("hand", timeout=0.05, fallback=cached))
            except DelegationFailed as error:
                found.append(error.code)
        fails = ctx.calls([Call("search", {}, timeout=0.05, effect="pure")])
        found += [result.status for result in await fails]
        calls = [Call("search", {}, fallback=cached), Call("other", {}, timeout=None)]
        found += [result.output for result in await ctx.calls(calls, fail_fast=True)]
        async for result in ctx.as_completed([Call("search", {}, fallback=lambda error: 1 / 0)]):
            found.append((result.status, (result.error or {})["code"]))
        return found

    @app.agent(on_request=True, circuit_breaker=ONCE)
    async def hand(ctx: Context) -> None:
        await ctx.call("nothing", {}, timeout=None)

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("other")
        await command.report(result="found")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"]["out"] == [
        "UNKNOWN", "DELEGATION_TIMEOUT", "cached charge", "cached hand", "timeout", "cached search", "found",
        ["failed", "TOOL_ERROR"],
    ]  # fmt: skip
    assert ran == ["CIRCUIT_OPEN"] * 3


def test_fallback_must_be_a_function() -> None:
    with pytest.raises(InvalidInput) as caught:
        with_fallback(CallRequest("c1", "s1", "charge", "inline"), "cached")  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.path) == ("wrong_type", "/fallback")
