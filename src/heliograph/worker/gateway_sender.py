"""Send calls to gateways: take their commands, POST the envelopes, report the responses.

The command is hidden for a while after it is taken. If its worker dies, another one takes it and sends the same envelope, which
the gateway recognizes. Each request waits for the end of the task at the gateway; if it does not end, the request is sent again,
until the call has a result: that of the gateway, or its own timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from heliograph.codes import DELEGATION_ERROR, TOOL_ERROR
from heliograph.egress.messenger import Messenger
from heliograph.egress.post import Posted, PostFailed
from heliograph.errors import EGRESS_REJECTED, StoreUnavailable
from heliograph.execution.gateway_calls import POLL_SECONDS
from heliograph.execution.project_services import ProjectServices
from heliograph.policy.egress import EgressRejected
from heliograph.policy.retry import RetryPolicy
from heliograph.records import Reported
from heliograph.turn.calls import GATEWAY
from heliograph.types import Json, JsonObject
from heliograph.world.seam import Task

log = logging.getLogger("heliograph.worker")

HIDDEN_SECONDS = 2 * POLL_SECONDS  # no request lasts longer, so that no two workers send the same one at once
BODY_BYTES_MAX = 2_097_152
_LARGE_BYTES = 65_536
_REQUEST_SECONDS_MAX = POLL_SECONDS + 10
_AT_ONCE = (
    64  # to one gateway, of one project: a slow gateway delays neither calls to others nor those of other projects
)
_BETWEEN = RetryPolicy(max_attempts=1000, initial_delay_seconds=0.2, max_delay_seconds=5.0)
_REPORT_AGAIN_SECONDS = 1.0


class GatewaySender:
    """Sends the calls of a worker's projects, each in a task of its own, because one may take long."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, str], list[Task]] = {}  # by project and pool; each gateway is a pool
        self._reading = defaultdict[str, asyncio.Lock](asyncio.Lock)  # by gateway; held while a large response is read

    async def send(self, services: ProjectServices) -> bool:
        """Take the commands that are due, and start to send them; return whether there were any. Raises StoreUnavailable."""
        if services.gateways is None:
            return False
        has_taken = False
        for pool in await services.ledger.command_pools(GATEWAY):
            running = self._running(services.project, pool)
            if (free := _AT_ONCE - len(running)) <= 0:
                continue
            taken = await services.ledger.take_commands([{"tool": GATEWAY, "pool": pool}], free, HIDDEN_SECONDS)
            self._running(services.project, pool).extend(
                services.world.spawn("gateway call", self._send(services, services.gateways, row)) for row in taken
            )
            has_taken = has_taken or bool(taken)
        return has_taken

    def _running(self, project: str, pool: str) -> list[Task]:
        """Return the requests to one gateway that have not ended, and forget all requests that have ended."""
        running = {place: [task for task in tasks if not task.done()] for place, tasks in self._tasks.items()}
        self._tasks = {place: tasks for place, tasks in running.items() if tasks}
        return self._tasks.setdefault((project, pool), [])

    def stop(self) -> None:
        """Cancel all requests. Other workers send them again."""
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    async def _send(self, services: ProjectServices, messenger: Messenger, row: dict[str, Any]) -> None:
        """Send one request, and again until there is a result or another worker may take the command."""
        world, attempt, seconds = services.world, 0, HIDDEN_SECONDS
        if row["deadline"] is not None:  # a request that nobody waits for must not start a task
            seconds = min(seconds, (datetime.fromisoformat(row["deadline"]) - world.now()).total_seconds())
        until = world.monotonic() + seconds
        while (remaining := until - world.monotonic()) > 0:
            attempt += 1
            await world.failpoint("before_gateway_post")
            is_first = attempt == 1 and row["delivery"] == 1
            began_at = world.now()
            posted = await _post(messenger, row, began_at, min(remaining, _REQUEST_SECONDS_MAX), is_first=is_first)
            services.tracer.sent(row["body"]["gateway"], row["body"].get("trace") or {}, began_at, attempt,
                                 posted.status if isinstance(posted, Posted) else None)  # fmt: skip
            report = (
                await self._report_of(services, row, posted, is_first=is_first)
                if isinstance(posted, Posted)
                else posted
            )
            if report is not None:
                await world.failpoint("before_gateway_report")
                await _report(services, row, report, until)
                return
            delay = _BETWEEN.delay_seconds(attempt, row["call_id"])
            if isinstance(posted, Posted):
                delay = max(delay, min(posted.retry_after_seconds, HIDDEN_SECONDS))
            await world.sleep(min(delay, max(0.0, until - world.monotonic())))

    async def _report_of(
        self, services: ProjectServices, row: dict[str, Any], posted: Posted, *, is_first: bool
    ) -> JsonObject | None:
        """Read a response: large ones of a gateway one by one and in a thread, because reading them takes seconds."""
        from heliograph.policy.gateway_answers import report_of  # slow to import, and most workers send nothing

        body = posted.body
        read = partial(report_of, row["body"]["request"], posted.status, body, is_first=is_first)
        if body is None or len(body) <= _LARGE_BYTES:
            return read()
        async with self._reading[row["body"]["gateway"]]:
            return await services.world.run_sync(read)


async def _report(services: ProjectServices, row: dict[str, Any], report: JsonObject, until: float) -> None:
    """Report the result of a call; or the reason why the kernel rejects it, for example its size."""
    reported = await _record(services, row, report, until)
    if reported is not None and reported.outcome in ("rejected", "invalid"):
        await _record(services, row, _failed(row, reported.code, reported.message), until)


async def _record(services: ProjectServices, row: dict[str, Any], report: JsonObject, until: float) -> Reported | None:
    """Record a report; repeat this during an outage of the database, until another worker may take the command. None without success."""
    call = {"turn_id": row["turn_id"], "call_id": row["call_id"], "token": row["body"].get("token")}
    while True:
        try:
            return await services.ledger.report({**call, **report})
        except StoreUnavailable as error:
            if services.world.monotonic() >= until:
                log.warning("the result of call %s of %s was not recorded, so its request is sent again: %s", row["call_id"],
                            row["turn_id"], error.message)  # fmt: skip
                return None
        await services.world.sleep(_REPORT_AGAIN_SECONDS)


async def _post(
    messenger: Messenger, row: dict[str, Any], now: datetime, seconds: float, *, is_first: bool
) -> Posted | JsonObject | None:
    """Make one attempt; return the response, or the report of a request that cannot be sent; None to try again."""
    url, request = row["body"]["gateway"], row["body"]["request"]
    try:
        return await messenger.send(url, request["envelope"]["id"], msgspec.json.encode(request), now, seconds=seconds,
                                    body_bytes_max=BODY_BYTES_MAX, trace=row["body"].get("trace"))  # fmt: skip
    except EgressRejected as error:
        report = _failed(row, EGRESS_REJECTED, f"the gateway is not allowed: {error.message}", egress={"url": url})
        return report if is_first else {**report, "may_still_run": True}
    except PostFailed as error:
        log.info("call %s of %s: %s; it is repeated", row["call_id"], row["turn_id"], error.message)
        return None


def _failed(row: dict[str, Any], reason: str, message: str, **more: Json) -> JsonObject:
    """The report of a call that fails on this side. No gateway can send one with `more`, which only this worker adds."""
    is_tool_call = row["body"]["request"]["envelope"]["signal"]["type"] == "tool_call"
    error: JsonObject = {"code": TOOL_ERROR if is_tool_call else DELEGATION_ERROR, "message": message, "recoverable": False,
                         "details": {"reason": reason}, **more}  # fmt: skip
    return {"status": "failed", "error": error}
