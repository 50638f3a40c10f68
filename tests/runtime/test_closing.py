"""A closing worker keeps no turn and no lock that another worker would have to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import pytest

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.ledger.pool import Database
from heliograph.ledger.transactions import Transactions
from heliograph.runtime import open_runtime
from heliograph.worker.watchdog import Watchdog
from heliograph.world.seam import bell_keys
from tests.runtime.frozen import proxied
from tests.runtime.kit import START, Rig, until


@asynccontextmanager
async def locked_runs(rig: Rig) -> AsyncIterator[None]:
    """Lock the runs of the project, so that every transaction that needs one waits."""
    connection = await asyncpg.connect(rig.url)
    try:
        async with connection.transaction():
            project = rig.runtime.settings.project
            await connection.fetch("select 1 from heliograph.runs where project_id = $1 for update", project)
            yield
    finally:
        await connection.close()


@pytest.mark.proves("L0-38")
async def test_sweep_interrupted_by_the_close_of_its_worker_is_repeated(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, is_closing = Heliograph("family"), False

    @app.agent(activate_on=START)
    async def parent(ctx: Context) -> None:
        await ctx.delegate("child")
        await ctx.pause(300)

    @app.agent(on_request=True)
    async def child(_ctx: Context) -> None: ...

    async def is_waiting() -> bool:
        """Whether a sweep has found work, and waits for the lock of the run while it holds others."""
        waits = "select query from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        return any("sweep_reports" in row["query"] for row in await rig.fetch(waits))

    rig.ends_with_open_work = True
    async with rig.serving(app, sweep_seconds=3600.0) as worker:
        sweep = worker.projects[0].ledger.sweep

        async def cut_off(name: str, *more: Any) -> Any:
            if name != "reports" or is_closing:
                return await sweep(name, *more)
            sweeping: asyncio.Task[Any] | None = None
            try:
                async with locked_runs(rig):
                    sweeping = asyncio.create_task(sweep(name, *more))
                    try:
                        return await asyncio.shield(sweeping)
                    except asyncio.CancelledError:
                        sweeping.cancel()
                        raise
            finally:  # after the end of the lock: the server may miss the request to cancel, and would wait for it
                if sweeping is not None:
                    await asyncio.wait({sweeping})

        monkeypatch.setattr(worker.projects[0].ledger, "sweep", cut_off)
        await rig.start(app)
        await until(is_waiting)
        is_closing = True
    assert await rig.is_published()


@pytest.mark.proves("L0-111")
async def test_turns_claimed_during_a_release_are_released_too(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app, claiming, released = Heliograph("hangs"), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START)
    async def hangs(_ctx: Context) -> None:
        await asyncio.Event().wait()

    rig.ends_with_open_work = True
    async with rig.serving(app, grace_seconds=0.01, lease_seconds=3600) as worker:
        ledger = worker.projects[0].ledger
        claim, release = ledger.claim, ledger.release

        async def claim_late(*args: Any) -> Any:
            """Reaches the database after the release, if the release does not wait for it."""
            claiming.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await released.wait()
            return await claim(*args)

        async def release_first(*args: Any) -> Any:
            answer = await release(*args)
            released.set()
            return answer

        run_id = await rig.start(app)
        await rig.turn_of("hangs", "running")
        monkeypatch.setattr(ledger, "claim", claim_late)
        monkeypatch.setattr(ledger, "release", release_first)
        rig.runtime.world.ring(bell_keys(rig.runtime.ledger.project, [f"work:{app.name}"]))
        await claiming.wait()
    assert released.is_set()
    [turn] = await rig.runtime.reader.turns(run_id=run_id)
    assert turn.status == "dispatched"


@pytest.mark.proves("K14", "L0-111")
async def test_renewal_in_flight_does_not_extend_the_lease_of_an_abandoned_turn(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, renewing, has_closed, is_over = Heliograph("hangs"), asyncio.Event(), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START, effect="once")
    async def hangs(_ctx: Context) -> None:
        """Takes its time to clean up, so that its worker is at work still."""
        try:
            await asyncio.Event().wait()
        finally:
            await is_over.wait()

    rig.ends_with_open_work = True
    async with rig.serving(app, grace_seconds=0.01, lease_seconds=3600) as worker:
        renew = worker.projects[0].ledger.renew

        async def renew_late(leases: Any, seconds: float) -> Any:
            """Reaches the database after the worker has released all turns, if the worker does not wait for it."""
            is_last = seconds < 3600
            if not is_last:
                renewing.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await has_closed.wait()
            answer = await renew(leases, seconds)
            if is_last:
                has_closed.set()
            return answer

        run_id = await rig.start(app)
        await rig.turn_of("hangs", "running")
        monkeypatch.setattr(worker.projects[0].ledger, "renew", renew_late)
        rig.runtime.world.ring(bell_keys(rig.runtime.ledger.project, [f"stop:{worker.name}"]))
        await renewing.wait()
    is_over.set()
    assert has_closed.is_set()
    rows = await rig.fetch("select lease_until < now() + interval '1 s' as ends from heliograph.agent_state_head where run_id = $1", run_id)  # fmt: skip
    assert [row["ends"] for row in rows] == [True]


@pytest.mark.parametrize("ticks", range(8))
async def test_call_during_the_close_of_its_runtime_is_answered(shared_url: str, ticks: int) -> None:
    """Whenever it is made: the task that is to send it may be cancelled before it has begun."""
    app = Heliograph("closing")
    app.agent(name="a", activate_on=START)(lambda _ctx: None)

    async def start() -> bool:
        for _ in range(ticks):
            await asyncio.sleep(0)
        try:
            return (await runtime.start(app.workflow))[1]
        except StoreUnavailable as error:
            return "closed" in error.message

    async with open_runtime(Settings(database_url=shared_url, project=f"closing-{ticks}")) as runtime:
        starting = asyncio.create_task(start())
    async with asyncio.timeout(60):
        assert await starting


@pytest.mark.proves("L0-111")
async def test_project_that_rejects_a_release_does_not_block_releases_of_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, other = Heliograph("hangs"), f"{rig.runtime.settings.project}-other"

    @app.agent(activate_on=START)
    async def hangs(_ctx: Context) -> None:
        await asyncio.Event().wait()

    async def reject(_items: Any) -> Any:
        raise KernelRejected("this project is gone")

    rig.ends_with_open_work = True
    projects = [other, rig.runtime.settings.project]
    tasks = asyncio.all_tasks()
    async with (
        open_runtime(Settings(database_url=rig.url, project=other)) as refusing,
        rig.serving(app, grace_seconds=0.01, lease_seconds=3600, projects=projects) as worker,
    ):
        await refusing.start(app.workflow)
        run_id = await rig.start(app)
        await until(lambda: len(worker._running) == 2)
        monkeypatch.setattr(worker.projects[0].ledger, "release", reject)
    [turn] = await rig.runtime.reader.turns(run_id=run_id)
    assert turn.status == "dispatched"
    await until(lambda: not any(worker.name in task.get_name() for task in asyncio.all_tasks() - tasks))


async def test_database_whose_connections_no_longer_answer_is_cut_off(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_self: object) -> None:
        raise TimeoutError

    database = await Database.open(database_url, size=1)
    monkeypatch.setattr("asyncpg.pool.Pool.close", never)
    await database.close()
    with pytest.raises(StoreUnavailable):
        await database.fetch("select 1")


async def test_run_returns_although_its_worker_cannot_publish_the_outbox(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    app = Heliograph("short")
    app.agent(name="only", activate_on=START)(lambda _ctx: None)
    with monkeypatch.context() as patched:
        patched.setattr("heliograph.runtime._SETTLE_SECONDS", 0.2)
        patched.setattr(Watchdog, "settle", hangs)
        result = await rig.run(app)
    assert result.outcome == "success"
    assert "the worker left its outbox to others" in caplog.text
    await rig.runtime.worker(app.workflow).watchdog.settle()


async def test_close_of_transactions_does_not_wait_for_a_frozen_server(lone_rig: Rig) -> None:
    async with proxied(lone_rig.url) as (proxy, url):
        database = await Database.open(url)
        transactions, begun = Transactions(database), asyncio.Event()

        async def work() -> None:
            async with transactions.open() as transaction:
                begun.set()
                await transaction.connection.fetchval("select pg_sleep(0.2)")
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await begun.wait()
        proxy.hold()
        async with asyncio.timeout(5):
            await transactions.close(0.1)
            await database.close(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def test_connections_of_transactions_and_all_others_share_the_time_for_their_close(
    shared_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_pool: object) -> None:
        await asyncio.Event().wait()

    database = await Database.open(shared_url, size=1)
    transactions, loop = Transactions(database), asyncio.get_running_loop()
    async with transactions.open():
        pass
    monkeypatch.setattr("asyncpg.pool.Pool.close", never)
    await transactions.close(0.3)
    began = loop.time()
    await database.close(0.3)
    assert loop.time() - began < 0.15
