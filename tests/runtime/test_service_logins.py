"""The product as services run it: logins that may execute the kernel's functions and read its views, and nothing else."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from heliograph import Call, Context, Heliograph
from heliograph.config import Settings
from heliograph.errors import NotFound, SetupError
from heliograph.runtime import Runtime, open_runtime
from tests.logins import login
from tests.runtime.kit import START, Rig, names, one, until

_projects = itertools.count(1)


def everything() -> Heliograph:
    """An application that calls a tool, delegates, steps, sleeps on nothing, and reacts."""
    app = Heliograph("everything")

    @app.agent(activate_on=START, emits=["draft:ready"], updates="draft")
    async def writer(ctx: Context) -> str:
        found: Any = await ctx.call("search", {"q": "ink"}, timeout=30)
        return f"on {found}"

    @app.agent(activate_on=["draft:ready"], updates="verdict")
    async def critic(ctx: Context) -> Any:
        (result,) = await ctx.calls([Call("judge", {"draft": ctx.document["draft"]})])
        return result.output

    return app


def project() -> str:
    return f"service-{os.getpid()}-{next(_projects)}"


@asynccontextmanager
async def as_login(
    url: str, named: str, *bound: str, services: tuple[str, ...] = ("worker", "api")
) -> AsyncIterator[Runtime]:
    """A runtime of a new login in project `named`."""
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(login(url, *bound, services=services))
        yield await stack.enter_async_context(open_runtime(Settings(database_url=own, project=named)))


@pytest.mark.proves("S2", "S1")
@pytest.mark.parametrize("is_bound", [False, True], ids=["free", "bound"])
async def test_whole_runs_need_only_the_worker_and_api_roles(shared_url: str, is_bound: bool) -> None:
    named = project()
    async with as_login(shared_url, named, *[named] * is_bound) as runtime:
        rig = Rig(runtime, shared_url)
        app = everything()
        run_id = await rig.start(app)
        async with rig.serving(app):
            for tool, result in (("search", "squid"), ("judge", "good")):
                (command,) = await rig.taken(tool)
                assert await command.report(result=result) == "applied"
            signals = await rig.ended(run_id)
            await until(rig.is_published)
        assert one(signals, "workflow:end")["state"] == {"draft": "on squid", "verdict": "good"}
        assert [turn.outcome for turn in await runtime.reader.turns(run_id=run_id)] == ["success", "success"]
        assert (await runtime.reader.run(run_id)).outcome == "success"

        stopped = await rig.start(app)
        async with rig.serving(app):
            turn = await rig.turn_of("writer", "suspended")
            await rig.client.stop_turn(turn.turn_id, now=True)
            assert "agent:failed" in names(await rig.ended(stopped))
        await rig.check()  # the doctor, too, is a function


@pytest.mark.proves("S2")
async def test_one_login_starts_and_another_executes(shared_url: str) -> None:
    named = project()
    app = everything()
    async with (
        as_login(shared_url, named, named, services=("api",)) as api_runtime,
        as_login(shared_url, named, named, services=("worker",)) as works,
    ):
        rig = Rig(api_runtime, shared_url)
        run_id = await rig.start(app)
        async with rig.serving(app, runtime=works):
            for tool in ("search", "judge"):
                (command,) = await rig.taken(tool)
                await command.report(result=tool)
            assert one(await rig.ended(run_id), "workflow:end")["state"]["verdict"] == "judge"
            await until(rig.is_published)
        with pytest.raises(SetupError, match="has no right to") as refused:
            await api_runtime.ledger.claim([{"target": "everything"}], "thief", 1, 30.0)
        assert refused.value.code == "no_right"
        with pytest.raises(SetupError, match="helio db grant"):
            await works.start(app.workflow)
        await rig.check()


@pytest.mark.proves("S1")
async def test_foreign_and_missing_projects_are_not_found(shared_url: str) -> None:
    mine, theirs = project(), project()
    async with as_login(shared_url, theirs) as runtime:
        await runtime.start(everything().workflow, run_id="run_of_theirs")
    refusals = []
    for named in (theirs, f"{theirs}-none"):
        async with as_login(shared_url, named, mine) as runtime:
            for request in (runtime.start(everything().workflow), runtime.reader.run("run_of_theirs")):
                with pytest.raises(NotFound) as refused:
                    await request
                refusals.append((refused.value.code, refused.value.message.replace(named, "NAMED")))
    assert refusals[:2] == refusals[2:]
    assert [code for code, _ in refusals[:2]] == ["not_found", "unknown_run"]
