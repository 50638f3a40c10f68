"""A worker registers before it claims, and then sends heartbeats that cost its turns nothing."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from heliograph import Context, Heliograph, Runtime
from heliograph.control.settings import HeartbeatSettings
from heliograph.errors import StoreUnavailable
from heliograph.ledger.client import Ledger
from heliograph.worker.claim_loop import Worker
from tests.runtime.kit import START, Rig, one, until

OFTEN = HeartbeatSettings(interval_seconds=0.05)
BLOCKED = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like 'select heliograph.beat(%'"


class WaitingAgent:
    """An application whose agent waits until it is released."""

    def __init__(self, name: str = "waiting") -> None:
        self.begun, self.released = asyncio.Event(), asyncio.Event()
        self.app = Heliograph(name)

        @self.app.agent(activate_on=START, updates="done")
        async def writer(ctx: Context) -> str:
            self.begun.set()
            await self.released.wait()
            return "done"


@contextmanager
def counted(runtime: Runtime) -> Iterator[Counter[str]]:
    """The kernel calls of a runtime by name, in the order of their first occurrence."""
    calls: Counter[str] = Counter()
    call = runtime.world.call

    async def count(function: str, *args: object) -> Any:
        calls[function] += 1
        return await call(function, *args)

    runtime.world.call = count
    try:
        yield calls
    finally:
        runtime.world.call = call


async def heartbeats(rig: Rig, run_id: str) -> list[Any]:
    return [each.payload for each in await rig.runtime.reader.all_signals(run_id) if each.name == "heartbeat"]


def metrics_of(worker: Worker, metrics: dict[str, float]) -> None:
    """Let the worker read these metrics, which the test may change."""
    assert worker.heartbeat is not None
    worker.heartbeat._registration = replace(worker.heartbeat._registration, read_metrics=lambda: metrics)


@asynccontextmanager
async def registering(rig: Rig, worker: Worker) -> AsyncIterator[None]:
    """Another transaction writes the same row, so that the registration of the worker waits for its end."""
    connection = await asyncpg.connect(rig.url)
    try:
        async with connection.transaction():
            item = json.dumps([{"worker": worker.name}])
            project = rig.runtime.settings.project
            await connection.execute("select heliograph.beat($1, $2::jsonb, clock_timestamp())", project, item)
            yield
    finally:
        await connection.close()


@pytest.mark.proves("CTL-58", "G-31")
async def test_worker_claims_nothing_before_it_is_registered(rig: Rig) -> None:
    waiting = WaitingAgent()
    waiting.released.set()
    run_id = await rig.start(waiting.app)
    worker, stopping = rig.runtime.worker(waiting.app.workflow), asyncio.Event()
    async with registering(rig, worker):
        task = asyncio.create_task(rig.runtime.serve(worker, stopping))
        await until(lambda: _is_found(rig.fetch(BLOCKED)))
        await asyncio.sleep(0.1)  # it would claim now
        assert [turn.status for turn in await rig.runtime.reader.turns()] == ["dispatched"]
    await rig.ended(run_id)
    stopping.set()
    await task


@pytest.mark.proves("CTL-58")
async def test_registration_waits_for_a_store_that_is_away_and_a_stop_ends_the_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat, failures = Ledger.beat, iter([True, True, False])
    world = rig.runtime.world
    monkeypatch.setattr(world, "sleep", lambda seconds, sleep=world.sleep: sleep(min(seconds, 0.01)))

    async def failing(ledger: Ledger, worker: Any) -> None:
        if next(failures):
            raise StoreUnavailable("away")
        await beat(ledger, worker)

    monkeypatch.setattr(Ledger, "beat", failing)
    waiting = WaitingAgent()
    waiting.released.set()
    assert (await rig.run(waiting.app)).outcome == "success"
    assert next(failures, None) is None
    failures = iter(lambda: True, None)
    worker = rig.runtime.worker(waiting.app.workflow)
    with counted(rig.runtime) as calls:
        task = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        worker.stop()
        await task
    assert calls["claim"] == 0


@pytest.mark.proves("CTL-57", "G-31", "CTL-61", "G-20")
async def test_registered_worker_is_listed_with_its_applications_until_it_ends(rig: Rig) -> None:
    waiting = WaitingAgent()
    async with rig.serving(waiting.app, label="pod-1", concurrency=3) as worker:
        await until(lambda: _is_found(rig.client.workers()))
        [row] = await rig.client.workers()
        assert (row.worker, row.label, row.health, row.phase, row.slots) == (worker.name, "pod-1", "healthy", "idle", 3)
        assert row.capabilities == ["waiting", "waiting/writer"]
        assert row.version
        assert row.metadata["runtime"].startswith("python")
        assert (row.metadata["tools_loaded"], row.metadata["memory_mb"] > 0) == (0, True)
        assert row.metrics["pending_tasks"] == 0
        assert (row.interval_seconds, row.missed_threshold) == (30, 3)
    assert await rig.client.workers() == []


@pytest.mark.proves("CTL-61", "CTL-62", "CTL-64")
async def test_heartbeats_of_a_worker_are_one_call_for_all_projects_and_turns(rig: Rig) -> None:
    waiting, project = WaitingAgent(), rig.runtime.settings.project
    projects = [project, f"{project}-b", f"{project}-c"]
    runs = [await rig.start(waiting.app, run_id=f"r{n}") for n in range(5)]
    with counted(rig.runtime) as calls:
        async with rig.serving(waiting.app, projects=projects, heartbeat=OFTEN) as worker:
            metrics_of(worker, {})
            await waiting.begun.wait()
            await until(lambda: _are_logged(rig, runs))
            before = calls["beat"]
            await until(lambda: _is(calls["beat"] >= before + 4))
            assert calls["append"] <= 5  # each turn once, however many heartbeats there were
            for each in projects:
                [row] = await rig.runtime.database.call("list_workers", each)
                assert (row["slots_used"], row["phase"], row["metrics"]["pending_tasks"]) == (5, "act", 5)
            waiting.released.set()
            for run_id in runs:
                await rig.ended(run_id)
    assert calls["deregister"] == 1
    assert [len(await heartbeats(rig, run_id)) for run_id in runs] == [1] * 5


@pytest.mark.proves("CTL-58")
async def test_short_turns_cost_no_further_calls(rig: Rig) -> None:
    waiting = WaitingAgent()
    waiting.released.set()
    with counted(rig.runtime) as calls:
        async with rig.serving(waiting.app):
            for n in range(3):
                await rig.ended(await rig.start(waiting.app, run_id=f"r{n}"))
    assert (calls["beat"], calls["deregister"], calls["append"]) == (1, 1, 0)
    assert list(calls).index("beat") < list(calls).index("claim")
    assert [await heartbeats(rig, f"r{n}") for n in range(3)] == [[], [], []]


@pytest.mark.proves("CTL-60", "CTL-61", "CTL-63", "CTL-65")
async def test_log_of_a_long_turn_has_its_first_heartbeat_and_each_change_of_status(rig: Rig) -> None:
    waiting, metrics = WaitingAgent(), {"memory_percent": 50.0}
    run_id = await rig.start(waiting.app)
    async with rig.serving(waiting.app, heartbeat=OFTEN) as worker:
        metrics_of(worker, metrics)
        await until(lambda: _logged(rig, run_id, 1))
        metrics["memory_percent"] = 94.0
        await until(lambda: _logged(rig, run_id, 2))
        metrics["memory_percent"] = 51.0
        await until(lambda: _logged(rig, run_id, 3))
        waiting.released.set()
        signals = await rig.ended(run_id)
    first, second, third = await heartbeats(rig, run_id)
    assert [each["status"] for each in (first, second, third)] == ["healthy", "degraded", "healthy"]
    assert second["warnings"] == ["High memory usage: 94 % of the limit"]
    assert "warnings" not in first
    assert (first["phase"], first["interval_seconds"], first["worker"]) == ("act", 0.05, worker.name)
    assert first["metrics"] == {"memory_percent": 50.0, "pending_tasks": 1}
    beat = next(each for each in signals if each.name == "heartbeat")
    assert (beat.agent, beat.parent) == ("writer", one_id(signals))


@pytest.mark.proves("G-19")
async def test_worker_without_heartbeats_finishes_its_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, attempts = WaitingAgent(), Counter[str]()
    beat = Ledger.beat

    async def only_first(ledger: Ledger, worker: Any) -> None:
        attempts["beat"] += 1
        if attempts["beat"] > 1:
            raise StoreUnavailable("no heartbeat arrives")
        await beat(ledger, worker)

    monkeypatch.setattr(Ledger, "beat", only_first)
    run_id = await rig.start(waiting.app)
    async with rig.serving(waiting.app, heartbeat=OFTEN, lease_seconds=1.0):
        await until(lambda: _is(attempts["beat"] > 5))
        [row] = await rig.client.workers()
        assert row.health == "unhealthy"
        waiting.released.set()
        await rig.ended(run_id)
    turn = await rig.turn_of("writer")
    assert (turn.outcome, turn.attempts) == ("success", 0)


@pytest.mark.proves("G-19")
async def test_worker_with_heartbeats_loses_a_turn_with_its_lease(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting, other = WaitingAgent(), WaitingAgent()
    other.released.set()
    run_id = await rig.start(waiting.app)
    worker = rig.runtime.worker(waiting.app.workflow, heartbeat=OFTEN, lease_seconds=0.3, concurrency=1)
    leases = worker._leases[rig.runtime.settings.project]
    monkeypatch.setattr(leases, "_renew", lambda _runners: _is(False))  # its leases are never renewed
    monkeypatch.setattr(worker.watchdog, "run", lambda: asyncio.sleep(3600))
    task = asyncio.create_task(worker.run())
    await waiting.begun.wait()
    async with rig.serving(other.app):
        await rig.ended(run_id)
        assert {row.worker: row.health for row in await rig.client.workers()}[worker.name] == "healthy"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert worker.heartbeat is not None
    await worker.heartbeat.deregister()
    turn = await rig.turn_of("writer")
    assert (turn.outcome, turn.attempts) == ("success", 1)


@pytest.mark.proves("CTL-64")
async def test_worker_with_heartbeats_off_registers_and_sends_none(rig: Rig) -> None:
    waiting = WaitingAgent()
    run_id = await rig.start(waiting.app)
    with counted(rig.runtime) as calls:
        async with rig.serving(waiting.app, heartbeat=HeartbeatSettings(enabled=False, interval_seconds=0.01)):
            await waiting.begun.wait()
            [row] = await rig.client.workers()
            assert (row.health, row.interval_seconds, row.missed) == ("unknown", None, None)
            await asyncio.sleep(0.1)  # heartbeats would be sent now
            waiting.released.set()
            await rig.ended(run_id)
    assert calls["beat"] == 1


@pytest.mark.proves("CTL-62")
async def test_blocked_event_loop_is_reported(rig: Rig) -> None:
    waiting = WaitingAgent()
    async with rig.serving(waiting.app, heartbeat=HeartbeatSettings(interval_seconds=1)) as worker:
        await until(lambda: _is_found(rig.client.workers()))
        assert worker.heartbeat is not None
        health = worker.heartbeat._assess(timedelta(seconds=4).total_seconds())
        await worker.heartbeat._beat(health)
        [row] = await rig.client.workers()
        assert (row.health, row.warnings) == (
            "degraded", ["The event loop did not run for 4.0 s: an agent or a tool blocks it"],
        )  # fmt: skip


@pytest.mark.proves("CTL-57", "CTL-58", "G-31")
async def test_ready_of_an_agent_precedes_its_plan_and_names_its_tools_and_models(rig: Rig) -> None:
    waiting = WaitingAgent()
    waiting.released.set()
    result = await rig.run(waiting.app)
    ready = one(result.signals, "ready")
    assert ready["metadata"]["tools_loaded"] == 0
    names = [each.name for each in result.signals]
    assert names.index("ready") < names.index("plan_ready") < names.index("action_complete")


def one_id(signals: Any) -> str:
    """The id of the signal that activated the agent."""
    [activated] = [each.id for each in signals if each.name == "agent:activated"]
    return str(activated)


async def _is(value: bool) -> bool:
    return value


async def _is_found(rows: Awaitable[Sequence[Any]]) -> bool:
    return bool(await rows)


async def _logged(rig: Rig, run_id: str, count: int) -> bool:
    return len(await heartbeats(rig, run_id)) == count


async def _are_logged(rig: Rig, runs: list[str]) -> bool:
    return all([await _logged(rig, run_id, 1) for run_id in runs])
