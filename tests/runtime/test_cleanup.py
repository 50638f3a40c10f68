"""Cleanup functions: run when the turn's own worker ends it, and never after a forced halt."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.execution import cleanup
from heliograph.models import ScriptedModel
from heliograph.worker.claim_loop import Worker
from tests.runtime.kit import START, Rig, names, one, until


class Work:
    """An agent that registers two cleanup functions and hangs. `did`: what ran, in order."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.did: list[str] = []

    async def __call__(self, ctx: Context) -> str:
        ctx.on_cleanup(self.did.append, "first")
        ctx.on_cleanup(self.second, ctx)
        self.begun.set()
        try:
            await self.may_end.wait()
        finally:
            self.did.append("finally")
            self.did.append(await tried_step(ctx, self.did))
        return "done"

    async def second(self, _ctx: Context) -> None:
        self.did.append("second")


async def tried_step(ctx: Context, did: list[str]) -> str:
    """The outcome of a step in a `finally`."""
    try:
        await ctx.step("pay", did.append, "paid")
    except BaseException as error:
        return type(error).__name__
    return "stepped"


def working(work: Any, **options: Any) -> Heliograph:
    app = Heliograph("works")

    @app.agent(activate_on=START, updates="out", **options)
    async def worker(ctx: Context) -> Any:
        return await work(ctx)

    return app


@asynccontextmanager
async def hanging(rig: Rig, work: Work) -> AsyncIterator[tuple[str, Worker]]:
    """A run whose turn hangs in `work`, and its worker."""
    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600) as worker:
        await work.begun.wait()
        yield run_id, worker


@pytest.mark.proves("CTL-39")
async def test_graceful_halt_runs_the_cleanup_functions_last_first_and_then_delivers(rig: Rig) -> None:
    work = Work()
    async with hanging(rig, work) as (run_id, _):
        await rig.client.stop_turn((await rig.turn_of("worker")).turn_id, reason="no longer needed")
        signals = await rig.ended(run_id)
    assert work.did == ["finally", "CancelledError", "second", "first"]
    assert one(signals, "halt") == {"reason": "no longer needed", "graceful": True}
    assert one(signals, "terminated") == {"status": "canceled", "outputs": []}
    assert (await rig.turn_of("worker")).outcome == "canceled"


@pytest.mark.proves("CTL-39", "G-09")
async def test_forced_halt_runs_no_cleanup_function_and_the_kernel_delivers(rig: Rig) -> None:
    work = Work()
    async with hanging(rig, work) as (run_id, worker):
        turn = await rig.turn_of("worker")
        await rig.client.stop_turn(turn.turn_id, now=True, reason="policy_violation")
        signals = await rig.ended(run_id)
        await until(lambda: not worker._running)
        assert await rig.runtime.reader.all_signals(run_id) == signals
    assert work.did == ["finally", "TurnLost"]  # the coroutine's own: it is cancelled, and can record nothing
    assert one(signals, "halt") == {"reason": "policy_violation", "graceful": False}
    assert "terminated" not in names(signals)
    [card] = await rig.runtime.reader.cards(turn.turn_id)
    assert (card.kind, card.content["error"]["code"]) == ("task.deliverable", "CANCELED")
    assert (await rig.turn_of("worker")).outcome == "canceled"


@pytest.mark.proves("CTL-39", "G-09")
async def test_forced_halt_that_the_worker_has_not_received_runs_no_cleanup_function(rig: Rig) -> None:
    work = Work()
    async with hanging(rig, work) as (run_id, worker):
        item = {"turn_id": (await rig.turn_of("worker")).turn_id, "mode": "force", "reason": "policy_violation"}
        await rig.fetch("select heliograph.stop($1, $2::jsonb, $3)", rig.runtime.settings.project, json.dumps([item]),
                        datetime.now(UTC))  # fmt: skip
        work.may_end.set()
        await until(lambda: not worker._running)
        await rig.ended(run_id)
    assert work.did == ["finally", "TurnLost"]


@pytest.mark.proves("CTL-39")
async def test_cleanup_that_outlives_the_grace_is_cancelled_and_the_rest_does_not_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "CLEANUP_SECONDS", 3600)
    begun, cleaning, did = asyncio.Event(), asyncio.Event(), list[str]()

    async def work(ctx: Context) -> None:
        async def hangs() -> None:
            did.append("begun")
            cleaning.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                did.append("cancelled")
                raise

        ctx.on_cleanup(did.append, "never")
        ctx.on_cleanup(hangs)
        begun.set()
        await asyncio.Event().wait()

    app = working(work)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=3600) as worker:
        await begun.wait()
        await rig.client.stop_turn((await rig.turn_of("worker")).turn_id, grace_seconds=3600)
        await cleaning.wait()  # under load it may begin late: the grace ends only after that
        await rig.fetch("update heliograph.agent_state_head set force_at = stop_requested_at where project_id = $1",
                        rig.runtime.settings.project)  # fmt: skip
        await rig.ended(run_id)
        await until(lambda: not worker._running)
    assert did == ["begun", "cancelled"]
    assert (await rig.turn_of("worker")).outcome == "canceled"


@pytest.mark.parametrize(("end", "outcome"), [("well", "success"), ("badly", "failed"), ("late", "timeout")])
async def test_cleanup_runs_after_every_outcome_and_does_not_change_it(
    rig: Rig, end: str, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    did: list[str] = []

    def broken() -> None:
        raise OSError("the disk is gone")

    async def work(ctx: Context) -> str:
        ctx.on_cleanup(did.append, "cleaned")
        ctx.on_cleanup(broken)
        if end == "late":
            await asyncio.Event().wait()
        if end == "badly":
            raise ValueError("no ink")
        return "done"

    with caplog.at_level(logging.WARNING):
        await rig.run(working(work, timeout_seconds=0.1 if end == "late" else 60))
    assert did == ["cleaned"]
    assert (await rig.turn_of("worker")).outcome == outcome
    assert "a cleanup function of" in caplog.text


@pytest.mark.more
async def test_cleanup_runs_once_at_the_end_of_a_turn_that_waits_and_not_at_each_wait(rig: Rig) -> None:
    did: list[str] = []

    async def work(ctx: Context) -> Any:
        ctx.on_cleanup(did.append, "cleaned")
        await ctx.pause(0.01)
        await ctx.pause(0.01)
        assert did == []
        return "done"

    await rig.run(working(work))
    assert did == ["cleaned"]


async def test_cleanup_of_a_prompt_agent_is_registered_by_its_prompt(rig: Rig) -> None:
    did: list[str] = []

    def prompt(ctx: Context) -> str:
        ctx.on_cleanup(did.append, "cleaned")
        return "Work."

    app = Heliograph("asks")
    app.prompt_agent("worker", prompt, model=ScriptedModel(["done"]), activate_on=START)
    await rig.run(app)
    assert did == ["cleaned"]


async def test_cleanup_that_takes_too_long_is_cancelled_and_the_turn_is_delivered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "CLEANUP_SECONDS", 0.05)

    async def work(ctx: Context) -> str:
        ctx.on_cleanup(asyncio.Event().wait)
        return "done"

    assert (await rig.run(working(work))).state == {"out": "done"}


async def test_cleanup_that_is_no_function_is_rejected(rig: Rig) -> None:
    async def work(ctx: Context) -> None:
        ctx.on_cleanup("close")  # type: ignore[arg-type]

    result = await rig.run(working(work))
    assert "the first argument of on_cleanup must be a function, not close" in str(one(result.signals, "agent:failed"))
