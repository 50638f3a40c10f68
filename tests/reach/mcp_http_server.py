"""The server of `mcp_server` over HTTP: a process with a port that tests kill and restart."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from heliograph.policy.egress import EgressPolicy

OWN = str(Path(__file__).with_name("mcp_server.py"))


class HttpServer:
    """The same server as a process with a port; `start` returns when the port accepts connections."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def start(self) -> None:
        self._process = _serve(self.port)
        async with asyncio.timeout(60):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    @property
    def egress(self) -> EgressPolicy:
        """A policy that lets its address through."""
        return EgressPolicy(frozenset({f"http://127.0.0.1:{self.port}"}))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _serve(port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, OWN, str(port)], stderr=subprocess.DEVNULL)
