"""A PostgreSQL server for chaos alone: with default durability, on its own disk, stopped and started by faults.

It uses the binaries of the embedded server, but this module supervises it. The product's guard would start and stop it at
other times than chaos does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import asyncpg

from heliograph.embedded.cluster import SOCKET, Cluster, find_binaries
from heliograph.embedded.process import FIXED_ENVIRONMENT, LAUNCHER, Lock, choose_identity
from tests.journeys.chaos.away import AWAY

VERSION = 18
START_SECONDS = 60.0
STOP_SECONDS = 30.0
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "min_wal_size": "32MB",
    "max_wal_size": "128MB",
    "checkpoint_timeout": "30s",  # so that crashes come at every distance from the last one
    "deadlock_timeout": "200ms",
    "authentication_timeout": "3s",  # a connection that is held before its first byte would delay every stop
    "log_line_prefix": "%m [%p] %e ",  # checks.py reads the SQLSTATE
    "log_checkpoints": "off",
}

StopMode = Literal["fast", "immediate"]
_SIGNALS: Mapping[StopMode, signal.Signals] = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class PostgresServer:
    """One database cluster in the folder `home`. environment: variables for the server's processes alone."""

    def __init__(self, home: Path, environment: Mapping[str, str] | None = None):
        home.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        self.files = Cluster(home.resolve(), VERSION, find_binaries(VERSION))
        self._environment = {**FIXED_ENVIRONMENT, "PATH": os.environ.get("PATH", ""), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping: StopMode | None = None
        self._identity = choose_identity(self.files.data, [self.files.home, self.files.bin / "postgres"])

    @property
    def url(self) -> str:
        """The URL of the server's socket, which bypasses the proxy."""
        return self.files.url()

    @property
    def socket(self) -> Path:
        return self.files.socket_folder() / SOCKET

    async def make(self) -> None:
        """Create the cluster and an empty database, and start the server."""
        gate = Lock(self.files.path("gate"))
        try:
            await asyncio.to_thread(self.files.make, self._identity, gate.fd, START_SECONDS)
        finally:
            gate.close()
        await self.start()

    async def start(self) -> None:
        """Start the server unless it runs, and return after its recovery. Raises RuntimeError with the end of its log."""
        if self._stopping is not None:
            await self._wait_stopped(self._stopping)  # the task that stopped it may have been cancelled in the middle
        if self.is_running:
            return
        self.files.clear_leftovers()
        since = self.files.log.stat().st_size if self.files.log.exists() else 0
        self._process = self._launch()
        until = time.monotonic() + START_SECONDS
        while not self.files.is_answering():
            if not self.is_running or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start: {self.files.log_tail(since)}")
            await asyncio.sleep(0.01)

    def _launch(self) -> subprocess.Popen[bytes]:
        command = [str(part) for part in self.files.server_command(dict(SETTINGS))]
        with self.files.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(LAUNCHER), self._identity.word, "wait", *command],
                env=self._environment, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def stop(self, mode: StopMode) -> None:
        """Stop the server. fast: it rolls back open transactions and writes a checkpoint; immediate: as in a crash."""
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._stopping = mode
            await self._wait_stopped(mode)

    async def _wait_stopped(self, mode: StopMode) -> None:
        assert self._process is not None
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"PostgreSQL did not stop ({mode}) within {STOP_SECONDS:g} s") from None
        self._stopping = None

    async def recover(self) -> None:
        """Wait until the server answers a query after a crash, and start it again if it has ended.

        A fast stop that meets PostgreSQL 18 in the middle of this leaves it hanging, neither up nor down.
        """
        until = time.monotonic() + START_SECONDS
        while not await self._answers():
            if time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not recover: {self.files.log_tail(0)}")
            await self.start()
            await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        try:
            connection = await asyncpg.connect(self.url, timeout=5)
            try:
                return bool(await connection.fetchval("select true", timeout=5))
            finally:
                connection.terminate()
        except AWAY:
            return False

    def end(self) -> None:
        """Kill the server at the end of the chaos."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        link = self.files.socket_folder()
        if link.is_symlink():
            link.unlink()
