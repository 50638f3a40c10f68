"""Each code of docs/reference/errors.md, provoked by the failure that it names."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from heliograph import Context, Defer, Step
from heliograph.codes import CODES
from heliograph.errors import HeliographError, RecoverableError, ToolFailed
from heliograph.phases import IterationNeeded, Lifecycle
from tests.reach.model_server import Provider
from tests.runtime.failures_of_calls import (
    PROVOCATIONS,
    done,
    error_of_function,
    failing,
    forever,
    provokes,
    raises,
)
from tests.runtime.kit import START, Rig, one

OTHER_TEST = "INTERNAL_ERROR"  # needs a database of its own


@provokes("INIT_FAILED")
async def provoke_init_failed(rig: Rig, _provider: Provider) -> Any:
    return await error_of_function(rig, done, credentials=["HELIOGRAPH_TEST_NO_SUCH_KEY"])


@provokes("PLAN_FAILED")
async def provoke_plan_failed(rig: Rig, _provider: Provider) -> Any:
    return await error_of_function(rig, done, plan=raises)


@provokes("ACTION_FAILED")
async def provoke_action_failed(rig: Rig, _provider: Provider) -> Any:
    return await error_of_function(rig, raises)


@provokes("REFLECTION_ERROR")
async def provoke_reflection_error(rig: Rig, _provider: Provider) -> Any:
    return await error_of_function(rig, done, reflect=raises)


@provokes("MAX_ITERATIONS")
async def provoke_max_iterations(rig: Rig, _provider: Provider) -> Any:
    async def reflect(_ctx: Context) -> Any:
        return IterationNeeded(reason="not yet")

    return await error_of_function(rig, done, reflect=reflect, lifecycle=Lifecycle(max_iterations=2))


@provokes("NOT_DETERMINISTIC")
async def provoke_not_deterministic(rig: Rig, _provider: Provider) -> Any:
    runs: list[int] = []

    async def worker(ctx: Context) -> None:
        runs.append(1)
        if len(runs) == 1:
            await ctx.pause(0.01)
        await ctx.step("other", lambda: 1)

    return await error_of_function(rig, worker)


@provokes("TIMEOUT")
async def provoke_timeout(rig: Rig, _provider: Provider) -> Any:
    total = await _timeout(rig, forever, ttl_seconds=0.1)
    turn = await _timeout(rig, forever, timeout_seconds=0.05)
    phase = await _timeout(rig, done, plan=forever, plan_timeout_seconds=0.05)
    assert [each["details"]["scope"] for each in (total, turn, phase)] == ["total", "turn", "phase"]
    return turn


async def _timeout(rig: Rig, function: Any, *, plan_timeout_seconds: float = 60, **options: Any) -> Any:
    if "plan" in options:
        options["lifecycle"] = Lifecycle(plan_timeout_seconds=plan_timeout_seconds)
    app = failing(function, **options)
    run_id = await rig.start(app)
    async with rig.serving(app, grace_seconds=0.0):
        return one(await rig.ended(run_id), "agent:failed")["error"]


@provokes("RESOURCE_EXHAUSTED")
async def provoke_resource_exhausted(rig: Rig, _provider: Provider) -> Any:
    async def worker(_ctx: Context) -> None:
        raise Defer("still busy", 0, at_most=0)

    return one((await rig.run(failing(worker))).signals, "agent:failed")["error"]


@provokes("BUDGET_EXCEEDED")
async def provoke_budget_exceeded(rig: Rig, _provider: Provider) -> Any:
    async def worker(ctx: Context) -> None:
        for _ in range(2):
            await ctx.step("print", lambda: 1)

    return await error_of_function(rig, worker, budget={"tool_calls": 1})


@provokes("CIRCUIT_OPEN")
async def provoke_circuit_open(rig: Rig, _provider: Provider) -> Any:
    def fail() -> None:
        raise RecoverableError("down")

    async def worker(ctx: Context) -> None:
        with suppress(ToolFailed):
            await ctx.step(Step("charge", circuit_breaker={"failure_threshold": 1}), fail)
        await ctx.step(Step("charge", circuit_breaker={"failure_threshold": 1}), fail)

    return await error_of_function(rig, worker)


@provokes("UNDECODABLE")
async def provoke_undecodable(rig: Rig, _provider: Provider) -> Any:
    box = await rig.client.boxes.put([{"kind": "note", "content": "x"}])
    await rig.fetch("update heliograph.cards set content = '1e5000' where project_id = $1 and box_id = $2",
                    rig.runtime.settings.project, box)  # fmt: skip

    async def worker(_ctx: Context) -> None:
        return None

    app = failing(worker)
    app.agent(name="starter", activate_on=START)(forever)
    run_id = await rig.start(app)
    turn_id = await rig.client.enqueue(run_id, "worker", context_box_id=box)
    rig.ends_with_open_work = True
    async with rig.serving(app, grace_seconds=0.0):
        while (await rig.runtime.reader.turn(turn_id)).status != "done":  # noqa: ASYNC110  the other turn keeps the run open
            await asyncio.sleep(0.01)
    [end] = [card for card in await rig.runtime.reader.cards(turn_id) if card.kind == "task.deliverable"]
    assert isinstance(end.content, dict)
    return end.content["error"]


@provokes("CANCELED")
async def provoke_canceled(rig: Rig, _provider: Provider) -> Any:
    app = failing(forever)
    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.client.stop_turn((await rig.turn_of("worker", "running")).turn_id)
        return one(await rig.ended(run_id), "agent:failed")["error"]


@provokes("UNKNOWN")
async def provoke_unknown(rig: Rig, _provider: Provider) -> Any:
    async def worker(_ctx: Context) -> None:
        raise HeliographError("it is odd", details={"shelf": 3})

    error = await error_of_function(rig, worker)
    assert error["details"] == {"shelf": 3}
    return error


@pytest.mark.proves(
    "ERR-01", "ERR-02", "ERR-03", "ERR-08", "ERR-09", "ERR-10", "ERR-11", "ERR-12", "ERR-14", "G-03", "G-04", "CTL-50"
)
@pytest.mark.parametrize("code", [code.code for code in CODES if code.code != OTHER_TEST])
async def test_failure_of_each_row_ends_with_its_code(rig: Rig, provider: Provider, code: str) -> None:
    error = await PROVOCATIONS[code](rig, provider)
    [row] = [each for each in CODES if each.code == code]
    assert error["code"] == code
    if code not in OWN_VALUE:
        assert error["recoverable"] is row.recoverable


# Codes whose errors have their own value of `recoverable`.
OWN_VALUE = ("MEMORY_ERROR", "TOOL_ERROR")


async def test_turn_that_the_database_cannot_claim_ends_with_an_internal_error(lone_rig: Rig) -> None:
    app = failing(done)
    connection = await asyncpg.connect(lone_rig.url)
    try:
        await connection.execute(
            "create function public.reject() returns trigger language plpgsql as $$ begin"
            " if new.status = 'running' then raise exception using errcode = '23514', message = 'a broken row'; end if;"
            " return new; end $$;"
            "create trigger reject before update on heliograph.agent_state_head for each row execute function public.reject()"
        )
        run_id = await lone_rig.start(app)
        async with lone_rig.serving(app):
            error = one(await lone_rig.ended(run_id), "agent:failed")["error"]
        await connection.execute("drop function public.reject cascade")
    finally:
        await connection.close()
    assert (error["code"], error["recoverable"]) == (OTHER_TEST, False)
