"""Fixtures of the reach tests: homes of the embedded PostgreSQL, and an MCP server."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from heliograph.embedded.server import open_embedded
from tests.reach.embedded_kit import eventually, is_gone
from tests.reach.mcp_http_server import HttpServer
from tests.reach.nats_ground import NatsGround
from tests.reach.nats_kit import NatsServer


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """A home that does not exist yet. After the test its servers must exit on their own."""
    folder = tmp_path / "home"
    yield folder
    eventually(lambda: is_gone(folder, 18) and is_gone(folder, 16))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedded") / "home"
    with open_embedded(folder) as server:
        pass
    assert server.wait_stopped(15)
    return folder


@pytest.fixture
def home(empty: Path, made_once: Path) -> Path:
    """A home with a cluster of version 18 whose server was stopped."""
    subprocess.run(
        ["cp", "-rL", "--preserve=mode,timestamps", made_once, empty], check=True
    )  # a fifth of copytree's time
    return empty


@pytest.fixture
def server() -> Iterator[NatsServer]:
    made = NatsServer()
    made.start()
    yield made
    made.kill()


@pytest_asyncio.fixture
async def ground(server: NatsServer) -> AsyncIterator[NatsGround]:
    made = NatsGround(server)
    yield made
    await made.close()


@pytest.fixture
def http() -> Iterator[HttpServer]:
    """An MCP server over HTTP; not started."""
    server = HttpServer()
    yield server
    server.kill()
