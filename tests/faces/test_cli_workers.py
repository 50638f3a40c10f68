"""`helio worker list`, and what other commands say about the health of workers."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.worker import _heartbeat
from heliograph.control.settings import HeartbeatSettings
from heliograph.ledger.pool import Database
from heliograph.policy.heartbeat import HeartbeatPolicy
from tests.faces.cli_support import Shell, normalised, open_shell
from tests.runtime.kit import until

SERVING = {"capabilities": ["press", "press/writer", "press/critic"], "slots": 16, "interval_seconds": 3600}


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


async def beat(database: Database, worker: str, **fields: Any) -> None:
    await database.call("beat", "default", [{"worker": worker, "label": worker.partition(":")[0], **SERVING, **fields}])


async def helio(shell: Shell, *arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(shell.helio, *arguments)
    return done.returncode, normalised(done.stdout + done.stderr)


@pytest.mark.proves("CTL-63", "CTL-65")
async def test_workers_are_listed_with_health_phase_slots_and_warnings(shell: Shell, database: Database) -> None:
    await beat(database, "pod-1:7:abcdefgh", slots_used=2, phase="act")
    await beat(
        database,
        "pod-2:7:abcdefgh",
        status="degraded",
        pools=["default", "gpu"],
        warnings=["High memory usage", "Late"],
    )
    assert await helio(shell, "worker", "list") == (
        0,
        "WORKER  HEALTH  LAST BEAT  PHASE  TURNS  SERVES  POOLS  WARNINGS\n"
        "WORKER  healthy  SPAN ago  act  2/16  press  default  -\n"
        "WORKER  degraded  SPAN ago  idle  0/16  press  default, gpu  High memory usage; Late",
    )
    [row] = await asyncio.to_thread(shell.rows, "worker", "list", "--name", "pod-1")
    assert (row["worker"], row["health"], row["capabilities"]) == (
        "pod-1:7:abcdefgh",
        "healthy",
        SERVING["capabilities"],
    )
    assert row["age_seconds"] >= 0
    assert await asyncio.to_thread(shell.rows, "--project", "list", "worker", "list", "--name", "list") == []


@pytest.mark.parametrize("wrong", ["beat_at = 'infinity'", "capabilities = '[1]'", "interval_seconds = 'Infinity'"])
async def test_row_that_cannot_be_decoded_does_not_hide_other_workers(
    shell: Shell, database: Database, wrong: str
) -> None:
    await beat(database, "pod-1:7:abcdefgh")
    await beat(database, "pod-2:7:abcdefgh")
    await database.fetch(f"update heliograph.workers set {wrong} where label = 'pod-1'")
    code, text = await helio(shell, "worker", "list")
    assert (code, "healthy" in text) == (0, True)
    assert "cannot be decoded" in text
    assert "delete it from heliograph.workers" in text


@pytest.mark.more
@pytest.mark.proves("CTL-75")
async def test_check_reports_to_a_probe_that_a_worker_is_alive(shell: Shell, database: Database) -> None:
    assert await helio(shell, "worker", "list") == (0, "no workers; helio worker FILE.py:app starts one")
    code, text = await helio(shell, "worker", "list", "--name", "pod-1", "--check")
    assert (code, "no worker named pod-1 is registered" in text) == (3, True)
    await beat(database, "pod-1:7:abcdefgh", status="unhealthy")
    assert (await helio(shell, "worker", "list", "--name", "pod-1", "--check"))[0] == 1
    await beat(database, "pod-1:9:abcdefgh", status="degraded")  # the container has restarted
    assert (await helio(shell, "worker", "list", "--name", "pod-1", "--check"))[0] == 0
    await beat(database, "pod-2:7:abcdefgh", interval_seconds=None)
    assert (await helio(shell, "worker", "list", "--name", "pod-2", "--check"))[0] == 1
    assert (await helio(shell, "worker", "list", "--name", "pod-2"))[0] == 0


def test_check_without_a_database_finds_no_worker(tmp_path: Path) -> None:
    shell = open_shell(tmp_path, None)
    assert shell.helio("worker", "list", "--check").returncode == 3
    assert shell.helio("worker", "list").returncode == 0


async def test_doctor_warns_of_workers_that_are_not_healthy(shell: Shell, database: Database) -> None:
    await beat(database, "pod-0:7:abcdefgh")
    code, text = await helio(shell, "db", "doctor")
    assert (code, "workers" in text) == (0, False)
    for n in range(1, 5):
        await beat(database, f"pod-{n}:7:abcdefgh", status="unhealthy")
    code, text = await helio(shell, "db", "doctor")
    assert (code, text.splitlines()[-1]) == (
        0,
        "warning  workers: WORKER is unhealthy, SPAN ago; WORKER is unhealthy, SPAN ago; WORKER is unhealthy, SPAN ago, and 1 "
        "more; helio worker list lists all",
    )


@pytest.mark.more
async def test_turn_show_names_the_health_of_the_owner(shell: Shell, database: Database) -> None:
    started = await asyncio.to_thread(shell.start, "run", "press.py:app", "--no-worker", "--run-id", "r")
    try:
        claimed: list[Any] = []

        async def is_claimed() -> bool:
            claimed.extend(await database.call("claim", "default", [{"target": "press"}], "pod-1:7:abcdefgh", 1, 60.0))
            return bool(claimed)

        await until(is_claimed)
        [turn] = claimed
        await beat(database, "pod-1:7:abcdefgh", status="degraded")
        _, text = await helio(shell, "turn", "show", turn["turn_id"])
        assert "health  the owner is degraded, its last heartbeat was SPAN ago" in text
        [printed] = await asyncio.to_thread(shell.rows, "turn", "show", turn["turn_id"])
        assert printed["worker"]["health"] == "degraded"
    finally:
        started.process.kill()
        started.end()


@pytest.mark.parametrize(
    ("options", "path"), [(("--heartbeat", "-1"), "--heartbeat"), (("--missed-beats", "0"), "--missed-beats")]
)
def test_options_of_heartbeats_are_checked(shell: Shell, options: tuple[str, ...], path: str) -> None:
    done = shell.helio("worker", "press.py:app", *options)
    assert (done.returncode, path in done.stderr) == (2, True)


@pytest.mark.proves("CTL-74")
@pytest.mark.parametrize(
    ("heartbeat", "missed_beats", "expected"),
    [
        (None, None, HeartbeatPolicy(False, 12, 5, 7)),
        (20, None, HeartbeatPolicy(True, 20, 5, 7)),
        (0, None, HeartbeatPolicy(False, 12, 5, 7)),
        (None, 4, HeartbeatPolicy(False, 12, 5, 4)),
    ],
)
def test_options_of_heartbeats_count_before_the_settings_of_the_application(
    heartbeat: float | None, missed_beats: int | None, expected: HeartbeatPolicy
) -> None:
    application = HeartbeatSettings(enabled=False, interval_seconds=12, missed_threshold=7)
    own = _heartbeat(Namespace(heartbeat=heartbeat, missed_beats=missed_beats))
    assert HeartbeatPolicy.of(own, [application]) == expected
