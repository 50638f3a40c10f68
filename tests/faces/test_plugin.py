"""The pytest plugin in projects outside this one, and what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from heliograph.embedded.cluster import NoDatabase
from heliograph.testing import database, starting_server
from heliograph.testing.database import TestServer
from heliograph.testing.prepared_databases import PreparedDatabases

PROJECT = {
    "shop.py": """
        from heliograph import Context, Heliograph

        app = Heliograph("shop")

        @app.agent(activate_on=["workflow:start"], emits=["words:counted"], updates="words")
        async def counter(ctx: Context) -> int:
            return len(ctx.state["text"].split())
        """,
    "test_shop.py": """
        import shop
        from heliograph.testing import ApplicationServer, Simulation, contains, in_order, signal, simulate

        async def test_words_are_counted(heliograph_app: ApplicationServer) -> None:
            async with heliograph_app(shop.app) as served:
                result = await served.run({"text": "three short words"})
            assert result.state["words"] == 3
            in_order(result, "workflow:start", "words:counted", "workflow:end")

        @simulate(seeds=2)
        async def test_words_are_counted_under_faults(sim: Simulation) -> None:
            assert (await sim.serve(shop.app).run({"text": "two words"})).state["words"] == 2

        async def test_that_fails(heliograph_app: ApplicationServer) -> None:
            async with heliograph_app(shop.app) as served:
                result = await served.run({"text": "two words"})
            contains(result, signal("state:words:changed", payload={"value": 3}))
        """,
}


def project(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        lines = text.strip("\n").splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip())
        (folder / name).write_text("".join(f"{line[indent:]}\n" for line in lines), encoding="utf-8")
    return folder


def run_pytest(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.more
def test_project_outside_the_tree_uses_the_fixtures_without_any_line_in_conftest(
    tmp_path: Path, postgres: TestServer
) -> None:
    done = run_pytest(project(tmp_path, PROJECT), "-o", "asyncio_mode=auto", "-o", "pythonpath=.",
                      HELIOGRAPH_TEST_DATABASE_URL=postgres.admin_url)  # fmt: skip
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    shown = [line.removeprefix("E").strip() for line in done.stdout.splitlines() if line.startswith("E ")]
    assert "nearest miss: #9 state:words:changed by counter" in shown, done.stdout
    assert "payload /value: expected 3, was 2" in shown


@pytest.mark.more
def test_server_is_ready_before_the_first_test_that_needs_it_begins(tmp_path: Path, postgres: TestServer) -> None:
    files = {
        "conftest.py": """
            import pytest
            from heliograph.testing.starting_server import SERVER

            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_setup(item):
                item.is_ready = SERVER in item.config.stash and item.config.stash[SERVER]._server.done()
            """,
        "test_first.py": """
            def test_with_a_server(request, heliograph_postgres):
                assert request.node.is_ready
            """,
        "test_other.py": """
            def test_without_a_server(request):
                assert not request.node.is_ready
            """,
    }
    folder, url = project(tmp_path, files), postgres.admin_url
    for name in ("test_first.py", "test_other.py"):
        done = run_pytest(folder, name, HELIOGRAPH_TEST_DATABASE_URL=url)
        assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_error_of_a_start_reaches_the_tests_that_need_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_shared: Path) -> TestServer:
        raise NoDatabase("no server")

    monkeypatch.setattr(starting_server, "open_test_server", failing)
    server = starting_server.StartingServer(tmp_path)
    server.wait()
    with pytest.raises(NoDatabase):
        server.result()
    server.close()


def test_project_that_does_not_use_the_plugin_loads_nothing_of_it() -> None:
    code = "import sys, heliograph.testing.plugin; print(sorted(m for m in sys.modules if m.split('.')[0] in {!r}))".format(
        ("heliograph", "asyncpg", "pydantic", "pydantic_core", "msgspec", "rich")
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        loaded.stdout.strip()
        == "['heliograph', 'heliograph.lazy_names', 'heliograph.testing', 'heliograph.testing.plugin']"
    )


def test_plugin_is_registered_once(request: pytest.FixtureRequest) -> None:
    plugins = [name for name, _ in request.config.pluginmanager.list_name_plugin() if "heliograph" in name]
    assert plugins == ["heliograph.testing.plugin"]


def test_environment_without_a_server_receives_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HELIOGRAPH_TEST_DATABASE_URL", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with (
        pytest.raises(NoDatabase, match=r"pip install 'heliograph\[test\]', or set HELIOGRAPH_TEST_DATABASE_URL"),
        database.open_test_server(tmp_path),
    ):
        pass


@pytest.mark.more
async def test_test_waits_less_than_50_ms_for_its_database(
    postgres: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median, where tests last until the next database is ready."""
    await postgres.drop(await postgres.create())  # makes the template

    async def install(_connection: object) -> None:
        raise AssertionError("the schema is copied, not installed again")

    monkeypatch.setattr(database, "install", install)
    databases, waits = PreparedDatabases(postgres), []
    for _ in range(7):
        started = time.perf_counter()
        url = databases.take()
        waits.append(time.perf_counter() - started)
        databases.release(url)
        databases.settle()
    databases.close()
    print(f"median {median(waits) * 1000:.2f} ms, longest {max(waits) * 1000:.1f} ms")
    assert median(waits) < 0.05


