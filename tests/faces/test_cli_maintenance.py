"""Maintenance of a database: `helio db prune`, `helio db limits`, `helio db wires`, and the doctor's findings about
unclaimed work."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import pytest

from heliograph import Context, Heliograph, Runtime, Step
from heliograph.config import Settings
from heliograph.errors import RecoverableError, ToolFailed
from heliograph.runtime import open_runtime
from tests.faces.cli_support import Shell, open_shell

APP = Heliograph("tidy")


@APP.agent(activate_on=["workflow:start"])
def only(ctx: Context) -> None:
    """Returns nothing."""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


async def helio(shell: Shell, *arguments: str) -> tuple[int, str]:
    done = await asyncio.to_thread(shell.helio, *arguments)
    return done.returncode, done.stdout + done.stderr


async def age(runtime: Runtime, days: int) -> None:
    """Move all recorded times back by this many days."""
    when = {
        "runs": ("created_at", "updated_at", "ended_at"),
        "agent_turns": ("created_at", "finished_at"),
        "signals": ("at",),
    }
    for table, columns in when.items():
        older = ", ".join(f"{column} = {column} - make_interval(days => $1)" for column in columns)
        await runtime.database.fetch(f"update heliograph.{table} set {older}", days)


async def test_prune_removes_only_old_ended_runs(shell: Shell, database_url: str) -> None:
    async with open_runtime(Settings(database_url)) as runtime:
        for name in ("old_1", "old_2", "old_3"):
            await runtime.run(APP.workflow, {}, run_id=name)
        await age(runtime, 31)
        await runtime.run(APP.workflow, {}, run_id="new")

        async def runs() -> set[str]:
            return {run.run_id for run in await runtime.reader.runs(10)}

        code, text = await helio(shell, "db", "prune", "--older-than", "30d", "--dry-run")
        assert (code, text.startswith("would delete 3 runs, 3 turns")) == (0, True)
        assert await runs() == {"old_1", "old_2", "old_3", "new"}
        code, text = await helio(shell, "db", "prune", "--older-than", "30d", "--batch", "1", "--json")
        assert code == 0
        assert {key: json.loads(text)[key] for key in ("runs", "turns", "dry_run")} == {
            "runs": 3,
            "turns": 3,
            "dry_run": False,
        }
        assert await runs() == {"new"}
        assert (await helio(shell, "db", "prune", "--older-than", "30d"))[1] == "deleted nothing\n"


@pytest.mark.parametrize("age", ["30", "0d", "-1d", "ever", "9" * 9 + "d"])
def test_invalid_age_is_rejected(shell: Shell, age: str) -> None:
    done = shell.helio("db", "prune", f"--older-than={age}")
    assert (done.returncode, "--older-than must be an age like 30d" in done.stderr) == (2, True)


async def test_workers_prune_only_with_a_configured_age(database_url: str) -> None:
    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.run(APP.workflow, {}, run_id="old")
        await age(runtime, 31)
        await runtime.worker(APP.workflow).watchdog.sweep()
        assert [run.run_id for run in await runtime.reader.runs(10)] == ["old"]
    async with open_runtime(Settings(database_url, prune_after_seconds=30 * 86_400.0)) as runtime:
        await runtime.run(APP.workflow, {}, run_id="new")
        await runtime.worker(APP.workflow).watchdog.sweep()
        assert [run.run_id for run in await runtime.reader.runs(10)] == ["new"]


@pytest.mark.proves("S11", "S12")
def test_limits_are_listed_changed_and_reset_for_one_project(shell: Shell) -> None:
    [before] = shell.rows("db", "limits")
    assert (before["queue_max"], before["running_max"]) == (1000, None)
    [changed] = shell.rows("db", "limits", "queue_max=5", "running_max=2")
    assert changed == before | {"queue_max": 5, "running_max": 2}
    assert shell.rows("db", "limits") == [changed]
    assert shell.rows("db", "limits", "--project", "another") == [before]
    assert shell.rows("db", "limits", "queue_max=default", "running_max=default") == [before]
    assert "running_max" in shell.helio("db", "limits").stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("queue=5", "there is no limit queue; did you mean queue_max?"),
        ("queue_max", "a change must be NAME=NUMBER or NAME=default"),
        ("queue_max=0", "queue_max must be a whole number from 1 to 2147483647"),
        ("queue_max=99999999999", "queue_max must be a whole number"),
        ("queue_max=many", "queue_max must be a whole number"),
        ("project_id=1", "there is no limit project_id"),
    ],
)
def test_invalid_limit_value_is_rejected_and_changes_nothing(shell: Shell, change: str, message: str) -> None:
    done = shell.helio("db", "limits", change, "depth_max=1")
    assert (done.returncode, message in done.stderr) == (2, True)
    [limits] = shell.rows("db", "limits")
    assert limits["depth_max"] == 20


async def test_unused_wire_is_removed(shell: Shell, database_url: str) -> None:
    assert await helio(shell, "db", "wires") == (
        0,
        "no wire: no events are published; helio db wires --declare postgres publishes them\n",
    )
    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.ledger.declare_wire("nats")
        await runtime.run(APP.workflow, {})
        assert shell.rows("db", "wires")[0]["wire"] == "nats"
        assert len(await runtime.ledger.read_outbox()) == 1
        assert {row["wire"] for row in shell.rows("db", "wires", "--declare", "postgres")} == {"nats", "postgres"}
        code, _ = await helio(shell, "db", "wires", "--forget", "nats")
        assert (code, await helio(shell, "db", "wires", "--forget", "nats")) == (
            0, (3, "error: project default has no wire nats; helio db wires lists them\n"),
        )  # fmt: skip
        await runtime.worker(APP.workflow).watchdog.relay()
        assert await runtime.ledger.read_outbox() == []


@pytest.mark.more
@pytest.mark.proves("CB-06")
async def test_breakers_are_listed_with_their_state(shell: Shell, database_url: str) -> None:
    assert await helio(shell, "db", "breakers") == (0, "no target behind a circuit breaker has failed\n")
    app = Heliograph("failing")

    @app.agent(activate_on=["workflow:start"])
    async def pay(ctx: Context) -> None:
        for _ in range(2):
            with suppress(ToolFailed):
                await ctx.step(Step("charge", effect="idempotent", circuit_breaker={"failure_threshold": 1}), fail)

    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.run(app.workflow, {})
        [row] = shell.rows("db", "breakers")
        assert (row["signal"], row["target"], row["state"]) == ("tool_call", "charge", "open")
        code, text = await helio(shell, "db", "breakers")
        assert code == 0
        assert text.splitlines()[1].split()[:3] == ["tool_call", "charge", "open"]


def fail() -> None:
    raise RecoverableError("down")


@pytest.mark.proves("RTE-08")
async def test_rates_are_listed_with_their_limits(shell: Shell, database_url: str) -> None:
    assert await helio(shell, "db", "rates") == (0, "no call with a rate limit was made\n")
    app = Heliograph("limited")

    @app.agent(activate_on=["workflow:start"])
    async def search(ctx: Context) -> None:
        await ctx.step(Step("search", rate_limit="10/m"), str)

    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.run(app.workflow, {})
        [row] = shell.rows("db", "rates")
        assert (row["kind"], row["name"], row["tokens_max"], row["seconds"]) == ("tool", "search", 10, 60)
        code, text = await helio(shell, "db", "rates")
        assert code == 0
        assert text.splitlines()[1].split()[:5] == ["tool", "search", "10", "in", "60"]
        assert await helio(shell, "db", "rates", "--reset", "tool", "search") == (0, text)
        assert await helio(shell, "db", "rates", "--reset", "tool", "other") == (
            3, "error: project default has no rate limit tool other; helio db rates lists them\n",
        )  # fmt: skip


async def test_doctor_warns_of_unclaimed_work(shell: Shell, database_url: str) -> None:
    async with open_runtime(Settings(database_url)) as runtime:
        await runtime.start(APP.workflow, {}, "lonely")
        await runtime.database.fetch("update heliograph.agent_state_head set moved_at = moved_at - interval '1 hour'")
    code, text = await helio(shell, "db", "doctor")
    assert code == 0
    [printed] = [line for line in text.splitlines() if " L2 " in line]
    assert printed.startswith(
        "warning   L2 nobody claims a turn that is ready: a worker, sweep_bells: lonely/only, since "
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("db", "prune", "--older-than", "30d"),
        ("db", "limits"),
        ("db", "wires"),
        ("db", "breakers"),
        ("db", "rates"),
        ("db", "doctor"),
        ("db", "roles"),
        ("db", "grant", "shop", "--role", "api"),
        ("db", "revoke", "shop"),
    ],
)
def test_maintenance_without_a_database_finds_nothing_and_creates_none(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    shell = open_shell(tmp_path, None)
    done = shell.helio(*arguments)
    assert (done.returncode, "there is no database in" in done.stderr) == (3, True)
    assert not (tmp_path / "home").exists()
