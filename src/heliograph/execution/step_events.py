"""Step events: the position of a turn, for observers on the wire. Best effort, without a commit."""

from __future__ import annotations

from heliograph.records import Claimed
from heliograph.world.seam import World


def emit_step_event(world: World, claimed: Claimed, step_id: str | None, phase: str) -> None:
    """Publish one. step_id: the step that begins; None where the phase begins."""
    if not world.is_observed:
        return
    world.publish_event(f"evt.agent.{claimed.agent_id}.step", {
        "agent_turn_id": claimed.turn_id, "turn_epoch": claimed.epoch, "step_id": step_id, "phase": phase,
    })  # fmt: skip
