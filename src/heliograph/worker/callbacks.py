"""Tell those who asked by a POST: take what is due, send it, record what came of it.

A worker that dies between the three leaves a try that counts as lost after `HIDDEN_SECONDS`: the next one carries the
same id. So a message arrives at least once, and a receiver knows a second copy by its id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from heliograph.egress.post import PostFailed
from heliograph.errors import HeliographError, format_exception
from heliograph.execution.project_services import ProjectServices
from heliograph.policy.callbacks import again_seconds, is_final, is_taken
from heliograph.policy.egress import EgressRejected
from heliograph.records import Callback
from heliograph.turn.calls import RESPONSE
from heliograph.turn.deliverable import read_output
from heliograph.types import JsonObject

log = logging.getLogger("heliograph.worker")

HIDDEN_SECONDS = 60.0  # longer than a try may take
BODY_BYTES_MAX = 262_144
_AT_ONCE = 16


async def send_callbacks(services: ProjectServices, rounds: int = 100) -> None:
    """Send what is due, a bounded number at a time, until nothing is."""
    for _ in range(rounds):
        taking = asyncio.ensure_future(services.ledger.take_callbacks(_AT_ONCE, HIDDEN_SECONDS))
        tries = list[asyncio.Future[dict[str, Any]]]()
        try:
            if not (taken := await asyncio.shield(taking)):
                return
            tries = [asyncio.ensure_future(_attempt(services, callback)) for callback in taken]
            await services.ledger.record_callbacks(await asyncio.gather(*tries))
        except asyncio.CancelledError:  # this worker ends: somebody else is to try what is left, and at once
            await asyncio.shield(_release_untried(services, taking, tries))
            raise


async def _release_untried(
    services: ProjectServices, taking: asyncio.Future[list[Callback]], tries: Sequence[asyncio.Future[dict[str, Any]]]
) -> None:
    """What was not tried to its end; also what was being taken: the kernel may have hidden it from the others already.

    What came of the other tries is recorded, or a message that has arrived would be sent again.
    """
    results = {result["callback_id"]: result for result in [each.result() for each in tries if not each.cancelled()]}
    with suppress(HeliographError):  # nor may a refusal hide that this worker ends
        if taken := await taking:
            await services.ledger.record_callbacks([results.get(each.callback_id) or _released(each) for each in taken])


def _released(callback: Callback) -> dict[str, Any]:
    return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "failed",
            "error": "its worker was stopped", "again_seconds": 0}  # fmt: skip


async def _attempt(services: ProjectServices, callback: Callback) -> dict[str, Any]:
    """One try, as `record_callbacks` wants to know of it. Whatever goes wrong is this callback's alone."""
    assert services.callbacks is not None
    asked_to_wait, is_hopeless = 0.0, False
    try:
        posted = await services.callbacks.send(
            callback.url, callback.callback_id, body_of(callback), services.world.now()
        )
        if is_taken(posted.status):
            return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "delivered"}
        error, asked_to_wait, is_hopeless = (
            f"answered {posted.status}",
            posted.retry_after_seconds,
            is_final(posted.status),
        )
    except (EgressRejected, PostFailed) as failed:  # a name may lead elsewhere tomorrow, and an allow list be mended
        error = failed.message
    except Exception as unforeseen:
        log.exception("callback %s failed", callback.callback_id)
        error = format_exception(unforeseen, 200)
    again = None if is_hopeless else again_seconds(callback.callback_id, callback.attempt, asked_to_wait)
    log.info("callback %s, try %d: %s%s", callback.callback_id, callback.attempt, error,
             "; given up" if again is None else f"; again in {again:.0f} s")  # fmt: skip
    return {"callback_id": callback.callback_id, "attempt": callback.attempt, "state": "failed", "error": error,
            "again_seconds": again}  # fmt: skip


def body_of(callback: Callback) -> bytes:
    """The message: the response to a delegation (CTL-25), or to the start of a run. The same for every try."""
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
    what: JsonObject = {"result": read_output(content)} if is_good else {"error": content.get("error")}
    return {"type": RESPONSE, "target_agent": callback.agent, "task_id": callback.turn_id, "id": callback.call_id, **common,
            "deliverable_card_id": callback.card_id, **what}  # fmt: skip
