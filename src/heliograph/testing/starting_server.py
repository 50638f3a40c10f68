"""The PostgreSQL server of a test process: a thread starts it before the first test that needs it, so no test contains the time that this takes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from heliograph.testing.database import TestServer, open_test_server

SERVER = pytest.StashKey["StartingServer"]()  # of the configuration of a test process


class StartingServer:
    """Starts a server and makes the template of its databases, in a thread. folder: of all processes of the test run."""

    def __init__(self, folder: Path):
        self._opened = ExitStack()
        thread = ThreadPoolExecutor(1, "heliograph server")
        self._server = thread.submit(self._open, folder)
        thread.shutdown(wait=False)

    def wait(self) -> None:
        """Wait until it has started, or has failed."""
        self._server.exception()

    def result(self) -> TestServer:
        """Return the server. Raises the error of its start."""
        return self._server.result()

    def close(self) -> None:
        self.wait()
        self._opened.close()

    def _open(self, folder: Path) -> TestServer:
        server = self._opened.enter_context(open_test_server(folder))
        asyncio.run(server.prepare())
        return server


def server_of(config: pytest.Config) -> TestServer:
    """Return the server of this test process; start it if no test has. Raises NoDatabase, and the errors of the connection."""
    return _started(config).result()


def start(config: pytest.Config) -> None:
    """Start the server in the background, unless it is started."""
    _started(config)


def wait(config: pytest.Config) -> None:
    """Wait for a server that starts. `server_of` raises its errors."""
    if SERVER in config.stash:
        config.stash[SERVER].wait()


def close(config: pytest.Config) -> None:
    if (server := config.stash.get(SERVER, None)) is not None:
        server.close()


def _started(config: pytest.Config) -> StartingServer:
    if SERVER not in config.stash:
        folder: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # a session has no other way to it than a fixture
        # under xdist each process has a folder below the run's own
        config.stash[SERVER] = StartingServer(folder.parent if hasattr(config, "workerinput") else folder)
    return config.stash[SERVER]
