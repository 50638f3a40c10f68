"""A TCP proxy between the processes and PostgreSQL that cuts, holds, slows and silences connections.

It imitates the four faults of a network:

    cut      both ends receive a reset at once: a reply may be lost after its commit
    hold     nothing passes for a while, then everything does: a write arrives after its lease has expired
    slow     every packet takes longer
    vanish   one end is gone without a message: a process that waits for a reply gets none
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

CHUNK_BYTES = 65_536
FORGOTTEN_SECONDS = 10.0  # then the server finds that the other end of a vanished connection is gone


class _Link:
    """The two halves of one connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter):
        self.client = client
        self.server = server
        self.has_vanished = False
        self.is_over = asyncio.Event()

    def abort(self) -> None:
        for writer in (self.client, self.server):
            writer.transport.abort()


class Proxy:
    """A proxy on a free loopback port. `url`: the server's URL through the proxy."""

    def __init__(self, socket: Path):
        self._socket = socket
        self._links: set[_Link] = set()
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self.delay_seconds = 0.0

    async def open(self) -> int:
        """Start to listen, and return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut(random.Random(), 1.0)
        await asyncio.gather(*(link.is_over.wait() for link in list(self._links)))

    def cut(self, dice: random.Random, share: float) -> int:
        """Reset each connection with the probability `share`, and return their number."""
        chosen = self._choose(dice, share)
        for link in chosen:
            link.abort()
        return len(chosen)

    def vanish(self, dice: random.Random, share: float) -> int:
        """Silence each connection with the probability `share`: from now on it passes nothing."""
        chosen = self._choose(dice, share)
        for link in chosen:
            link.has_vanished = True
            asyncio.get_running_loop().call_later(FORGOTTEN_SECONDS, link.server.transport.abort)
        return len(chosen)

    def hold(self) -> None:
        """Hold all traffic until `release`."""
        self._passes.clear()

    def release(self) -> None:
        self._passes.set()

    def _choose(self, dice: random.Random, share: float) -> list[_Link]:
        return [link for link in list(self._links) if dice.random() < share]

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:  # the server is away; so is this connection
            to_client.transport.abort()
            return
        link = _Link(to_client, to_server)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(link, from_client, to_server))
                both.create_task(self._pump(link, from_server, to_client))
        finally:
            self._links.discard(link)
            link.abort()
            link.is_over.set()

    async def _pump(self, link: _Link, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await self._passes.wait()
                if self.delay_seconds:
                    await asyncio.sleep(self.delay_seconds)
                if not link.has_vanished:
                    target.write(data)
                    await target.drain()
        if link.has_vanished and target is link.client:
            return  # the server closed the connection; the client receives no reset
        target.close()
