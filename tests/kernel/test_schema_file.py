"""The schema as a file, for installers without Python."""

import subprocess

import asyncpg
import pytest

from heliograph.embedded.cluster import find_binaries
from heliograph.ledger.install import install, read_state, whole_sql
from tests.kernel.kit import Kernel
from tests.kernel.schema_objects import objects


def psql(url: str, sql: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(find_binaries(18) / "psql"), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", url],
        input=sql, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.more
async def test_schema_file_creates_the_same_objects_as_install(
    empty_url: str, connection: asyncpg.Connection, kernel: Kernel
) -> None:
    ran = psql(empty_url, whole_sql())
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (await read_state(connection)).is_current
    assert await install(connection) == []
    assert await objects(connection) == await objects(kernel.connection)


@pytest.mark.more
async def test_planner_takes_no_table_of_the_schema_file_for_one_that_remains_empty(
    empty_url: str, connection: asyncpg.Connection
) -> None:
    """A table with reltuples 0 gets plans that read all of it, and connections keep them (0002_planner.sql)."""
    assert psql(empty_url, whole_sql()).returncode == 0
    empty = await connection.fetch(
        "select relname from pg_class where relnamespace = 'heliograph'::regnamespace and relkind = 'r' and reltuples = 0"
    )
    assert {row["relname"] for row in empty} & {
        "runs",
        "agent_turns",
        "agent_state_head",
        "cards",
        "outbox",
        "signals",
    } == set()


@pytest.mark.more
async def test_schema_file_applied_twice_fails_as_a_whole_and_changes_nothing(
    empty_url: str, connection: asyncpg.Connection
) -> None:
    assert psql(empty_url, whole_sql()).returncode == 0
    before = await objects(connection)
    again = psql(empty_url, whole_sql())
    assert again.returncode != 0
    assert "already exists" in again.stderr
    assert await objects(connection) == before
    assert (await read_state(connection)).is_current
