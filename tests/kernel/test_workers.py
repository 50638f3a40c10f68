"""beat, deregister, list_workers: a worker registers with its first heartbeat; its health follows from the clock at reading."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.pool import explain
from heliograph.ledger.rows import WorkerRow
from tests.kernel.kit import Connect, Item, Kernel
from tests.kernel.test_commits import Counted
from tests.logins import connected, login

WORKER: Item = {
    "worker": "w1", "label": "pod-1", "version": "1.0", "capabilities": ["newsroom", "newsroom/writer"],
    "metadata": {"runtime": "python 3.11"}, "slots": 16, "slots_used": 2, "interval_seconds": 30, "phase": "act",
    "status": "healthy", "metrics": {"memory_mb": 256}, "warnings": [],
}  # fmt: skip


async def beat(kernel: Kernel, **fields: Any) -> str:
    [answer] = await kernel.call("beat", [{**WORKER, **fields}])
    return str(answer["outcome"])


async def health(kernel: Kernel) -> dict[str, str]:
    return {row["worker"]: row["health"] for row in await kernel.call("list_workers")}


@pytest.mark.proves("CTL-57", "CTL-61", "CTL-62", "CTL-63", "G-31")
async def test_first_heartbeat_registers_and_later_ones_update(kernel: Kernel) -> None:
    assert await beat(kernel) == "ready"
    kernel.wait(12)
    assert await beat(kernel, phase="idle", slots_used=0, metrics={"memory_mb": 300}) == "ok"
    kernel.wait(0.5)
    [row] = await kernel.call("list_workers")
    assert WorkerRow(**{key: row[key] for key in WorkerRow.__struct_fields__}).age_seconds == 0.5
    assert {key: row[key] for key in WORKER} == {
        **WORKER,
        "phase": "idle",
        "slots_used": 0,
        "metrics": {"memory_mb": 300},
    }
    assert (row["missed"], row["missed_threshold"], row["health"]) == (0, 3, "healthy")
    assert row["started_at"] < row["beat_at"]


@pytest.mark.proves("CTL-75", "CTL-64", "G-19")
async def test_worker_is_unhealthy_at_exactly_three_missed_heartbeats(kernel: Kernel) -> None:
    await beat(kernel, status="degraded", warnings=["High memory usage"])
    kernel.wait(89.999999)
    [row] = await kernel.call("list_workers")
    assert (row["health"], row["missed"], row["warnings"]) == ("degraded", 2, ["High memory usage"])
    kernel.wait(0.000001)
    [row] = await kernel.call("list_workers")
    assert (row["health"], row["missed"], row["status"]) == ("unhealthy", 3, "degraded")
    await beat(kernel)
    assert await health(kernel) == {"w1": "healthy"}


@pytest.mark.proves("CTL-75")
async def test_each_worker_has_its_own_interval_and_threshold(kernel: Kernel) -> None:
    await beat(kernel, interval_seconds=0.1, missed_threshold=7)
    await beat(kernel, worker="w2", interval_seconds=60)
    await beat(kernel, worker="silent", interval_seconds=None)
    kernel.wait(0.7)
    assert await health(kernel) == {"w1": "unhealthy", "w2": "healthy", "silent": "unknown"}


@pytest.mark.proves("CTL-65", "G-21")
async def test_warnings_are_kept_beside_the_metrics_wherever_they_were_sent(kernel: Kernel) -> None:
    inside = {"memory_percent": 94, "warnings": ["High memory usage"]}
    await kernel.call("beat", [{"worker": "inside", "metrics": inside}, {"worker": "beside", "warnings": ["Late"]}])
    rows = {row["worker"]: row for row in await kernel.call("list_workers")}
    assert (rows["inside"]["warnings"], rows["inside"]["metrics"]) == (["High memory usage"], {"memory_percent": 94})
    assert rows["beside"]["warnings"] == ["Late"]


@pytest.mark.proves("CTL-61", "G-20")
async def test_worker_without_a_turn_is_idle_and_other_phases_are_those_of_the_lifecycle(kernel: Kernel) -> None:
    await kernel.call("beat", [{"worker": "w1"}])
    [row] = await kernel.call("list_workers")
    assert (row["phase"], row["health"], row["label"]) == ("idle", "unknown", "w1")
    for phase in ("init", "plan", "act", "reflect", "terminate"):
        assert await beat(kernel, phase=phase) == "ok"
    with pytest.raises(asyncpg.PostgresError, match="phase must be idle, init"):
        await beat(kernel, phase="asleep")


async def test_one_call_records_a_worker_in_all_of_its_projects(kernel: Kernel) -> None:
    others = [f"{kernel.project} b", f"{kernel.project} a"]
    counted = Counted(kernel)
    [answer] = await counted(kernel.call("beat", [{**WORKER, "projects": others}]))
    assert (answer, counted.commits) == ({"worker": "w1", "outcome": "ready"}, 1)
    for project in (kernel.project, *others):
        assert [row["worker"] for row in await kernel.call("list_workers", project=project)] == ["w1"]
    assert await kernel.call("deregister", [{"worker": "w1", "projects": others}]) == [
        {"worker": "w1", "outcome": "deregistered"}
    ]
    for project in (kernel.project, *others):
        assert await kernel.call("list_workers", project=project) == []
    assert await kernel.call("deregister", [{"worker": "w1"}]) == [{"worker": "w1", "outcome": "unknown"}]


@pytest.mark.proves("S1")
async def test_bound_login_records_nothing_in_a_project_that_it_has_no_grant_for(
    kernel: Kernel, shared_url: str
) -> None:
    async with login(shared_url, kernel.project, services=("worker",)) as url, connected(url) as bound:
        statement = "select heliograph.beat($1, $2, clock_timestamp())"
        item = {"worker": "w1", "projects": [f"{kernel.project} too"]}
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="not_found: no project"):
            await bound.fetchval(statement, kernel.project, [item])
        assert await kernel.call("list_workers") == []
        await bound.fetchval(statement, kernel.project, [{"worker": "w1"}])
    assert list(await health(kernel)) == ["w1"]


async def test_rows_of_dead_workers_are_deleted_by_a_later_heartbeat(kernel: Kernel) -> None:
    for n in range(5):
        await beat(kernel, worker=f"dead-{n}")
    await beat(kernel, worker="rare", interval_seconds=3600)
    await beat(kernel, worker="silent", interval_seconds=None)
    kernel.wait(3600)
    await beat(kernel)
    assert len(await health(kernel)) == 8
    kernel.wait(1)
    await beat(kernel)
    assert list(await health(kernel)) == ["rare", "silent", "w1"]
    kernel.wait(10 * 3 * 3600)
    await beat(kernel)
    assert list(await health(kernel)) == ["w1"]


async def test_heartbeat_does_not_wait_for_a_dead_worker_that_another_transaction_has_locked(
    kernel: Kernel, beside: Connect
) -> None:
    await beat(kernel, worker="dead")
    kernel.wait(3700)
    other = await beside()
    other.project = kernel.project
    async with other.connection.transaction():
        await other.connection.execute(
            "select from heliograph.workers where project_id = $1 and worker = 'dead' for update", kernel.project
        )
        assert await beat(kernel) == "ready"
    assert await health(kernel) == {"dead": "unhealthy", "w1": "healthy"}


async def test_heartbeat_commits_without_waiting_for_the_disk(kernel: Kernel) -> None:
    setting = "select current_setting('synchronous_commit')"
    for function, item in (("beat", WORKER), ("deregister", {"worker": "w1"})):
        async with kernel.connection.transaction():
            await kernel.connection.execute("set local synchronous_commit = on")
            await kernel.call("list_workers")
            assert await kernel.connection.fetchval(setting) == "on"
            await kernel.call(function, [item])
            assert await kernel.connection.fetchval(setting) == "off"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"worker": ""}, "1 to 200 bytes"),
        ({"worker": "w" * 201}, "1 to 200 bytes"),
        ({"metadata": {"text": "x" * 300_000}}, "at most 262144 bytes"),
        ({"metrics": []}, "metrics has the type object, not array"),
        ({"metrics": {"warnings": "hot"}}, "warnings has the type array, not string"),
        ({"metrics": {"warnings": [1]}}, "must be lists of strings"),
        ({"capabilities": [{}]}, "must be lists of strings"),
        ({"projects": ["p", None]}, "must be lists of strings"),
        ({"warnings": [1]}, "must be lists of strings"),
        ({"status": "fine"}, "status must be healthy"),
        ({"slots": -1}, "slots and slots_used"),
        ({"slots_used": 1.5}, "slots and slots_used"),
        ({"missed_threshold": 0}, "missed_threshold must be"),
        ({"interval_seconds": 0}, "interval_seconds must be between"),
        ({"interval_seconds": "30"}, "interval_seconds has the type number"),
    ],
)
async def test_invalid_heartbeat_is_rejected_and_writes_nothing(kernel: Kernel, fields: Item, message: str) -> None:
    with pytest.raises(asyncpg.PostgresError, match=message) as caught:
        await kernel.call("beat", [WORKER, {**WORKER, "worker": "w2", **fields}])
    assert isinstance(explain(caught.value, "beat"), KernelRejected)
    assert await kernel.call("list_workers") == []


async def test_workers_are_listed_by_label_and_start(kernel: Kernel) -> None:
    await beat(kernel, worker="b", label="y")
    await beat(kernel, worker="c", label="x")
    await beat(kernel, worker="a", label="y")
    assert list(await health(kernel)) == ["c", "a", "b"]


@pytest.mark.proves("G-19")
async def test_heartbeat_is_no_fence(kernel: Kernel) -> None:
    """Neither does a lease need a heartbeat, nor does a heartbeat keep a lease."""
    claimed = await kernel.running()  # by worker-1, which has never sent a heartbeat
    kernel.wait(20)
    assert (await kernel.renew(claimed))["outcome"] == "ok"
    await beat(kernel, worker="worker-1", interval_seconds=5)
    kernel.wait(25)  # four heartbeats are missing, and the lease still lasts
    assert await health(kernel) == {"worker-1": "unhealthy"}
    assert (await kernel.sweep("leases"))["recovered"] == []
    assert (await kernel.finish(claimed))["outcome"] == "ok"
    await kernel.enqueue("run_a", "writer", "turn_2")
    claimed = await kernel.claim_one()
    kernel.wait(31)
    await beat(kernel, worker="worker-1")
    assert await health(kernel) == {"worker-1": "healthy"}
    assert (await kernel.sweep("leases"))["recovered"] == ["turn_2"]
    assert (await kernel.finish(claimed))["outcome"] == "stale"
