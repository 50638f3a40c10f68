"""Halts that other systems send: each stops a task that the same system has sent, or the run of this task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from heliograph.client.arguments import check_id, check_stop, check_text
from heliograph.client.stops import stop_run, stop_turn
from heliograph.control.envelope import Envelope
from heliograph.control.payloads import HaltPayload
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound
from heliograph.runtime import Runtime
from heliograph.turn.calls import DELEGATION
from heliograph.types import JsonObject

_GRACE_SECONDS = 10.0
_MESSAGE_MAX = 200


@dataclass(frozen=True, slots=True)
class _Run:
    run_id: str
    application: str


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
    is_turn = await _is_turn(runtime, target, applications, envelope.source)
    stopped = await (stop_turn if is_turn else stop_run)(runtime, target, request)
    acknowledged: JsonObject = {"target": target, "outcome": stopped.outcome, "ended_as": stopped.ended_as}
    return {"halt": {key: value for key, value in acknowledged.items() if value is not None}}


async def _is_turn(runtime: Runtime, target: str, applications: Collection[str], source: str) -> bool:
    """Whether a target is a turn. Raises NotFound unless it belongs to a task that this source has sent to these applications."""
    is_turn, run = True, await _run_of_turn(runtime, target)
    if run is None:
        is_turn, run = False, await _run(runtime, target)
    if run is None or run.application not in applications or await _sender_of(runtime, run.run_id) != source:
        raise NotFound(f"{safe_repr(source)} has sent this gateway no task {safe_repr(target)} to halt", code="unknown_target",
                       path="/envelope/destination")  # fmt: skip
    return is_turn


async def _run_of_turn(runtime: Runtime, turn_id: str) -> _Run | None:
    try:
        turn = await runtime.reader.turn(turn_id)
    except NotFound:
        return None
    return _Run(turn.run_id, turn.target)


async def _run(runtime: Runtime, run_id: str) -> _Run | None:
    try:
        return _Run(run_id, (await runtime.reader.run(run_id)).target)
    except NotFound:
        return None


async def _sender_of(runtime: Runtime, run_id: str) -> str | None:
    """The source of the task that started a run; None for runs that no gateway has started."""
    for signal in await runtime.reader.signals(run_id, after=1, limit=1):  # workflow:start is the first
        envelope = signal.payload.get("envelope") if isinstance(signal.payload, dict) else None
        if signal.name == DELEGATION and isinstance(envelope, dict):
            return str(envelope.get("source"))
    return None
