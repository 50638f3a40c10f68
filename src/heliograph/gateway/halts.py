"""Halts that other systems send: each stops a task that the same system has sent, or the run of this task."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from heliograph.client.arguments import check_id, check_stop, check_text
from heliograph.client.stops import stop_run, stop_turn
from heliograph.control.envelope import Envelope
from heliograph.control.signals import HaltSignal
from heliograph.definitions.ranges import GRACE_SECONDS_MAX, check_range
from heliograph.definitions.signal_settings import GRACE_SECONDS
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound
from heliograph.gateway.received import task_key, turn_of_task
from heliograph.gateway.targets import Targets
from heliograph.ledger.rows import RunRow, TurnRow
from heliograph.runtime import Runtime
from heliograph.turn.calls import DELEGATION
from heliograph.types import JsonObject

_MESSAGE_MAX = 200

_Row = TypeVar("_Row", TurnRow, RunRow)


async def halt(runtime: Runtime, envelope: Envelope, targets: Targets) -> JsonObject:
    """Stop a task or a run, and return the acknowledgement. A repeated halt has no effect, except to shorten the grace.

    The envelope's destination is the task or the run. If the payload has the correlation id of a request, it is the agent or tool of
    this request. The grace is `force_after_seconds` of the halt, or else of the application.
    Raises NotFound (`unknown_target`, `unknown_agent`), InvalidInput, StoreUnavailable.
    """
    signal = envelope.signal
    assert isinstance(signal, HaltSignal)
    payload, seconds = signal.payload, signal.force_after_seconds
    if seconds is not None:
        check_range(seconds, 0, GRACE_SECONDS_MAX, "/envelope/signal/force_after_seconds")
    if payload.correlation_id is None:
        target = check_id(envelope.destination, "the task or run to halt", "/envelope/destination")
    else:
        agent = targets.agent(envelope.destination, "/envelope/destination")
        target = turn_of_task(task_key(runtime.settings.project, agent.key, envelope.source, payload.correlation_id))
    reason = payload.reason if payload.message is None else f"{payload.reason}: {payload.message[:_MESSAGE_MAX]}"
    actor = check_text(envelope.source, "the source", "/envelope/source")
    found = await _find_task(runtime, target, targets, envelope.source)
    if seconds is None:
        seconds = targets.applications[found.target].grace_seconds
    grace = GRACE_SECONDS if seconds is None else seconds
    request = check_stop(now=not payload.graceful, grace_seconds=grace, reason=reason, actor=actor)
    stopped = await (stop_turn if isinstance(found, TurnRow) else stop_run)(runtime, target, request)
    acknowledged: JsonObject = {"target": target, "outcome": stopped.outcome, "ended_as": stopped.ended_as}
    return {"halt": {key: value for key, value in acknowledged.items() if value is not None}}


async def _find_task(runtime: Runtime, target: str, targets: Targets, source: str) -> TurnRow | RunRow:
    """Return the turn or the run to halt. Raises NotFound unless this source has sent its task to these applications."""
    found: TurnRow | RunRow | None = await _find(runtime.reader.turn(target)) or await _find(runtime.reader.run(target))
    if found is None or found.target not in targets.applications or await _sender_of(runtime, found.run_id) != source:
        raise NotFound(f"{safe_repr(source)} has sent this gateway no task {safe_repr(target)} to halt", code="unknown_target",
                       path="/envelope/destination")  # fmt: skip
    return found


async def _find(reading: Awaitable[_Row]) -> _Row | None:
    try:
        return await reading
    except NotFound:
        return None


async def _sender_of(runtime: Runtime, run_id: str) -> str | None:
    """The source of the task that started a run; None for runs that no gateway has started."""
    for signal in await runtime.reader.signals(run_id, after=1, limit=1):  # workflow:start is the first
        envelope = signal.payload.get("envelope") if isinstance(signal.payload, dict) else None
        if signal.name == DELEGATION and isinstance(envelope, dict):
            return str(envelope.get("source"))
    return None
