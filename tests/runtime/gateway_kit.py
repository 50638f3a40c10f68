"""Gateways over real sockets: an ASGI server, and a client that signs its requests."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import uvicorn

from heliograph import Context, Heliograph
from heliograph.control.envelope import read_envelope
from heliograph.errors import DelegationFailed, ToolFailed
from heliograph.gateway import Gateway
from heliograph.policy.webhook_signature import sign_webhook
from tests.runtime.kit import SOON_SECONDS, START, Rig

SECRET, OTHER_SECRET = (f"whsec_{b64encode(bytes([n]) * 32).decode()}" for n in (7, 8))


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def payload(self) -> Any:
        """The payload of the response, which must be a valid envelope."""
        read_envelope(self.body)
        return self.body["envelope"]["signal"]["payload"]

    @property
    def error(self) -> tuple[int, str, str | None]:
        return self.status, self.body["error"]["code"], self.body["error"].get("path")


class Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the signals of the process belong to the test runner


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway that listens on a port."""

    port: int

    async def post(self, wire: Any, *, secret: str = SECRET, at: datetime | None = None, **headers: str) -> Answer:
        """Send an envelope, or bytes, with a signature."""
        body = wire if isinstance(wire, bytes) else json.dumps(wire).encode()
        signed = sign_webhook("message_1", at or datetime.now(UTC), body, [secret])
        return await self.send(body, {**signed, **{name.replace("_", "-"): value for name, value in headers.items()}})

    async def send(self, body: bytes, headers: Mapping[str, str], method: str = "POST") -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            fields = {"host": "gateway", "content-type": "application/json", "content-length": str(len(body)),
                      "connection": "close", **headers}  # fmt: skip
            lines = [f"{method} / HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            async with asyncio.timeout(SOON_SECONDS):
                head, _, content = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.transport.abort()
        first, *rest = head.decode().split("\r\n")
        return Answer(int(first.split()[1]), dict(line.lower().split(": ", 1) for line in rest), json.loads(content))


@asynccontextmanager
async def gateway_of(rig: Rig, *apps: Heliograph, port: int = 0, **options: Any) -> AsyncIterator[Served]:
    """Serve a gateway of these applications, in the rig's project. port: 0 for any."""
    gateway = Gateway(*apps, secrets=[SECRET], url=rig.url, project=rig.runtime.settings.project, **options)
    server = Server(uvicorn.Config(gateway, port=port, lifespan="on", log_level="error", ws="none"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done()
        await asyncio.sleep(0)
    try:
        yield Served(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        await serving


def delegation(agent: str = "double", task: Any = None, *, message_id: str = "msg-1", **payload: Any) -> dict[str, Any]:
    """A delegation in its envelope."""
    given = {"target_agent": agent, "task": {"n": 2} if task is None else task, "correlation_id": "req-1", **payload}
    return envelope({"type": "delegation", "payload": given}, message_id=message_id)


def envelope(signal: Any, *, message_id: str = "msg-1", **fields: Any) -> dict[str, Any]:
    return {"envelope": {
        "id": message_id, "timestamp": "2026-01-15T10:30:00Z", "source": "orchestrator", "destination": "double",
        "trace_id": "trace-abc123", "span_id": "span-def456", "signal": signal, **fields,
    }}  # fmt: skip


def local(url: str, task: Any, *, control_signals: Mapping[str, Any] | None = None, **options: Any) -> Heliograph:
    """An application that delegates to an agent and calls a tool, and has neither of them itself. options: of the delegation."""
    routes = [
        {"match": {"target_agent": "apprais*"}, "destination": {"gateway": url, "priority": "high"}},
        {"match": {"tool_name": "far_*"}, "destination": {"gateway": url}},
    ]
    app = Heliograph("local", routes={"kind": "MessageRouting", "routes": routes}, control_signals=control_signals)

    @app.agent(activate_on=START, updates="seen")
    async def buyer(ctx: Context) -> Any:
        try:
            price = await ctx.delegate("appraiser", task, context={"from": "buyer"}, **options)
        except DelegationFailed as error:
            details: Any = error.error.get("details") or {}
            return [error.code, error.outcome, error.error["code"], *details.values()]
        try:
            return [price, await ctx.call("far_sum", {"a": 1, "b": 2}), await ctx.call("far_none")]
        except ToolFailed as error:
            return [price, error.code, error.details["reason"]]

    return app


@asynccontextmanager
async def allowed(rig: Rig, served: Served) -> AsyncIterator[str]:
    """Let the workers of a rig send calls to a gateway; yield its URL."""
    origin = f"http://127.0.0.1:{served.port}"
    rig.runtime.settings = replace(rig.runtime.settings, gateway_secrets=(SECRET,), egress_allow=origin)
    yield f"{origin}/"


async def run_of(rig: Rig, agent: str) -> str:
    return (await rig.turn_of(agent)).run_id
