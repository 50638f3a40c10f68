"""A worker of several projects: each gets its share, and none of them sees another."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from heliograph import Context, Heliograph, ToolContext, tool
from heliograph.config import Settings
from heliograph.models import ModelRequest, ScriptedModel, ToolCall, ToolMessage
from heliograph.runtime import open_runtime
from tests.runtime.kit import START, Rig, one, until

_numbers = itertools.count(1)


@pytest_asyncio.fixture
async def rigs(shared_url: str) -> AsyncIterator[list[Rig]]:
    """Three projects of one database."""
    async with AsyncExitStack() as stack:
        made = []
        for _ in range(3):
            settings = Settings(database_url=shared_url, project=f"tenant-{id(stack)}-{next(_numbers)}")
            made.append(Rig(await stack.enter_async_context(open_runtime(settings)), shared_url))
        yield made
        for rig in made:
            await rig.check()


def project(rig: Rig) -> str:
    return rig.runtime.settings.project


class Crowd:
    """An application whose turns report their project, and run until the test releases them."""

    def __init__(self, turns: int) -> None:
        self.inside: dict[str, int] = {}
        self.done: list[str] = []
        self.may_end = asyncio.Event()
        self.app = Heliograph("crowd", reducers={"n": lambda old, new: (old or 0) + new})
        for n in range(turns):
            self.app.agent(name=f"a{n}", activate_on=START, updates="n")(self._work)

    async def _work(self, ctx: Context) -> int:
        project_name = str(ctx.document["project"])
        self.inside[project_name] = self.inside.get(project_name, 0) + 1
        await self.may_end.wait()
        self.inside[project_name] -= 1
        self.done.append(project_name)
        return 1


@pytest.mark.more
@pytest.mark.proves("G-75", "S12")
async def test_slots_are_shared_evenly_among_projects_with_work(rigs: list[Rig]) -> None:
    crowd = Crowd(20)
    a, b, c = rigs
    await a.start(crowd.app, {"project": "a"})
    async with a.serving(crowd.app, concurrency=12, projects=[project(rig) for rig in rigs]):
        await until(lambda: crowd.inside == {"a": 12})  # no other project has work, so one gets all slots
        crowd.may_end.set()
        await until(lambda: crowd.done.count("a") == 20)
        crowd.may_end.clear()
        for rig, name in ((a, "a"), (b, "b"), (c, "c")):
            await rig.start(crowd.app, {"project": name})
        await until(lambda: sum(crowd.inside.values()) == 12)
        crowd.may_end.set()  # as they leave, those that come in are taken from all of them in turn
        runs = [(await rig.runtime.reader.runs(1))[0].run_id for rig in rigs]
        for rig, run_id in zip(rigs, runs, strict=True):
            assert one(await rig.ended(run_id), "workflow:end")["state"]["n"] == 20


@pytest.mark.more
@pytest.mark.proves("G-75")
async def test_project_with_many_turns_does_not_delay_another(rigs: list[Rig]) -> None:
    order: list[str] = []
    app = Heliograph("queue")

    async def work(ctx: Context) -> None:
        order.append(str(ctx.document["project"]))
        await ctx.sleep(0.002)

    for n in range(60):
        app.agent(name=f"a{n}", activate_on=START)(work)
    few = Heliograph("queue")
    for n in range(3):
        few.agent(name=f"a{n}", activate_on=START)(work)
    many, little, _ = rigs
    first = await many.start(app, {"project": "many"})
    second = await little.start(few, {"project": "little"})
    async with many.serving(app, concurrency=2, projects=[project(many), project(little)]):
        await many.ended(first)
        await little.ended(second)
    places = [place for place, project_name in enumerate(order) if project_name == "little"]
    assert max(places) <= 8  # at their turn, and not behind the sixty


@pytest.mark.proves("S1", "K11", "L0-111")
async def test_worker_sweeps_every_project_that_it_serves(rigs: list[Rig]) -> None:
    app = Heliograph("swept")

    @app.agent(activate_on=START, updates="seen")
    async def a(ctx: Context) -> int:
        await ctx.pause(0.02)
        return ctx.attempt

    first, second, _ = rigs
    runs = [await rig.start(app) for rig in (first, second)]
    await second.claimed_by_the_dead(app)
    async with first.serving(app, projects=[project(first), project(second)]) as worker:
        states = [
            one(await rig.ended(run), "workflow:end")["state"] for rig, run in zip((first, second), runs, strict=True)
        ]
    assert states == [{"seen": 1}, {"seen": 2}]
    assert len(worker.watchdog.recovered) == 1


@pytest.mark.proves("S1")
async def test_equal_ids_in_two_projects_are_two_runs(rigs: list[Rig]) -> None:
    app = Heliograph("twins")
    app.agent(name="a", activate_on=START, updates="seen")(lambda ctx: ctx.document["who"])
    first, second, _ = rigs
    for rig, project_name in ((first, "one"), (second, "two")):
        await rig.start(app, {"who": project_name}, "run_same")
    async with first.serving(app, projects=[project(first), project(second)]):
        for rig, project_name in ((first, "one"), (second, "two")):
            assert one(await rig.ended("run_same"), "workflow:end")["state"] == {
                "who": project_name,
                "seen": project_name,
            }


async def test_worker_logs_each_turn_that_it_claims(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    app = Heliograph("told")

    @app.agent(activate_on=START)
    async def a(ctx: Context) -> None:
        await ctx.call("x")

    caplog.set_level(logging.INFO, "heliograph")
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("x")
        await command.report(result=1)
        await rig.ended(run_id)
    logged = [record.message for record in caplog.records if record.message.startswith("claimed")]
    assert logged == [
        f"claimed {command.turn_id}: agent a of run {run_id}, epoch 2",
        f"claimed {command.turn_id}: agent a of run {run_id}, epoch 3 (1 call, 1 answered)",
    ]


async def test_turn_that_a_sweep_cannot_move_is_logged_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed = {"failed": [{"turn_id": "turn_x", "code": "23505", "message": "a row is wrong"}], "targets": []}
    call = rig.runtime.world.call

    async def answers(function: str, *args: object) -> object:
        return failed if function == "sweep_waits" else await call(function, *args)

    monkeypatch.setattr(rig.runtime.world, "call", answers)
    app = Heliograph("told")
    app.agent(name="a", activate_on=START)(lambda _ctx: None)
    watchdog = rig.runtime.worker(app.workflow).watchdog
    for _ in range(3):
        await watchdog.sweep()
    logged = [record.message for record in caplog.records if "turn_x" in record.message]
    assert logged == ["sweep of waits failed on turn_x: a row is wrong"]


@pytest.mark.more
@pytest.mark.proves("G-75", "L0-111")
async def test_lock_in_one_project_does_not_cost_another_its_leases(rigs: list[Rig]) -> None:
    app, may_end = Heliograph("holds"), asyncio.Event()
    locked, free = rigs[:2]
    lease = "select lease_until from heliograph.agent_state_head where project_id = $1"

    @app.agent(activate_on=START, updates="attempt")
    async def a(ctx: Context) -> int:
        await may_end.wait()
        return ctx.attempt

    locked.ends_with_open_work = True
    options: dict[str, Any] = {
        "projects": [project(rig) for rig in (locked, free)],
        "lease_seconds": 2.0,
        "sweep_seconds": 3600.0,
    }
    async with free.serving(app, **options):
        await locked.start(app)
        run_id = await free.start(app)
        await locked.turn_of("a", "running")
        await free.turn_of("a", "running")
        [[until_at]] = await free.fetch(lease, project(free))
        holder = await asyncpg.connect(free.url)
        async with holder.transaction():
            await holder.execute(f"{lease} for update", project(locked))

            async def is_renewed() -> bool:
                query = f"{lease} and lease_until > $2::timestamptz + interval '4 s'"
                return bool(await free.fetch(query, project(free), until_at))

            await until(is_renewed)
        await holder.close()
        may_end.set()
        assert one(await free.ended(run_id), "workflow:end")["state"] == {"attempt": 1}


@pytest.mark.proves("G-75", "L0-111")
@pytest.mark.parametrize("hanging", ["leases", "reports"])
async def test_sweep_that_waits_in_one_project_delays_no_other(
    rigs: list[Rig], monkeypatch: pytest.MonkeyPatch, hanging: str
) -> None:
    app, is_over, is_waiting = Heliograph("waits"), asyncio.Event(), asyncio.Event()
    locked, free = rigs[:2]

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> Any:
        return await ctx.delegate("child")

    app.agent(name="child", on_request=True)(lambda _ctx: None)
    async with free.serving(app, projects=[project(locked), project(free)]) as worker:
        sweep = worker.projects[0].ledger.sweep

        async def sweep_late(name: str, *more: Any) -> Any:
            if name == hanging:
                is_waiting.set()
                await is_over.wait()
            return await sweep(name, *more)

        monkeypatch.setattr(worker.projects[0].ledger, "sweep", sweep_late)
        locked_id = await locked.start(app)
        await is_waiting.wait()
        try:
            run_id = await free.start(app)
            await free.claimed_by_the_dead(app)
            assert one(await free.ended(run_id), "workflow:end")["outcome"] == "success"
        finally:
            is_over.set()
        assert one(await locked.ended(locked_id), "workflow:end")["outcome"] == "success"


@pytest.mark.proves("S27")
async def test_equal_turn_ids_in_two_projects_give_different_idempotency_keys(rigs: list[Rig]) -> None:
    keys: list[str] = []

    def pay(ctx: ToolContext) -> str:
        """Pay."""
        keys.append(ctx.idempotency_key)
        return "paid"

    app = Heliograph("till")
    app.prompt_agent("clerk", "Pay.", model=ScriptedModel(paying_once), on_request=True, tools=[tool(pay)])

    @app.agent(on_request=True)
    def noted(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)

    @app.agent(activate_on=START)
    async def keeper(ctx: Context) -> None:
        await ctx.pause(3600)

    a, b, _ = rigs
    for rig in (a, b):
        await rig.start(app, run_id="run_same")
        for agent in ("noted", "clerk"):
            await rig.client.enqueue("run_same", agent, turn_id=f"turn_{agent}")
    async with a.serving(app, projects=[project(a), project(b)]):
        await until(lambda: len(keys) == 4)
        for rig in (a, b):
            await rig.client.stop_run("run_same", now=True)
            await rig.ended("run_same")
    turns = [f"{project(rig)}/till/{rest}" for rig in (a, b) for rest in ("turn_noted", "turn_clerk/m1-1")]
    assert sorted(keys) == sorted(turns)


def paying_once(request: ModelRequest) -> Any:
    return "done" if isinstance(request.messages[-1], ToolMessage) else [ToolCall("id-1", "pay", {})]
