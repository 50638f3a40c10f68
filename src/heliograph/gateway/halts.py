"""Halts that other systems send: they stop a task or a run of the gateway's applications."""

from __future__ import annotations

from collections.abc import Collection

from heliograph.client.arguments import check_id, check_stop, check_text
from heliograph.client.stops import stop_run, stop_turn
from heliograph.control.envelope import Envelope
from heliograph.control.payloads import HaltPayload
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound
from heliograph.runtime import Runtime
from heliograph.types import JsonObject

_GRACE_SECONDS = 10.0
_MESSAGE_MAX = 200


async def halt(runtime: Runtime, envelope: Envelope, applications: Collection[str]) -> JsonObject:
    """Stop the task or the run that is the envelope's destination, and return the acknowledgement. A second halt has no effect.

    Raises NotFound (`unknown_target`), InvalidInput, StoreUnavailable.
    """
    payload, target = (
        envelope.signal.payload,
        check_id(envelope.destination, "the task or run to halt", "/envelope/destination"),
    )
    assert isinstance(payload, HaltPayload)
    reason = payload.reason if payload.message is None else f"{payload.reason}: {payload.message[:_MESSAGE_MAX]}"
    actor = check_text(envelope.source, "the source", "/envelope/source")
    request = check_stop(now=not payload.graceful, grace_seconds=_GRACE_SECONDS, reason=reason, actor=actor)
    is_turn = await _is_turn(runtime, target, applications)
    stopped = await (stop_turn if is_turn else stop_run)(runtime, target, request)
    acknowledged: JsonObject = {"target": target, "outcome": stopped.outcome, "ended_as": stopped.ended_as}
    return {"halt": {key: value for key, value in acknowledged.items() if value is not None}}


async def _is_turn(runtime: Runtime, target: str, applications: Collection[str]) -> bool:
    """Whether a target is a turn. Raises NotFound unless it is a turn or a run of these applications."""
    is_turn, application = True, await _application_of_turn(runtime, target)
    if application is None:
        is_turn, application = False, await _application_of_run(runtime, target)
    if application not in applications:
        raise NotFound(f"this gateway has no task or run {safe_repr(target)} to halt", code="unknown_target",
                       path="/envelope/destination")  # fmt: skip
    return is_turn


async def _application_of_turn(runtime: Runtime, turn_id: str) -> str | None:
    try:
        return (await runtime.reader.turn(turn_id)).target
    except NotFound:
        return None


async def _application_of_run(runtime: Runtime, run_id: str) -> str | None:
    try:
        return (await runtime.reader.run(run_id)).target
    except NotFound:
        return None
