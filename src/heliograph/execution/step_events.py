"""Step events: where a turn is, for those who watch the wire (L0-108). Never a commit, and never a promise."""

from __future__ import annotations

from heliograph.records import Claimed
from heliograph.world.seam import World


def emit_step_event(world: World, claimed: Claimed, step_id: str | None, phase: str) -> None:
    """step_id: the round of calls, or the step, that begins; None where the phase itself begins."""
    world.publish_event(f"evt.agent.{claimed.agent_id}.step", {
        "agent_turn_id": claimed.turn_id, "turn_epoch": claimed.epoch, "step_id": step_id, "phase": phase,
    })  # fmt: skip
