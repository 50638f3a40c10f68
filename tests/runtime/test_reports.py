"""Reports that are repeated, early, late, too large, or forged: the first valid one counts."""

import asyncio
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph
from heliograph.errors import InvalidInput, NotFound, Rejected
from tests.runtime.kit import START, Rig, calling_app, is_resolved, seen, until


@pytest.mark.proves("L0-112", "K4", "G-73", "G-64")
async def test_first_report_counts_and_every_other_one_is_only_acknowledged(rig: Rig) -> None:
    app = calling_app(Call("a", timeout=0.05), Call("b"), Call("c"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        a, b, c = await rig.taken("a", "b", "c", count=3)
        await until(lambda: is_resolved(rig, a.turn_id, a.call_id))
        assert await a.report(result=1) == "late"
        assert await b.report(result=1) == "applied"
        assert await b.report(result=1) == "duplicate"
        assert await b.report(error="no") == "duplicate"
        assert await c.report(result=2) == "applied"
        statuses = [row[:2] for row in await seen(rig, run_id)]
        assert statuses == [["c1", "timeout"], ["c2", "success"], ["c3", "success"]]
        assert await b.report(result=1) == "turn_done"


def calling_after(has_started: asyncio.Event, reported: asyncio.Event, **options: Any) -> Heliograph:
    """An application whose agent makes its call only after `reported` is set."""
    app = Heliograph("early")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> Any:
        has_started.set()
        await reported.wait()
        return await ctx.call("human", call_id="approval", **options)

    return app


@pytest.mark.proves("K16", "L0-60")
async def test_result_before_its_call_is_kept_and_the_turn_continues_without_suspending(rig: Rig) -> None:
    has_started, reported = asyncio.Event(), asyncio.Event()
    app = calling_after(has_started, reported, needs_token=False)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await has_started.wait()
        turn = await rig.turn_of("asker", "running")
        assert await rig.client.report(turn.turn_id, "approval", result="yes") == "early"
        assert await rig.client.report(turn.turn_id, "approval", result="no") == "duplicate"
        reported.set()
        assert await seen(rig, run_id) == "yes"
    assert len(await rig.runtime.reader.leases(turn.turn_id)) == 1  # one claim: it never gave the turn back


@pytest.mark.proves("S14", "K16")
async def test_forged_report_before_its_call_is_not_applied(rig: Rig) -> None:
    has_started, reported = asyncio.Event(), asyncio.Event()
    app = calling_after(has_started, reported)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await has_started.wait()
        turn = await rig.turn_of("asker", "running")
        assert await rig.client.report(turn.turn_id, "approval", result="yes", token="guessed") == "early"
        reported.set()
        (command,) = await rig.taken("human")
        assert await command.report(result="no") == "applied"
        assert await seen(rig, run_id) == "no"


@pytest.mark.proves("S14", "L0-61")
async def test_unauthorized_report_changes_nothing(rig: Rig) -> None:
    app = calling_app(Call("a"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        for token in (None, "", "wrong", command.token + "x" if command.token else "x"):
            with pytest.raises(Rejected, match="the token for call c1") as refused:
                await rig.client.report(command.turn_id, "c1", token=token, result=1)
            assert refused.value.code == "bad_signature"
        for turn_id, call_id, code in (("turn_none", "c1", "unknown_turn"), (command.turn_id, "c9", "unknown_call")):
            with pytest.raises(NotFound) as missing:
                await rig.client.report(turn_id, call_id, token=command.token, result=1)
            assert missing.value.code == code
        assert (await rig.turn_of("asker")).status == "suspended"
        await command.report(result=1)
        assert await seen(rig, run_id) == [["c1", "success", 1]]


@pytest.mark.proves("S14")
async def test_each_call_has_its_own_token_of_160_random_bits_that_is_valid_for_no_other(rig: Rig) -> None:
    app = calling_app(Call("a"), Call("b"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        a, b = await rig.taken("a", "b", count=2)
        drawn = [str(each.token).removeprefix("token_")[9:] for each in (a, b)]  # without the time
        assert [len(each) * 5 for each in drawn] == [160, 160]
        assert not set(zip(*drawn, strict=True)) <= {(c, c) for c in drawn[0]}
        with pytest.raises(Rejected, match="the token for call"):
            await rig.client.report(a.turn_id, a.call_id, token=b.token, result=1)
        await a.report(result=1)
        await b.report(result=2)
        assert [row[2] for row in await seen(rig, run_id)] == [1, 2]


@pytest.mark.proves("S11")
async def test_unstorable_result_is_rejected_with_the_next_step(rig: Rig) -> None:
    app = Heliograph("large")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> int:
        return len(str(await ctx.call("a")))

    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        for result, code in (
            (float("nan"), "json_non_finite"),
            ("a\0", "nul_character"),
            ("x" * 2_000_000, "payload_too_large"),
        ):
            with pytest.raises(InvalidInput) as refused:
                await command.report(result=result)
            assert refused.value.code == code
        with pytest.raises(InvalidInput, match="an error must be a text, or an object with a message"):
            await command.report(error={"code": "X"})
        with pytest.raises(InvalidInput, match="a result or an error, not both"):
            await command.report(result=1, error="no")
        large = "x" * 900_000  # beyond a card in line, below the limit of a report
        assert await command.report(result=large) == "applied"
        assert await seen(rig, run_id) == 900_000


async def test_unreported_command_is_redelivered(rig: Rig) -> None:
    app = calling_app(Call("a"))
    run_id = await rig.start(app)
    async with rig.serving(app):
        (hidden,) = await rig.taken("a")
        assert await rig.client.take_commands(["a"]) == []
        await rig.fetch("update heliograph.outbox set hidden_until = null where key = $1", f"cmd:{hidden.turn_id}:c1")
        (first,) = await rig.client.take_commands(["a"], visible_seconds=0.001)
        (again,) = await rig.taken("a")
        assert (again.call_id, again.delivery, again.token) == ("c1", 3, first.token)
        await again.report(result=1)
        await rig.ended(run_id)
        assert await rig.client.take_commands(["a"]) == []
    assert not await rig.fetch("select from heliograph.outbox where key = $1", f"cmd:{first.turn_id}:c1")


async def test_tool_receives_a_call_as_soon_as_it_is_made(rig: Rig) -> None:
    app = calling_app(Call("a"), Call("a"))
    results: list[str] = []

    async def tool() -> None:
        async for command in rig.client.commands(["a"]):
            results.append(await command.report(result=len(results)))
            if len(results) == 2:
                return

    working = asyncio.create_task(tool())
    async with rig.serving(app):
        run_id = await rig.start(app)
        assert await seen(rig, run_id) == [["c1", "success", 0], ["c2", "success", 1]]
    await working
    assert results == ["applied", "applied"]
