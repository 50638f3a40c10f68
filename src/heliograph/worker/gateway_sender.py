"""Send calls to gateways: take their commands, POST the envelopes, report the responses.

The command is hidden for a while after it is taken. If its worker dies, another one takes it and sends the same envelope, which
the gateway recognizes. Each request waits for the end of the task at the gateway; if it does not end, the request is sent again,
until the call has a result: that of the gateway, or its own timeout.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import msgspec

from heliograph.codes import DELEGATION_ERROR, TOOL_ERROR
from heliograph.egress.messenger import Messenger
from heliograph.egress.post import PostFailed
from heliograph.errors import EGRESS_REJECTED
from heliograph.execution.gateway_calls import POLL_SECONDS
from heliograph.execution.project_services import ProjectServices
from heliograph.policy.egress import EgressRejected
from heliograph.policy.retry import RetryPolicy
from heliograph.turn.calls import GATEWAY
from heliograph.types import Json, JsonObject
from heliograph.world.seam import Task

log = logging.getLogger("heliograph.worker")

HIDDEN_SECONDS = 2 * POLL_SECONDS  # longer than one request may take
BODY_BYTES_MAX = 2_097_152
_AT_ONCE = 64
_BETWEEN = RetryPolicy(max_attempts=1000, initial_delay_seconds=0.2, max_delay_seconds=5.0)


class GatewaySender:
    """Sends the calls of a worker's projects, each in a task of its own, because one may take long."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str, str], Task] = {}

    async def send(self, services: ProjectServices) -> bool:
        """Take the commands that are due, and start to send them; return whether there were any. Raises StoreUnavailable."""
        self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}
        free = _AT_ONCE - len(self._tasks)
        if services.gateways is None or free <= 0:
            return False
        taken = await services.ledger.take_commands([GATEWAY], free, HIDDEN_SECONDS)
        for row in taken:
            key = (services.project, row["turn_id"], row["call_id"])
            self._tasks[key] = services.world.spawn("gateway call", _send(services, services.gateways, row))
        return bool(taken)

    def stop(self) -> None:
        """Cancel all requests. Other workers send them again."""
        for task in self._tasks.values():
            task.cancel()


async def _send(services: ProjectServices, messenger: Messenger, row: dict[str, Any]) -> None:
    """Send one request, and again until there is a result or another worker may take the command."""
    world, attempt, seconds = services.world, 0, HIDDEN_SECONDS
    if row["deadline"] is not None:  # a request that nobody waits for must not start a task
        seconds = min(seconds, (datetime.fromisoformat(row["deadline"]) - world.now()).total_seconds())
    until = world.monotonic() + seconds
    while world.monotonic() < until:
        attempt += 1
        await world.failpoint("before_gateway_post")
        if (report := await _attempt(messenger, row, world.now())) is not None:
            await world.failpoint("before_gateway_report")
            await _report(services, row, report)
            return
        await world.sleep(_BETWEEN.delay_seconds(attempt, row["call_id"]))


async def _report(services: ProjectServices, row: dict[str, Any], report: JsonObject) -> None:
    """Report the result of a call; or the reason why the kernel rejects it, for example its size."""
    call = {"turn_id": row["turn_id"], "call_id": row["call_id"], "token": row["body"].get("token")}
    reported = await services.ledger.report({**call, **report})
    if reported.outcome in ("rejected", "invalid"):
        await services.ledger.report({**call, **_failed(row, str(reported.code), str(reported.message))})


async def _attempt(messenger: Messenger, row: dict[str, Any], now: datetime) -> JsonObject | None:
    """Make one attempt; return the result for the report, or None to try again."""
    url, request = row["body"]["gateway"], row["body"]["request"]
    try:
        posted = await messenger.send(url, request["envelope"]["id"], msgspec.json.encode(request), now,
                                      seconds=POLL_SECONDS + 10, body_bytes_max=BODY_BYTES_MAX)  # fmt: skip
    except EgressRejected as error:
        message = f"the gateway {url} is not allowed: {error.message}"
        return _failed(row, EGRESS_REJECTED, message, egress={"url": url})
    except PostFailed as error:
        log.info("call %s of %s: %s; it is repeated", row["call_id"], row["turn_id"], error.message)
        return None
    from heliograph.policy.gateway_answers import report_of  # slow to import, and most workers send nothing

    return report_of(request, posted.status, posted.body)


def _failed(row: dict[str, Any], reason: str, message: str, **more: Json) -> JsonObject:
    """The report of a call that fails on this side. No gateway can send one with `more`, which only this worker adds."""
    is_tool_call = row["body"]["request"]["envelope"]["signal"]["type"] == "tool_call"
    error: JsonObject = {"code": TOOL_ERROR if is_tool_call else DELEGATION_ERROR, "message": message, "recoverable": False,
                         "details": {"reason": reason}, **more}  # fmt: skip
    return {"status": "failed", "error": error}
