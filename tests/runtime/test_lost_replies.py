"""Replies lost after the commit: each call is repeated, and the second one has no effect."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Defer, Delegation, Heliograph
from heliograph.errors import StoreUnavailable
from heliograph.requests import WITH_CLAIM
from tests.runtime.kit import START, Rig, one, until


def lose_first_reply(rig: Rig, monkeypatch: pytest.MonkeyPatch, function: str) -> list[Any]:
    """Commit the first call of this kernel function, alone or with a claim, and lose its reply. Return the outcomes of all calls."""
    answers: list[Any] = []
    call = rig.runtime.world.call
    with_claim, key = WITH_CLAIM.get(function, ("", ""))

    async def loses(name: str, *args: object) -> Any:
        answer = await call(name, *args)
        if name in (function, with_claim):
            answers.append([row["outcome"] for row in (answer if name == function else answer[key])])
            if len(answers) == 1:
                raise StoreUnavailable("the reply was lost")
        return answer

    monkeypatch.setattr(rig.runtime.world, "call", loses)
    return answers


def whole() -> tuple[Heliograph, list[str]]:
    """An application that uses every kernel call of a turn, and the list of its effects."""
    app, happened = Heliograph("whole"), list[str]()

    def pay() -> str:
        happened.append("paid")
        return "paid"

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> Any:
        if not ctx.deferrals:
            raise Defer("once", 0.01)
        stepped = await ctx.step("pay", pay)
        called = await ctx.call("ask")
        await ctx.pause(0.01)
        (child,) = await ctx.delegates([Delegation("child", 5)])
        return [stepped, called, child.output]

    app.agent(name="child", on_request=True)(lambda ctx: ctx.task)
    return app, happened


@pytest.mark.proves("K13", "K3", "K4")
@pytest.mark.parametrize(
    ("function", "first", "again"),
    [
        ("suspend", "suspended", "stale"),
        ("begin_call", "fresh", "fresh"),
        ("record_call", "ok", "duplicate"),
        ("report", "applied", "duplicate"),
        ("defer", "deferred", "stale"),
        ("finish", "ok", "duplicate"),
    ],
)
async def test_lost_reply_does_not_change_the_result(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, function: str, first: str, again: str
) -> None:
    app, happened = whole()
    given = lose_first_reply(rig, monkeypatch, function)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3):  # a turn of a lost claim returns with its lease
        (command,) = await rig.taken("ask")
        await command.report(result="answered")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"seen": ["paid", "answered", 5]}
    assert happened == ["paid"]
    assert given[0] == [first]
    assert [again] in given[1:]  # not always at once: the committed work may continue before the repetition


@pytest.mark.parametrize("function", ["stop", "stop_runs"])
async def test_stop_with_a_lost_reply_takes_effect(rig: Rig, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    app = Heliograph("stops")

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> Any:
        return await ctx.call("ask")

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("ask")
        lose_first_reply(rig, monkeypatch, function)
        if function == "stop":
            assert (await rig.client.stop_turn(command.turn_id)).outcome == "already_done"
        else:
            assert (await rig.client.stop_run(run_id)).outcome in ("stopping", "already_done")
        assert one(await rig.ended(run_id), "agent:failed")["outcome"] == "canceled"


async def test_turn_whose_release_got_no_reply_continues_elsewhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    app = Heliograph("releases")

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> int:
        runs.append(1)
        if len(runs) == 1:
            await asyncio.Event().wait()
        return ctx.attempt

    given = lose_first_reply(rig, monkeypatch, "release")
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600, grace_seconds=0.01):
        await until(lambda: bool(runs))
    assert given == [["ok"], ["stale"]]
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": 1}


async def test_suspended_time_does_not_count_as_running_time(rig: Rig) -> None:
    app = Heliograph("waits")

    @app.agent(activate_on=START, updates="seen", timeout_seconds=0.2)
    async def worker(ctx: Context) -> str:
        await ctx.pause(0.3)
        return "rested"

    run_id = await rig.start(app)
    async with rig.serving(app):
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"seen": "rested"}


async def test_calls_of_many_turns_share_their_commits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, list[int]] = {}
    call = rig.runtime.world.call

    async def counted(name: str, *args: Any) -> Any:
        if name in ("suspend", "report", "begin_call", "record_call"):
            sizes.setdefault(name, []).append(len(args[1]))
        return await call(name, *args)

    monkeypatch.setattr(rig.runtime.world, "call", counted)
    app = Heliograph("many")
    for n in range(40):

        @app.agent(name=f"a{n}", activate_on=START)
        async def worker(ctx: Context) -> Any:
            await ctx.step("pay", _paid)
            return await ctx.call("ask")

    run_id = await rig.start(app)
    async with rig.serving(app, concurrency=40):
        commands = await rig.taken("ask", count=40)
        assert set(await asyncio.gather(*(command.report(result=1) for command in commands))) == {"applied"}
        await rig.ended(run_id)
    for function, batches in sizes.items():
        assert sum(batches) == 40, function
        assert len(batches) < 40, function


@pytest.mark.more
async def test_turns_run_while_the_next_ones_are_claimed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = 0
    at_claim: list[tuple[int, int]] = []  # the requested turns, and those that had started by the reply
    call = rig.runtime.world.call

    async def counted(name: str, *args: Any) -> Any:
        answer = await call(name, *args)
        if name == "claim" and answer:
            at_claim.append((args[3], begun))
        return answer

    monkeypatch.setattr(rig.runtime.world, "call", counted)
    app = Heliograph("many")
    for n in range(150):

        @app.agent(name=f"a{n}", activate_on=START)
        async def worker(_: Context) -> None:
            nonlocal begun
            begun += 1

    run_id = await rig.start(app)
    async with rig.serving(app, concurrency=150):
        await rig.ended(run_id)
    assert begun == 150
    assert max(requested for requested, _ in at_claim) == 64
    assert at_claim[1][1] > 0


async def _paid() -> str:
    return "paid"
