"""A process that starts runs, or records results, and has free slots, claims the turns of that call in its commit (decision 0189)."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from bench.app import calling
from heliograph import Context, Heliograph
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.worker import claim_loop
from tests.runtime.kit import SOON_SECONDS, START, Rig, until
from tests.runtime.test_commits_of_works import counted, report_result
from tests.runtime.test_next_claims import Calls


@pytest.fixture(autouse=True)
def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of these tests claims without a reason."""
    monkeypatch.setattr(claim_loop, "_AGAIN_SECONDS", claim_loop.POLL_SECONDS)


def single(name: str = "single") -> Heliograph:
    app = Heliograph(name)
    app.agent(name="one", activate_on=START)(lambda ctx: None)
    return app


async def idle(calls: Calls) -> None:
    """Wait for the first claim of a worker."""
    await until(lambda: any(name == "claim" for name, _, _ in calls.made))


async def test_run_of_the_own_worker_makes_two_commits_and_rings_no_worker(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, calls = counted(rig), Calls(rig, monkeypatch)
    async with rig.serving(single()):
        await idle(calls)
        rung: list[Any] = []
        ring = rig.runtime.world.ring

        def noted(keys: list[Any], *more: Any) -> None:
            rung.extend(keys)
            ring(keys, *more)

        monkeypatch.setattr(rig.runtime.world, "ring", noted)
        await rig.ended(await rig.start(single()))
    assert writes.of_items == ["start_and_claim", "finish"]
    assert [key.name for key in rung if key.name.startswith("work:")] == []


async def test_turn_with_a_suspended_call_makes_four_commits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    writes, calls = counted(rig), Calls(rig, monkeypatch)
    async with rig.serving(calling):
        await idle(calls)
        run_id = await rig.start(calling)
        await report_result(rig, rig.runtime.ledger)
        await rig.ended(run_id)
    assert writes.of_items == ["start_and_claim", "suspend", "report_and_claim", "finish"]


async def test_claim_that_fails_does_not_prevent_the_start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_first(function: str, _args: Any, answer: Any) -> None:
        if function == "start_and_claim" and answer is None:
            raise KernelRejected("the claimed turns have over 256 MB of JSON (54000)")

    calls = Calls(rig, monkeypatch, fail_first)
    async with rig.serving(single()):
        await idle(calls)
        await rig.ended(await rig.start(single()))
    assert [name for name, _, _ in calls.made if name == "start_runs"] == ["start_runs"]


async def test_lost_reply_repeats_the_start_and_the_turn_returns_with_its_lease(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []

    def lose_reply(function: str, _args: Any, answer: Any) -> None:
        if function == "start_and_claim" and answer is not None:
            lost.append(answer)
            raise StoreUnavailable("the reply was lost")

    calls = Calls(rig, monkeypatch, lose_reply)
    async with rig.serving(single(), lease_seconds=0.3):
        await idle(calls)
        await rig.ended(await rig.start(single()))
    [again] = [answer for name, _, answer in calls.made if name == "start_runs"]
    assert [row["outcome"] for row in again] == ["duplicate"]
    [claimed] = lost[0]["claimed"]
    leases = await rig.fetch("select from heliograph.leases where agent_turn_id = $1", claimed["turn_id"])
    assert len(leases) == 2


async def test_start_carries_no_claim_that_its_turn_could_not_use(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another application, a worker without a free slot, and a worker that stops."""
    app, calls = Heliograph("busy"), Calls(rig, monkeypatch)
    entered, may_end = asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START)
    async def one(_: Context) -> None:
        entered.set()
        await may_end.wait()

    async with rig.serving(app, concurrency=1) as worker:
        await idle(calls)
        runs = [await rig.start(single("another")), await rig.start(app)]
        await entered.wait()
        runs.append(await rig.start(app))
        worker.stop()
        runs.append(await rig.start(app))
        may_end.set()
    assert [name for name, _, _ in calls.made if "start" in name] == [
        "start_runs", "start_and_claim", "start_runs", "start_runs"
    ]  # fmt: skip
    async with rig.serving(app, single("another")):
        for run_id in runs:
            await rig.ended(run_id)


async def test_start_claims_no_more_turns_than_it_wakes(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(rig, monkeypatch)
    async with rig.serving(single(), concurrency=10):
        await idle(calls)
        await rig.ended(await rig.start(single()))
    assert [args[4] for name, args, _ in calls.made if name == "start_and_claim"] == [1]


async def test_worker_of_one_run_offers_nothing_to_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(rig, monkeypatch)
    async with rig.serving(single(), run_id="mine"):
        await idle(calls)
        await rig.ended(await rig.start(single(), run_id="mine"))
        others = await rig.start(single())
    assert [name for name, _, _ in calls.made if "start" in name] == ["start_and_claim", "start_runs"]
    async with rig.serving(single()):
        await rig.ended(others)


async def test_start_during_an_outage_of_claims_carries_none(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first claim of a worker declares its wires: before that, the events of its turns would not be published."""
    calls, failed = Calls(rig, monkeypatch), asyncio.Event()
    monkeypatch.setattr(claim_loop, "_CLAIM_AGAIN_SECONDS", 3600.0)

    async def fail(services: Any) -> None:
        failed.set()
        raise StoreUnavailable("the wires were not declared")

    worker = rig.runtime.worker(single().workflow)
    monkeypatch.setattr(worker.watchdog, "declare_wires", fail)
    running = asyncio.create_task(worker.run())
    await failed.wait()
    run_id = await rig.start(single())
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [name for name, _, _ in calls.made if "start" in name] == ["start_runs"]
    async with rig.serving(single()):
        await rig.ended(run_id)


async def test_worker_that_stops_during_a_start_does_not_wait_for_its_next_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_loop, "POLL_SECONDS", 3600.0)
    workers: list[Any] = []

    def stop_and_fail(function: str, _args: Any, answer: Any) -> None:
        if function == "start_and_claim" and answer is None:
            workers[0].stop()
            raise KernelRejected("the claimed turns have over 256 MB of JSON (54000)")

    calls = Calls(rig, monkeypatch, stop_and_fail)
    async with asyncio.timeout(SOON_SECONDS):
        async with rig.serving(single(), grace_seconds=3600.0) as worker:
            workers.append(worker)
            await idle(calls)
            run_id = await rig.start(single())
    async with rig.serving(single()):
        await rig.ended(run_id)


async def test_report_that_waits_for_a_lock_stops_no_claim_of_its_worker(rig: Rig) -> None:
    async with rig.serving(calling, single()):
        asked = await rig.start(calling)
        turn = await rig.turn_of("asker", "suspended")
        holder = await asyncpg.connect(rig.url)
        try:
            async with holder.transaction(), asyncio.timeout(10.0):
                await holder.execute("select from heliograph.agent_state_head where run_id = $1 for update", asked)
                reporting = asyncio.create_task(report_result(rig, rig.runtime.ledger))
                await until_waiting(holder)
                await rig.ended(await rig.start(single()))
            await reporting
        finally:
            await holder.close()
        await rig.ended(turn.run_id)


async def until_waiting(connection: asyncpg.Connection) -> None:
    """Wait until another session waits for a lock of this one."""
    query = "select count(*) from pg_stat_activity where pg_backend_pid() = any (pg_blocking_pids(pid))"

    async def is_waiting() -> bool:
        return bool(await connection.fetchval(query))

    await until(is_waiting)