class FlakyServer:
    """A server of no databases: while it is down, each call fails."""

    def __init__(self) -> None:
        self.existing: set[str] = set()
        self.is_down = False
        self._numbers = count(1)

    async def create(self) -> str:
        if self.is_down:
            raise ConnectionError("the server is down")
        self.existing.add(url := f"database {next(self._numbers)}")
        return url

    async def drop(self, url: str) -> None:
        if self.is_down:
            raise ConnectionError("the server is down")
        self.existing.remove(url)


def test_test_that_restarts_the_server_neither_fails_the_next_one_nor_leaves_databases() -> None:
    server: Any = FlakyServer()
    databases = PreparedDatabases(server)
    databases.release(databases.take())
    second = databases.take()
    databases.settle()
    server.is_down = True
    databases.release(second)
    third = databases.take()  # it was ready
    databases.settle()
    server.is_down = False
    databases.release(third)
    databases.release(databases.take())
    server.is_down = True
    databases.settle()
    databases._next = None  # as if the next one were not made
    with pytest.raises(ConnectionError):
        databases.take()
    server.is_down = False
    databases.release(databases.take())
    databases.close()
    assert server.existing == set()


def test_interruption_while_a_test_waits_for_its_database_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = FlakyServer()
    databases = PreparedDatabases(server)

    def interrupted(work: Future[str]) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            databases.take()
    databases.close()
    assert server.existing == set()


async def test_template_is_used_only_once_its_installation_is_complete(
    postgres: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(connection: Any) -> None:
        raise KeyboardInterrupt

    template = "heliograph_template_of_a_test"
    monkeypatch.setattr(database, "template_name", lambda: template)
    monkeypatch.setattr(database, "install", interrupted)
    monkeypatch.setattr(postgres, "_has_template", False)
    with pytest.raises(KeyboardInterrupt):
        await postgres.create()
    connection = await asyncpg.connect(postgres.admin_url)
    try:
        assert not await connection.fetchval("select true from pg_database where datname = $1", template)
        await connection.execute(f"drop database {template}_unfinished with (force)")
    finally:
        await connection.close()


async def test_next_database_is_made_and_the_last_one_dropped_while_a_test_runs(
    postgres: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await asyncpg.connect(postgres.admin_url)

    async def existing(*urls: str) -> int:
        names = [urlsplit(url).path.lstrip("/") for url in urls]
        return int(await connection.fetchval("select count(*) from pg_database where datname = any ($1)", names))

    databases = PreparedDatabases(postgres)
    first = databases.take()
    assert databases._next is None  # one test alone makes one database
    databases.release(first)
    second = databases.take()
    assert first != second
    databases.settle()
    assert await existing(first, second) == 1

    async def fail() -> str:
        raise ConnectionError("the server is full")

    monkeypatch.setattr(postgres, "create", fail)
    third = databases.take()  # it is ready
    assert await existing(second, third) == 2
    with pytest.raises(ConnectionError, match="the server is full"):
        databases.take()
    monkeypatch.undo()
    fourth = databases.take()
    databases.settle()
    assert databases._next is not None
    fifth = databases._next.result()
    for url in (second, third, fourth):
        databases.release(url)
    databases.close()
    assert await existing(second, third, fourth, fifth) == 0
    await connection.close()
