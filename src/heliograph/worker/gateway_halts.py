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
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.decoding import MARK
from heliograph.policy.egress import EgressRejected
from heliograph.worker.gateway_sender import HIDDEN_SECONDS

log = logging.getLogger("heliograph.worker")

AGAIN_SECONDS = 20.0  # longer than one request may take
ABANDONED_AFTER = timedelta(hours=1)
# A request of the call may still be under way, and start the task after its halt was rejected.
_UNKNOWN_FOR = timedelta(seconds=2 * HIDDEN_SECONDS)
_AT_ONCE = 64


class HaltSender:
    """Sends the halts of a worker's projects. A closing worker sends the halts that it has taken: others could take them only later."""

    def __init__(self) -> None:
        self._sending: dict[str, asyncio.Future[None]] = {}

    async def send(self, services: ProjectServices) -> None:
        """Send each halt that is due, once. Sending continues even if this call is cancelled. Raises StoreUnavailable."""
        sending = self._sending[services.project] = asyncio.ensure_future(_send_due(services))
        await asyncio.shield(sending)

    async def settle(self, services: ProjectServices) -> None:
        """Wait for the halts that are being sent, and send those that are due. Raises StoreUnavailable."""
        if (sending := self._sending.pop(services.project, None)) is not None:
            await asyncio.gather(sending, return_exceptions=True)
        await _send_due(services)


async def _send_due(services: ProjectServices) -> None:
    messenger = services.gateways
    assert messenger is not None
    taken = await services.ledger.take_halts(_AT_ONCE, AGAIN_SECONDS)
    if taken:
        now = services.world.now()
        done = await asyncio.gather(*(_is_done(messenger, row, now) for row in taken))
        await services.ledger.mark_published([row["key"] for row, is_done in zip(taken, done, strict=True) if is_done])


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
