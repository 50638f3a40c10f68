"""Log that a delegated turn is in progress: once, and before any other signal of the turn."""

from __future__ import annotations

from heliograph.execution.owned_turn import OwnedTurn
from heliograph.signals.model import Draft
from heliograph.turn.calls import DELEGATION, RESPONSE
from heliograph.types import JsonObject


def report_in_progress(owned: OwnedTurn) -> None:
    """Emit `delegation_response` with the status in_progress, if this is a delegated turn that has not acted before."""
    claimed, delegation = owned.claimed, owned.claimed.cause.payload
    if claimed.cause.name != DELEGATION or not isinstance(delegation, dict):
        return
    if claimed.has_emitted_signals or any(wait.kind != "inline" for wait in claimed.waits):
        return
    payload: JsonObject = {"id": delegation["id"], "target_agent": claimed.agent, "task_id": claimed.turn_id,
                           "status": "in_progress"}  # fmt: skip
    owned.signals.add_urgent(Draft(RESPONSE, payload, claimed.agent, claimed.activation_id, owned.world.now()))
