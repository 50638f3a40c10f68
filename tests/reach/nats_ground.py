"""Shared by the NATS tests: a second client on the same server, and applications that ring."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.doorbell.nats import NatsDoorbell, flushed
from heliograph.runtime import Runtime, open_runtime
from heliograph.testing.conformance import OnWire
from tests.reach.nats_kit import NatsServer

EVERYTHING = ">"


class NatsGround:
    def __init__(self, server: NatsServer):
        self._server = server
        self._opened: list[Client] = []

    def make(self, on_ring: Callable[[list[str]], None]) -> NatsDoorbell:
        return NatsDoorbell(self._server.url, on_ring)

    async def cut(self) -> None:
        await asyncio.to_thread(self._server.kill)

    async def restore(self) -> None:
        await asyncio.to_thread(self._server.start)

    async def forge(self, text: str) -> None:
        client = await self.connect()
        token = "".join(c for c in text if c.isprintable() and c not in " .*>") or "x"
        for subject in (f"cmd.agent.{token}.wakeup", f"heliograph.bell.{token}"):
            await client.publish(subject, text.encode())
        with suppress(NatsError):  # a line that is too long costs its sender the connection
            await flushed(client)

    async def listen(self, pattern: str = "evt.agent.*.task") -> asyncio.Queue[OnWire]:
        """The messages on these subjects; one without a key has the key ''."""
        events: asyncio.Queue[OnWire] = asyncio.Queue()

        async def receive(message: Any) -> None:
            events.put_nowait(
                (message.subject, (message.headers or {}).get("Nats-Msg-Id", ""), json.loads(message.data))
            )

        client = await self.connect()
        await client.subscribe(pattern, cb=receive)
        await flushed(client)
        return events

    async def connect(self) -> Client:
        self._opened.append(await nats.connect(self._server.url, allow_reconnect=False))
        return self._opened[-1]

    async def close(self) -> None:
        for client in self._opened:
            await client.close()


@asynccontextmanager
async def opened(database_url: str, nats_url: str) -> AsyncIterator[Runtime]:
    async with open_runtime(Settings(database_url, nats_url=nats_url)) as runtime:
        yield runtime


def two_steps(between: Callable[[], None] = lambda: None) -> Heliograph:
    """A run of two turns; `between` is called inside the first."""
    app = Heliograph("bells")

    @app.agent(activate_on=["workflow:start"], emits=["halfway"], updates="first")
    def first(_: Context) -> int:
        between()
        return 1

    @app.agent(activate_on=["halfway"], updates="second")
    def second(_: Context) -> int:
        return 2

    return app


async def finishes(runtime: Runtime, app: Heliograph) -> None:
    result = await runtime.run(app.workflow, {})
    assert (result.outcome, result.state) == ("success", {"first": 1, "second": 2})
