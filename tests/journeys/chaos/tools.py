"""External tools: processes that take commands, execute them, and report. They can be killed at any moment.

`python -m tests.journeys.chaos.tools client|wire RESULTS`: both receive commands on NATS. `client` also polls for them
with the library's client and reports with it; `wire` reports with SQL alone, like a program in any language. Commands
arrive at least once, so a tool records each execution as a line in a file and reports a repeated command again. Some
reports are sent twice, some have a wrong token, and those of the courier are late. The file RESULTS records the answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError

from heliograph import Client
from heliograph.errors import HeliographError, Rejected, StoreUnavailable
from tests.journeys.chaos.away import AWAY
from tests.journeys.chaos.marks import append_line, append_mark, chance_of, read_lines
from tests.journeys.chaos.skewed import skew_clock
from tests.journeys.chaos.waiting import COURIER, COURIER_SECONDS, PRICE, STOCK, price_of, stock_of

RETRY_SECONDS = 0.2
VISIBLE_SECONDS = 2.0
TWICE, FORGED = 0.2, 0.1  # the shares of reports that are sent twice, and that follow one with a wrong token
DOES: Mapping[str, Callable[[int], int]] = {PRICE: price_of, STOCK: stock_of, COURIER: int}

Send = Callable[[str, int], Awaitable[str]]  # takes the token and the result; returns the outcome
Report = Callable[[str, str], Send]  # of this turn and call


class Tools:
    """Execution of commands. One process at a time serves a tool, so the file is its only memory."""

    def __init__(self, results: Path):
        self._results = results
        effects = read_lines(Path(os.environ["CHAOS_EFFECTS"]))
        self._done = {line.split()[1] for line in effects if line.startswith("tool:")}
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, way: str, tool: str, key: str, arguments: Any, token: str, send: Send) -> None:
        """Execute a command unless it is running; report a second copy like the first. way: the wire that it arrived on."""
        if key not in self._busy:
            self._busy.add(key)
            task = asyncio.create_task(self._do(way, tool, key, arguments["n"], token, send))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _do(self, way: str, tool: str, key: str, n: int, token: str, send: Send) -> None:
        dice = chance_of(key)
        await asyncio.sleep(COURIER_SECONDS * 3 if tool == COURIER else 0.05 * dice)
        if key not in self._done:
            append_mark(f"tool:{tool}", key, "-")
            self._done.add(key)
        result = DOES[tool](n)
        if dice < FORGED:
            await self._report(way, key, "forged", send, "forged", result)
        await self._report(way, key, "true", send, token, result)
        if dice > 1 - TWICE:
            await self._report(way, key, "again", send, token, result)
        self._busy.discard(key)

    async def _report(self, way: str, key: str, kind: str, send: Send, token: str, result: int) -> None:
        """Report until the kernel answers."""
        while True:
            try:
                outcome = await send(token, result)
            except (StoreUnavailable, *AWAY):
                await asyncio.sleep(RETRY_SECONDS)
            else:
                append_line(self._results, f"{way} {key} {kind} {outcome}")
                return


async def serve_client(tools: Tools) -> None:
    async with Client() as client, asyncio.TaskGroup() as both:
        by_client = partial(_by_client, client)
        both.create_task(_subscribe(tools, [PRICE, COURIER], by_client))
        both.create_task(_poll(tools, [PRICE, COURIER], client, by_client))


async def serve_wire(tools: Tools) -> None:
    await _subscribe(tools, [STOCK], _Statements(os.environ["HELIOGRAPH_DATABASE_URL"]).report)


async def _poll(tools: Tools, names: list[str], client: Client, report: Report) -> None:
    while True:
        try:
            async for command in client.commands(names, visible_seconds=VISIBLE_SECONDS):
                key, send = f"{command.turn_id}/{command.call_id}", report(command.turn_id, command.call_id)
                tools.take("asked", command.tool, key, command.arguments, command.token or "", send)
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)


async def _subscribe(tools: Tools, names: list[str], report: Report) -> None:
    async def receive(message: Any) -> None:
        body = json.loads(message.data)
        turn_id, call_id = body["agent_turn_id"], body["tool_call_id"]
        key, send = f"{turn_id}/{call_id}", report(turn_id, call_id)
        tools.take("heard", body["tool_name"], key, body["arguments"], body["token"], send)

    while True:
        lost = asyncio.Event()
        try:
            client = await _listen(lost, names, receive)
        except (OSError, NatsError):
            await asyncio.sleep(RETRY_SECONDS)
            continue
        await lost.wait()
        await client.close()


async def _listen(lost: asyncio.Event, names: list[str], receive: Callable[[Any], Awaitable[None]]) -> NatsClient:
    async def on_lost() -> None:
        lost.set()

    async def ignore(_error: Exception) -> None: ...

    client = NatsClient()
    await client.connect(
        os.environ["HELIOGRAPH_NATS_URL"], allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
        connect_timeout=2, disconnected_cb=on_lost, error_cb=ignore,
    )  # fmt: skip
    for name in names:
        await client.subscribe(f"cmd.tool.{name}", cb=receive)
    return client


def _by_client(client: Client, turn_id: str, call_id: str) -> Send:
    async def send(token: str, result: int) -> str:
        try:
            return await client.report(turn_id, call_id, token=token, result=result)
        except Rejected as refused:
            return refused.code

    return send


class _Statements:
    """Reports as one SQL statement each, on a connection that is replaced after a loss."""

    def __init__(self, url: str):
        self._url = url
        self._connection: Any = None
        self._turn = asyncio.Lock()

    def report(self, turn_id: str, call_id: str) -> Send:
        async def send(token: str, result: int) -> str:
            async with self._turn:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(self._url, timeout=5, command_timeout=5)
                statement = "select heliograph.report_result('default', $1, $2, $3, 'success', $4::jsonb)"
                return str(await self._connection.fetchval(statement, turn_id, call_id, token, json.dumps(result)))

        return send


if __name__ == "__main__":
    skew_clock()
    served = Tools(Path(sys.argv[2]))
    try:
        asyncio.run(serve_client(served) if sys.argv[1] == "client" else serve_wire(served))
    except HeliographError as away:  # the database was away at the start; the replacement of this process tries again
        sys.exit(f"error: {away.message}")
