"""Halts of turns whose delegated turns have hooks: a graceful one runs the terminate hooks of the children within their grace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.phases import PhaseContext
from tests.runtime.kit import START, Rig, names, until

Hook = Callable[[PhaseContext], Awaitable[None]]


def family(ended: list[str], *, terminate: Hook | None = None) -> Heliograph:
    """A parent that waits for a child, which waits for a grandchild, which waits for a tool. ended: whose terminate hooks ran."""
    app = Heliograph("family")

    async def note(ctx: PhaseContext) -> None:
        ended.append(f"{ctx.agent} {ctx.outcome}")
        if terminate is not None:
            await terminate(ctx)

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> None:
        await ctx.delegate("child", "work")

    @app.agent(on_request=True, terminate=note)
    async def child(ctx: PhaseContext) -> None:
        await ctx.delegate("grandchild", "work")

    @app.agent(on_request=True, terminate=note)
    async def grandchild(ctx: PhaseContext) -> None:
        await ctx.call("ask")

    return app


@pytest.mark.proves("CTL-35", "CTL-39", "LC-65")
@pytest.mark.parametrize("now", [False, True], ids=["graceful", "forced"])
async def test_terminate_hooks_of_all_descendants_run_after_a_graceful_halt_and_not_after_a_forced_one(
    rig: Rig, now: bool
) -> None:
    ended = list[str]()
    app = family(ended)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("grandchild", "suspended")
        parent = await rig.turn_of("parent", "suspended")
        await rig.client.stop_turn(parent.turn_id, now=now)
        signals = await rig.ended(run_id)
    assert ended == ([] if now else ["child canceled", "grandchild canceled"])
    halts: list[Any] = [s.payload for s in signals if s.name == "halt"]
    assert [halt["graceful"] for halt in halts] == [not now] * 3
    assert names(signals).count("terminated") == (1 if now else 3) - 1
    for agent in ("parent", "child", "grandchild"):
        assert (await rig.turn_of(agent)).outcome == "canceled"


@pytest.mark.proves("CTL-35", "G-08")
async def test_child_that_does_not_end_within_the_grace_of_its_parent_is_forced(rig: Rig) -> None:
    ended, free = list[str](), asyncio.Event()

    async def hang(_ctx: PhaseContext) -> None:
        while not free.is_set():
            with suppress(asyncio.CancelledError):
                await free.wait()

    app = family(ended, terminate=hang)
    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        await rig.turn_of("grandchild", "suspended")
        parent = await rig.turn_of("parent", "suspended")
        await rig.client.stop_turn(parent.turn_id, grace_seconds=0.3)
        async with asyncio.timeout(60):
            await rig.ended(run_id)
        free.set()
        await until(lambda: not worker._running)
    assert ended == ["child canceled", "grandchild canceled"]
    for agent in ("child", "grandchild"):
        assert (await rig.turn_of(agent)).outcome == "canceled"
