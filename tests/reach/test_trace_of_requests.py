"""Requests to other systems have the headers of the trace: MCP and NATS."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from heliograph.doorbell.nats import NatsDoorbell
from heliograph.outbox_records import Event
from heliograph.tools import MCPServer
from heliograph.trace_context import enter_trace, exit_trace
from tests.reach.nats_kit import NatsServer

SERVER = str(Path(__file__).with_name("mcp_trace_server.py"))
JAEGER = {"uber-trace-id": "4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7:0:1"}


class Trace:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    span_id = "00f067aa0ba902b7"

    def headers(self) -> dict[str, str]:
        return JAEGER


@pytest.mark.more
@pytest.mark.proves("OBS-06")
async def test_call_of_an_mcp_tool_has_the_trace_in_its_meta() -> None:
    async with MCPServer([sys.executable, SERVER], name="trace").open_tools() as tools:
        token = enter_trace(Trace())
        with_trace = await tools[0]()
        exit_trace(token)
        without = await tools[0]()
    assert JAEGER.items() <= with_trace.items()
    assert "uber-trace-id" not in without


@pytest.mark.proves("OBS-06")
async def test_command_on_nats_has_the_trace_in_its_headers(server: NatsServer) -> None:
    from nats.aio.client import Client

    bell, client = NatsDoorbell(server.url, lambda _: None), Client()
    await client.connect(server.url)
    try:
        messages = await client.subscribe("cmd.tool.*")
        await client.flush()
        await bell.open()
        for body in ({"trace": JAEGER}, {}):
            await bell.publish([Event(1, "key", "cmd.tool.search", dict(body))])
        headers = [(await asyncio.wait_for(messages.next_msg(), 30)).headers for _ in range(2)]
    finally:
        await bell.close()
        await client.close()
    assert headers == [{**JAEGER, "Nats-Msg-Id": "key"}, {"Nats-Msg-Id": "key"}]
