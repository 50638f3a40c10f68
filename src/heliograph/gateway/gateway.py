"""The gateway: an ASGI application that receives control signals from other systems, in signed envelopes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from heliograph.app import Heliograph
from heliograph.codes import INTERNAL_ERROR
from heliograph.config import Settings, read_settings
from heliograph.control.envelope import Envelope
from heliograph.control.payloads import DelegationPayload, HaltPayload, ToolCallPayload
from heliograph.control.signals import DelegationSignal, HaltSignal, ToolCallSignal
from heliograph.errors import HeliographError, InvalidInput, Rejected
from heliograph.gateway.halts import halt
from heliograph.gateway.http import (
    ClientGone,
    Headers,
    Message,
    Receive,
    Send,
    check_content_type,
    error_body,
    log_text,
    read_body,
    send_json,
    wait_for_disconnect,
)
from heliograph.gateway.priorities import read_sources
from heliograph.gateway.received import read_request
from heliograph.gateway.responses import is_ended, status_of
from heliograph.gateway.targets import Target, Targets
from heliograph.gateway.tasks import Tasks, either
from heliograph.policy.webhook_signature import check_secrets
from heliograph.runtime import Runtime, open_runtime, telemetry_of
from heliograph.turn.interruptions import check_seconds
from heliograph.types import JsonObject

log = logging.getLogger("heliograph.gateway")

_INTERNAL: JsonObject = {
    "error": {"code": INTERNAL_ERROR, "message": "the request failed; the log of the gateway has the reason", "recoverable": True}
}  # fmt: skip


class Gateway:
    """An ASGI application that runs tasks for other systems: `gateway = Gateway(app)`, then `uvicorn service:gateway`.

    It accepts POSTs with a `delegation`, a `tool_call` or a `halt` in an envelope. Workers execute the tasks, as usual.

    apps: the applications whose agents execute tasks.
    agents: the names of the agents to expose; None for all that no signal activates (`on_request=True`).
    secrets: the keys of the senders' signatures, as of webhooks; None for HELIOGRAPH_GATEWAY_SECRETS. At least one is required.
    trusted: the senders vouch for the content of their tasks. By default it is untrusted.
    critical_sources: the sources whose tasks may have the priority `critical`, as names or wildcards (`newsroom/*`). The gateway
        lowers `critical` to `high` for all other sources.
    wait_seconds: how long a response may wait for the end of a task, if `timeout_seconds` of the signal allows it.
    url, project: override HELIOGRAPH_DATABASE_URL and HELIOGRAPH_PROJECT.
    Raises InvalidInput.
    """

    def __init__(
        self, *apps: Heliograph, agents: Sequence[str] | None = None, secrets: Sequence[str] | None = None,
        trusted: bool = False, critical_sources: Sequence[str] = (), wait_seconds: float = 60.0, url: str | None = None,
        project: str | None = None,
    ):  # fmt: skip
        self._workflows = [app.workflow for app in apps]
        self._targets = Targets(self._workflows, agents)
        self._secrets = None if secrets is None else check_secrets(secrets)
        self._trusted = trusted
        self._critical_sources = read_sources(critical_sources)
        self._wait_seconds = check_seconds("wait_seconds", wait_seconds, least=0.0)
        self._url = url
        self._project = project
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._runtime: Runtime | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._handle(scope, receive, send)
        else:
            await send({"type": "websocket.close"})

    async def open(self) -> Runtime:
        """Open the database, once. The lifespan of an ASGI server does it, otherwise the first request.

        Raises InvalidInput (`invalid_secret`), SetupError, StoreUnavailable, Rejected.
        """
        async with self._opening:
            if self._runtime is None:
                settings = self._settings()
                if self._secrets is None:
                    self._secrets = check_secrets(settings.gateway_secrets)
                self._runtime = await self._stack.enter_async_context(
                    open_runtime(
                        replace(settings, gateway_secrets=tuple(self._secrets)),
                        telemetry_of(self._workflows, os.environ),
                    )
                )
            return self._runtime

    async def close(self) -> None:
        """Close the database."""
        self._runtime = None
        await self._stack.aclose()

    def _settings(self) -> Settings:
        settings = read_settings(os.environ)
        return replace(
            settings, database_url=self._url or settings.database_url, project=self._project or settings.project
        )

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            try:
                await (self.open() if kind == "lifespan.startup" else self.close())
            except HeliographError as error:
                log.error("the gateway cannot start: %s", error)
                await send({"type": f"{kind}.failed", "message": str(error)})
                return
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    async def _handle(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            if scope["method"] != "POST":
                raise Rejected("a gateway accepts only POST", code="method_not_allowed")
            check_content_type(scope["headers"])
            body = await read_body(receive, scope["headers"])
            runtime = await self.open()
            assert self._secrets is not None
            envelope = read_request(scope["headers"], body, self._secrets, runtime.world.now())
            answer = await self._answer(runtime, envelope, scope["headers"], receive)
            if answer is not None:
                await send_json(send, *answer)
        except ClientGone:
            return
        except HeliographError as error:
            status = status_of(error)
            log.info("a request was rejected with %d: %s", status, log_text(error))
            await send_json(send, status, error_body(error), [("allow", "POST")] if status == 405 else [])
        except Exception:
            log.exception("a request failed")
            await send_json(send, 500, _INTERNAL)

    async def _answer(
        self, runtime: Runtime, envelope: Envelope, headers: Headers, receive: Receive
    ) -> tuple[int, JsonObject] | None:
        """Return the status and the body of the response; None if the client has gone."""
        payload = envelope.signal.payload
        match payload:
            case HaltPayload():
                return 200, await halt(runtime, envelope, self._targets)
            case DelegationPayload():
                target = self._targets.agent(payload.target_agent)
            case ToolCallPayload():
                target = self._targets.tool(payload.tool_name)
            case _:
                accepted = ", ".join(("delegation", "tool_call", "halt"))
                raise InvalidInput(f"a gateway accepts {accepted}, not {envelope.signal.type}", code="unsupported_signal",
                                   path="/envelope/signal/type")  # fmt: skip
        tasks = Tasks(runtime, trusted=self._trusted, critical_sources=self._critical_sources)
        return await self._run(tasks, target, envelope, headers, receive)

    async def _run(
        self, tasks: Tasks, target: Target, envelope: Envelope, headers: Headers, receive: Receive
    ) -> tuple[int, JsonObject] | None:
        turn_id = await tasks.accept(target, envelope, headers)
        waiting = asyncio.create_task(tasks.wait_for_end(turn_id, self._seconds(envelope)), name="gateway-wait")
        gone = asyncio.create_task(wait_for_disconnect(receive), name="gateway-disconnect")
        turn = await either(waiting, gone)
        if turn is None:
            return None
        response = await tasks.respond(envelope, turn)
        return 200 if is_ended(turn) else 202, response.to_wire()

    def _seconds(self, envelope: Envelope) -> float:
        """How long the response may wait. A delegation whose result goes to a callback does not wait."""
        signal = envelope.signal
        assert isinstance(signal, DelegationSignal | ToolCallSignal | HaltSignal)
        if signal.async_ and getattr(signal.payload, "callback", None) is not None:
            return 0.0
        return self._wait_seconds if signal.timeout_seconds is None else min(self._wait_seconds, signal.timeout_seconds)
