"""Send the halts of tasks at gateways. A task is halted if its caller ends or continues without the result of the call.

The commit that closes the call writes the halt, so it survives its worker. Workers repeat it until the gateway has confirmed it.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec

from heliograph.egress.messenger import Messenger
from heliograph.egress.post import PostFailed
from heliograph.error_text import safe_repr
from heliograph.errors import StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.decoding import MARK
from heliograph.policy.egress import EgressRejected
from heliograph.worker.gateway_sender import HIDDEN_SECONDS

log = logging.getLogger("heliograph.worker")

AGAIN_SECONDS = 20.0  # longer than one request may take
ABANDONED_AFTER = timedelta(hours=1)
# A request of the call may still be under way, and start the task after its halt was rejected.
_UNKNOWN_FOR = timedelta(seconds=2 * HIDDEN_SECONDS)
_AT_ONCE = 64  # to one gateway, of one project: a slow gateway delays no halts to others


class HaltSender:
    """Sends the halts of a worker's projects. A closing worker sends the halts that it has taken: others could take them only later."""

    def __init__(self) -> None:
        self._taking: dict[str, asyncio.Future[None]] = {}  # by project
        self._sending: dict[tuple[str, str], set[asyncio.Task[None]]] = {}  # by project and gateway

    async def send(self, services: ProjectServices) -> None:
        """Start to send the halts that are due. This continues even if this call is cancelled. Raises StoreUnavailable."""
        taking = self._taking[services.project] = asyncio.ensure_future(self._send_due(services))
        await asyncio.shield(taking)

    async def settle(self, services: ProjectServices) -> None:
        """Send the halts that are due, and wait for all that are being sent. Raises StoreUnavailable."""
        if (taking := self._taking.pop(services.project, None)) is not None:
            await asyncio.gather(taking, return_exceptions=True)
        try:
            await self._send_due(services)
        finally:
            await asyncio.gather(*(task for tasks in self._running(services.project).values() for task in tasks))

    async def _send_due(self, services: ProjectServices) -> None:
        """Start to send each halt that is due, once, except to gateways that are busy. Raises StoreUnavailable."""
        messenger = services.gateways
        assert messenger is not None
        while True:
            running = self._running(services.project)
            busy = [gateway for gateway, tasks in running.items() if len(tasks) >= _AT_ONCE]
            taken = await services.ledger.take_halts(busy, _AT_ONCE, AGAIN_SECONDS)
            for row in taken:
                sending = asyncio.create_task(_send(services, messenger, row), name="gateway halt")
                self._sending.setdefault((services.project, _gateway_of(row)), set()).add(sending)
            if len(taken) < _AT_ONCE:
                return

    def _running(self, project: str) -> dict[str, set[asyncio.Task[None]]]:
        """Return the halts of a project that are being sent, by gateway, and forget all that have been sent."""
        running = {place: {task for task in tasks if not task.done()} for place, tasks in self._sending.items()}
        self._sending = {place: tasks for place, tasks in running.items() if tasks}
        return {gateway: tasks for (owner, gateway), tasks in self._sending.items() if owner == project}


async def _send(services: ProjectServices, messenger: Messenger, row: dict[str, Any]) -> None:
    """Send one halt. It is due again later if the gateway does not confirm it, or if the database is away."""
    try:
        if await _is_done(messenger, row, services.world.now()):
            await services.ledger.mark_published([row["key"]])
    except StoreUnavailable as error:
        log.warning(
            "halt of call %s of %s was sent, and is sent again: %s", row["call_id"], row["turn_id"], error.message
        )
    except Exception:
        log.exception("halt of call %s of %s failed, and is sent again", row["call_id"], row["turn_id"])


def _gateway_of(row: dict[str, Any]) -> str:
    """Return the URL of the gateway; nothing for a malformed row."""
    body = row.get("body")
    gateway = body.get("gateway") if isinstance(body, dict) else None
    return gateway if isinstance(gateway, str) else ""


async def _is_done(messenger: Messenger, row: dict[str, Any], now: datetime) -> bool:
    """Send one halt. Return True if it must not be sent again. A malformed row affects no other halt."""
    try:
        if MARK in row:
            raise ValueError(row[MARK])
        age = now - datetime.fromisoformat(row["created_at"])
        url, request = row["body"]["gateway"], row["body"]["request"]
        message_id, body = str(request["envelope"]["id"]), msgspec.json.encode(request)
        if not (message_id.isascii() and message_id.isprintable()):
            raise ValueError("the id of the envelope is no header")
    except Exception as error:
        log.error("halt %s is malformed, so it is not sent: %s", row["key"], safe_repr(error))
        return True
    try:
        posted = await messenger.send(url, message_id, body, now)
    except (EgressRejected, PostFailed) as failed:
        return _is_abandoned(row, age, failed.message)
    is_confirmed = 200 <= posted.status < 300 or (posted.status == 404 and age >= _UNKNOWN_FOR)
    if not is_confirmed:  # also by a 401: the secrets may be in the middle of a rotation
        return _is_abandoned(row, age, f"the gateway answered {posted.status}")
    log.info("halt of call %s of %s: the gateway answered %d", row["call_id"], row["turn_id"], posted.status)
    return True


def _is_abandoned(row: dict[str, Any], age: timedelta, reason: str) -> bool:
    if age < ABANDONED_AFTER:
        log.info("halt of call %s of %s: %s; it is repeated", row["call_id"], row["turn_id"], reason)
        return False
    log.warning("halt of call %s of %s: %s; abandoned, so its task at the gateway runs to its end", row["call_id"],
                row["turn_id"], reason)  # fmt: skip
    return True
