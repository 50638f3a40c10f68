"""Helpers of the tests of the embedded PostgreSQL: real processes, real kills, and waits for an expected state."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg

HOLDER = Path(__file__).with_name("embedded_holder.py")


def eventually(is_so: Callable[[], bool], within_seconds: float = 15) -> None:
    """Wait until `is_so` returns true; fail the test after `within_seconds`."""
    deadline = time.monotonic() + within_seconds
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def query(url: str, *statements: str) -> object:
    """Run the statements on a new connection, and return the first value of the last one."""

    async def run() -> object:
        connection = await asyncpg.connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(run())


def is_free(lock: Path) -> bool:
    """Whether no process has locked this file."""
    if not lock.exists():
        return True
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_gone(home: Path, version: int = 18) -> bool:
    """Whether the server and its guard have exited."""
    return all(is_free(home / f"pg{version}.{part}") for part in ("server", "guard"))


def postmaster(home: Path) -> int:
    return int((home / "pg18" / "postmaster.pid").read_text().split()[0])


def guard(home: Path) -> int:
    return int((home / "pg18.guard").read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


class Holder:
    """Another process that uses the server of `home`."""

    def __init__(self, home: Path, version: int = 18) -> None:
        command = [sys.executable, str(HOLDER), str(home), str(version)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def url(self) -> str:
        """Wait until the process uses the server, and return the URL; call it once."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def exit(self) -> None:
        self.process.communicate(timeout=15)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=15)
