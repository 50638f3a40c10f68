"""The health of worker processes that are killed, frozen, or stopped by a signal."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliograph.ledger.pool import Database
from tests.faces.cli_support import Running, Shell, open_shell
from tests.runtime.frozen import proxied
from tests.runtime.kit import until

WORKER = ("worker", "press.py:app", "--name")
QUICK = ("--heartbeat", "0.2", "--lease", "2")


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


async def start(shell: Shell, started: list[Running], database: Database, name: str, *options: str) -> Running:
    """Start a worker, and wait until it is registered."""
    worker = shell.start(*WORKER, name, *options)
    started.append(worker)

    async def is_registered() -> bool:
        return name in [row["label"] for row in await listed(database)]

    await until(is_registered)
    return worker


async def listed(database: Database, at: datetime | None = None) -> list[Any]:
    now = "clock_timestamp()" if at is None else "$1::timestamptz"
    [row] = await database.fetch(f"select heliograph.list_workers('default', {now}) as workers", *filter(None, [at]))
    return list(json.loads(row["workers"]))


async def health(database: Database, name: str, at: datetime | None = None) -> str:
    [found] = [row["health"] for row in await listed(database, at) if row["label"] == name]
    return str(found)


async def becomes(database: Database, name: str, *wanted: str) -> None:
    async def is_so() -> bool:
        return await health(database, name) in wanted

    await until(is_so)


@pytest.mark.proves("CTL-75", "G-19")
@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
async def test_worker_without_heartbeats_is_unhealthy_after_three_intervals(
    shell: Shell, database: Database, started: list[Running], how: signal.Signals
) -> None:
    worker = await start(shell, started, database, "pod")
    worker.signal(how)
    [row] = await listed(database)
    last = datetime.fromisoformat(row["beat_at"])
    assert (row["interval_seconds"], row["health"]) == (30, "healthy")
    assert await health(database, "pod", last + timedelta(seconds=89.999)) == "healthy"
    assert await health(database, "pod", last + timedelta(seconds=90)) == "unhealthy"
    if how is signal.SIGSTOP:
        worker.signal(signal.SIGCONT)


@pytest.mark.proves("CTL-75", "CTL-63")
async def test_probe_fails_for_a_frozen_worker_and_succeeds_when_it_continues(
    shell: Shell, database: Database, started: list[Running]
) -> None:
    probe = ("worker", "list", "--name", "pod", "--check")
    assert (await asyncio.to_thread(shell.helio, *probe)).returncode == 3
    worker = await start(shell, started, database, "pod", *QUICK)
    assert (await asyncio.to_thread(shell.helio, *probe)).returncode == 0
    worker.signal(signal.SIGSTOP)
    await becomes(database, "pod", "unhealthy")
    failed = await asyncio.to_thread(shell.helio, *probe)
    assert (failed.returncode, "unhealthy" in failed.stdout) == (1, True)
    doctor = await asyncio.to_thread(shell.helio, "db", "doctor")
    assert (doctor.returncode, "warning   workers: pod:" in doctor.stdout) == (0, True)
    worker.signal(signal.SIGCONT)
    await becomes(database, "pod", "healthy", "degraded")
    assert (await asyncio.to_thread(shell.helio, *probe)).returncode == 0


@pytest.mark.proves("G-19")
async def test_turn_of_a_killed_worker_moves_by_its_lease_before_its_health_changes(
    shell: Shell, database: Database, started: list[Running]
) -> None:
    """The first worker is still healthy, by its slow heartbeats, when the second one continues its turn."""
    first = await start(shell, started, database, "first", "--lease", "1")
    run = shell.start("run", "press.py:app", "--no-worker", "--run-id", "r", "--state", '{"stall": true}')
    started.append(run)
    await until((shell.folder / "stalled-r").exists)
    first.signal(signal.SIGKILL)
    await start(shell, started, database, "second", "--lease", "1")
    assert await asyncio.to_thread(run.end) == 0, run.text
    assert await health(database, "first") == "healthy"


async def test_stopped_worker_leaves_the_list(shell: Shell, database: Database, started: list[Running]) -> None:
    worker = await start(shell, started, database, "pod")
    worker.signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.end) == 0
    assert await listed(database) == []


def start_impatient(shell: Shell, url: str, *arguments: str) -> Running:
    """Start a command that closes within a second after a grace of half a second."""
    script = "from heliograph.cli import main, run, worker; run.CLOSE_SECONDS = worker.CLOSE_SECONDS = 1.0; raise SystemExit(main.main())"
    command = [sys.executable, "-c", script, *arguments, "--grace", "0.5"]
    environment = shell.environment | {"HELIOGRAPH_DATABASE_URL": url}
    return Running(subprocess.Popen(command, cwd=shell.folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT))  # fmt: skip


async def ended_without_postgresql(shell: Shell, proxy: Any, process: Running, number: int) -> int:
    """Once a turn stalls, stop all traffic to PostgreSQL and send the signal; return the exit code of a process that ends soon."""
    await until((shell.folder / "stalled-r").exists)
    proxy.hold()
    process.signal(number)
    async with asyncio.timeout(8):
        return await asyncio.to_thread(process.end)


async def test_worker_ends_soon_after_its_grace_although_postgresql_does_not_respond(
    shell: Shell, database_url: str, started: list[Running]
) -> None:
    """The turn that it runs stalls, so that it has to be released. Without a bound, the end would wait for each call to the database."""
    async with proxied(database_url) as (proxy, through):
        started.append(shell.start("run", "press.py:app", "--no-worker", "--run-id", "r", "--state", '{"stall": true}'))
        worker = start_impatient(shell, through, *WORKER, "pod")
        started.append(worker)
        assert await ended_without_postgresql(shell, proxy, worker, signal.SIGTERM) == 0
        assert "ends before everything is closed" in worker.text


async def test_run_that_is_interrupted_ends_soon_although_postgresql_does_not_respond(
    shell: Shell, database_url: str, started: list[Running]
) -> None:
    async with proxied(database_url) as (proxy, through):
        run = start_impatient(shell, through, "run", "press.py:app", "--run-id", "r", "--state", '{"stall": true}')
        started.append(run)
        assert await ended_without_postgresql(shell, proxy, run, signal.SIGINT) == 130
        assert "ends before everything is closed" in run.text
