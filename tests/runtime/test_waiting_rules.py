"""Rules for functions that wait, and the errors that explain them."""

import asyncio
from typing import Any

import pytest

from heliograph import Call, CallResult, Context, Heliograph
from heliograph.errors import InvalidInput, KernelRejected
from heliograph.ledger.client import Ledger
from heliograph.records import WriteResult
from tests.runtime.kit import START, Rig, calling_app, names, one, seen


async def test_plain_function_that_waits_fails_with_the_reason(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START)
    def asker(ctx: Context) -> Any:
        return ctx.call("a")

    result = await rig.run(app)
    assert (
        "agent asker cannot call: a plain function cannot be interrupted"
        in one(result.signals, "agent:failed")["error"]["message"]
    )


async def test_plain_function_that_wraps_an_async_one_may_wait(rig: Rig) -> None:
    app = Heliograph("wrapped")

    async def real(ctx: Context) -> Any:
        return await ctx.call("a")

    @app.agent(activate_on=START, updates="seen")
    def asker(ctx: Context) -> Any:
        return real(ctx)

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        await command.report(result=5)
        assert await seen(rig, run_id) == 5


async def test_function_that_swallows_its_suspension_fails_with_the_reason(rig: Rig) -> None:
    app = Heliograph("swallows")

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> Any:
        try:
            return await ctx.call("a")
        except BaseException:
            return "went on"

    result = await rig.run(app)
    message = one(result.signals, "agent:failed")["error"]["message"]
    assert "it caught the exception that suspends its turn for call c1" in message
    assert "a bare except: does" in message


async def test_gather_that_keeps_exceptions_fails_with_the_reason(rig: Rig) -> None:
    app = Heliograph("keeps")

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> Any:
        return len(await asyncio.gather(ctx.call("a"), ctx.call("b"), return_exceptions=True))

    result = await rig.run(app)
    assert "gather(return_exceptions=True)" in one(result.signals, "agent:failed")["error"]["message"]


async def test_nondeterministic_replay_fails_its_turn(rig: Rig) -> None:
    runs: list[int] = []
    app = Heliograph("fickle")

    @app.agent(activate_on=START)
    async def asker(ctx: Context) -> Any:
        runs.append(1)
        try:
            return await ctx.call("a" if len(runs) == 1 else "b")
        except Exception:
            return "handled"

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        await command.report(result=1)
        failed = one(await rig.ended(run_id), "agent:failed")
    assert failed["error"]["code"] == "NOT_DETERMINISTIC"
    assert "call c1 was tool a when it was recorded and is now tool b" in failed["error"]["message"]


MALFORMED: list[tuple[Any, str]] = [
    (lambda ctx: ctx.call("a b"), "invalid_id"),
    (lambda ctx: ctx.call("a", ["x"]), "wrong_type"),
    (lambda ctx: ctx.call("a", timeout=0), "out_of_range"),
    (lambda ctx: ctx.call("a", call_id="x/y"), "invalid_id"),
    (lambda ctx: ctx.call("a", after="later"), "invalid_enum"),
    (lambda ctx: ctx.call("a", effect="twice"), "invalid_enum"),
    (lambda ctx: ctx.call("a", {"n": float("inf")}), "json_non_finite"),
    (lambda ctx: ctx.calls([Call("a", call_id="x"), Call("b", call_id="x")]), "duplicate_call_id"),
    (lambda ctx: ctx.calls(["a"]), "wrong_type"),
    (lambda ctx: ctx.pause(0), "out_of_range"),
    (lambda ctx: ctx.pause(999_999), "out_of_range"),
    (lambda ctx: ctx.step("a", 5), "wrong_type"),
    (lambda ctx: ctx.delegate("nobody"), "unknown_agent"),
]


@pytest.mark.parametrize(("call", "code"), MALFORMED, ids=[f"{n}-{code}" for n, (_, code) in enumerate(MALFORMED)])
async def test_invalid_call_is_rejected_in_the_agent_before_any_effect(rig: Rig, call: Any, code: str) -> None:
    app = Heliograph("wrong")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        try:
            await call(ctx)
        except InvalidInput as error:
            return error.code

    result = await rig.run(app)
    assert result.state == {"seen": code}


async def test_turn_with_more_calls_than_its_project_allows_fails_with_the_limit(rig: Rig) -> None:
    app = calling_app(*[Call("a") for _ in range(1001)])
    result = await rig.run(app)
    failed = one(result.signals, "agent:failed")["error"]
    assert failed["code"] == "RESOURCE_EXHAUSTED"
    assert "at most 1000 are allowed" in failed["message"]


@pytest.mark.proves("K23", "S20")
async def test_rejected_suspension_fails_the_turn_and_emits_its_signals(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def rejects(_self: Ledger, _item: object) -> WriteResult:
        raise KernelRejected("heliograph.suspend rejected the call: column x (22023)")

    monkeypatch.setattr(Ledger, "suspend", rejects)
    result = await rig.run(calling_app(Call("a")))
    assert [names(result.signals).count(name) for name in ("ready", "plan_ready", "tool:call")] == [1, 1, 0]
    error = one(result.signals, "agent:failed")["error"]
    assert error["message"] == "the store rejected a write of this turn; the worker's log has the reason"


async def test_replaying_function_can_see_that_it_replays_and_emits_its_progress_once(rig: Rig) -> None:
    replaying: list[bool] = []
    app = Heliograph("again")

    @app.agent(activate_on=START, emits=["x:y"])
    async def asker(ctx: Context) -> None:
        replaying.append(ctx.is_replaying)
        ctx.progress(0.1, "asking")
        ctx.emit("x:y", {"before": True})
        await ctx.call("a")
        ctx.progress(0.9, "asked")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        await command.report(result=1)
        signals = await rig.ended(run_id)
    assert replaying == [False, True]
    reported: list[Any] = [signal.payload for signal in signals if signal.name == "agent:progress"]
    assert [payload["message"] for payload in reported] == ["asking", "asked"]
    assert names(signals).count("x:y") == 1


async def test_result_is_unaffected_by_changes_of_an_earlier_copy(rig: Rig) -> None:
    app = Heliograph("mutates")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        found: Any = await ctx.call("a")
        found["list"].append("mine")
        await ctx.call("b")
        return found

    run_id = await rig.start(app)
    async with rig.serving(app):
        for tool in ("a", "b"):
            (command,) = await rig.taken(tool)
            await command.report(result={"list": ["theirs"]})
        assert await seen(rig, run_id) == {"list": ["theirs", "mine"]}


def test_call_result_has_its_outcome() -> None:
    assert CallResult("c1", "success", 5) == CallResult("c1", "success", 5, None)
