"""Stop a turn or a run, and propagate the stop to the turns below it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from heliograph.client.replies import StopResult, unknown_turn
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound, Rejected, SetupError, StoreUnavailable
from heliograph.runtime import Runtime
from heliograph.world.seam import bell_keys


async def stop_turn(runtime: Runtime, turn_id: str, request: dict[str, Any]) -> StopResult:
    """Stop a turn and then its children. `request` comes from `check_stop`."""
    item = {"turn_id": turn_id, **request}
    [result] = await runtime.ledger.stop([item])
    if result.outcome == "unknown_turn":
        raise unknown_turn(turn_id, runtime.settings.project)
    with suppress(NotFound, StoreUnavailable):
        turn = await runtime.reader.turn(turn_id)
        await _propagate_stop(runtime, turn.run_id)  # each child is stopped in a transaction of its own
    return StopResult(result.outcome, result.turn_outcome)


async def stop_run(runtime: Runtime, run_id: str, request: dict[str, Any]) -> StopResult:
    """Stop a run and each of its turns. `request` comes from `check_stop`."""
    item = {"run_id": run_id, **request}
    [result] = await runtime.ledger.stop_runs([item])
    if result.outcome == "unknown_run":
        project = runtime.settings.project
        raise NotFound(
            f"no run {safe_repr(run_id)} in project {project}; helio run list lists the newest", code="unknown_run"
        )
    with suppress(NotFound, StoreUnavailable):
        await _propagate_stop(runtime, run_id)
    return StopResult(result.outcome, result.run_outcome)


async def close_session(runtime: Runtime, run_id: str) -> bool:
    """Let a session end after its replies; return False if it has ended. Raises NotFound (`unknown_run`), Rejected (`no_session`)."""
    [result] = await runtime.ledger.stop_runs([{"run_id": run_id, "mode": "close"}])
    if result.outcome == "unknown_run":
        raise NotFound(f"no session {safe_repr(run_id)} in project {runtime.settings.project}", code="unknown_run")
    if result.outcome == "no_session":
        raise Rejected(
            f"run {run_id} is no session, so nothing closes it; helio run stop {run_id} ends it", code="no_session"
        )
    with suppress(NotFound, StoreUnavailable):
        await _propagate_stop(runtime, run_id)
    return result.outcome == "stopping"


async def _propagate_stop(runtime: Runtime, run_id: str) -> None:
    """Deliver the stops that wait in the outbox, and wake the workers of the run's application (K25).

    The stop itself is committed, and workers do the same in their sweeps, so a failure here does not change the result.
    """
    run = await runtime.reader.run(run_id)
    with suppress(SetupError):  # a login may have the right to request stops and no right to sweep
        await runtime.ledger.sweep("stops")
    names = [f"reaction:{run.target}", f"report:{run.target}"]
    runtime.world.ring(bell_keys(runtime.ledger.project, names))
