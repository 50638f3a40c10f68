"""Completion webhooks: take the callbacks that are due, send them, record the results.

If a worker dies in between, the attempt counts as lost after `HIDDEN_SECONDS` and is repeated under the same id. A message
therefore arrives at least once, and its id identifies a second copy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from heliograph.egress.messenger import Messenger
from heliograph.egress.post import PostFailed
from heliograph.error_text import format_exception
from heliograph.errors import HeliographError
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.client import Ledger
from heliograph.outbox_records import Callback
from heliograph.policy.callbacks import again_seconds, is_final, is_taken
from heliograph.policy.egress import EgressRejected
from heliograph.turn.calls import RESPONSE
from heliograph.turn.deliverable import read_output
from heliograph.types import JsonObject

log = logging.getLogger("heliograph.worker")

HIDDEN_SECONDS = 60.0  # longer than an attempt may take
BODY_BYTES_MAX = 262_144
_AT_ONCE = 16


async def send_callbacks(services: ProjectServices, rounds: int = 100) -> None:
    """Send the callbacks that are due, a few at a time, until none is due or `rounds` are over."""
    messenger = services.callbacks
    assert messenger is not None
    for _ in range(rounds):
        taking = asyncio.ensure_future(services.ledger.callbacks.take(_AT_ONCE, HIDDEN_SECONDS))
        tries = list[asyncio.Future[dict[str, Any]]]()
        try:
            if not (taken := await asyncio.shield(taking)):
                return
            tries = [asyncio.ensure_future(_traced(services, messenger, callback)) for callback in taken]
            await services.ledger.callbacks.record(await asyncio.gather(*tries))
        except asyncio.CancelledError:  # this worker ends: another one sends the rest at once
            await asyncio.shield(_release_untried(services.ledger, taking, tries))
            raise


async def _release_untried(
    ledger: Ledger, taking: asyncio.Future[list[Callback]], tries: Sequence[asyncio.Future[dict[str, Any]]]
) -> None:
    """Release the callbacks whose attempts were cancelled, and those of an unfinished `take_callbacks`: the kernel hides them.

    Completed attempts are recorded, because a message that has arrived must not be sent again.
    """
    results = {result["callback_id"]: result for result in [each.result() for each in tries if not each.cancelled()]}
    with suppress(HeliographError):  # a rejected call must not replace the cancellation
        if taken := await taking:
            await ledger.callbacks.record([results.get(each.callback_id) or _released(each) for each in taken])


def _released(callback: Callback) -> dict[str, Any]:
    return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "failed",
            "error": "its worker was stopped", "again_seconds": 0}  # fmt: skip


async def _traced(services: ProjectServices, messenger: Messenger, callback: Callback) -> dict[str, Any]:
    """Make one attempt, with its span; the kernel has numbered it."""
    began_at = services.world.now()
    result = await _attempt(services, messenger, callback)
    services.tracer.called_back(callback, began_at, result)
    return result


async def _attempt(services: ProjectServices, messenger: Messenger, callback: Callback) -> dict[str, Any]:
    """Make one attempt; return its result for `record_callbacks`. Any failure affects only this callback."""
    retry_after_seconds, is_hopeless = 0.0, False
    try:
        trace = services.tracer.headers_of(callback.run_id, callback.turn_id, callback.trace)
        posted = await messenger.send(
            callback.url, callback.callback_id, body_of(callback), services.world.now(), trace=trace
        )
        if is_taken(posted.status):
            return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "delivered"}
        error, retry_after_seconds, is_hopeless = (
            f"answered {posted.status}",
            posted.retry_after_seconds,
            is_final(posted.status),
        )
    except (EgressRejected, PostFailed) as failed:  # may pass: the host may move, the allow list be fixed
        error = f"{failed.code}: {failed.message}"
    except Exception as unforeseen:
        log.exception("callback %s failed", callback.callback_id)
        error = format_exception(unforeseen, 200)
    again = None if is_hopeless else again_seconds(callback.callback_id, callback.attempt, retry_after_seconds)
    log.info("callback %s, attempt %d: %s%s", callback.callback_id, callback.attempt, error,
             "; a dead letter" if again is None else f"; again in {again:.0f} s")  # fmt: skip
    return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "failed", "error": error,
            "again_seconds": again}  # fmt: skip


def body_of(callback: Callback) -> bytes:
    """The message: the response to a delegation, or to the start of a run. Every attempt sends the same bytes."""
    body = _response(callback)
    encoded = msgspec.json.encode(body)
    if len(encoded) <= BODY_BYTES_MAX and callback.undecodable is None:
        return encoded
    left_out = [key for key in ("result", "state", "error") if key in body]
    return msgspec.json.encode({k: v for k, v in body.items() if k not in left_out} | {"left_out": left_out})


def _response(callback: Callback) -> JsonObject:
    is_good = callback.outcome in ("success", "partial")
    content = callback.content if isinstance(callback.content, dict) else {}
    common: JsonObject = {"run_id": callback.run_id, "status": "completed" if is_good else "failed",
                          "outcome": callback.outcome, "duration_ms": callback.duration_ms}  # fmt: skip
    if callback.turn_id is None:
        return {"type": "run_response", **common, "state": content}
    result: JsonObject = {"result": read_output(content)} if is_good else {"error": content.get("error")}
    if callback.correlation_id is not None:
        result["correlation_id"] = callback.correlation_id
    return {"type": RESPONSE, "target_agent": callback.agent, "task_id": callback.turn_id, "id": callback.call_id, **common,
            "deliverable_card_id": callback.card_id, **result}  # fmt: skip
