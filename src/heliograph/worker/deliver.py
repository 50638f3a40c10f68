"""End a turn: compute the reaction, commit it with the deliverable, and compute it again if the run moved on."""

from __future__ import annotations

from heliograph.reactive.reaction import Ending, react_to_ending
from heliograph.records import Claimed, RunView
from heliograph.worker.kit import Kit, owned
from heliograph.worker.voice import draft_item


def card_id(claimed: Claimed) -> str:
    """Derived from turn and epoch, so that a retry names the same card (K2)."""
    return f"card_{claimed.turn_id}_{claimed.epoch}"


async def deliver(claimed: Claimed, ending: Ending, content: object, kit: Kit) -> None:
    """One gated commit (K1). Raises TurnLost when another epoch owns the turn, AgentFailed when the output does not
    fit the state that it meets."""
    async with kit.gates.enter(claimed.run_id) as gate:
        gate.view = await _commit(claimed, ending, content, kit, gate.newest(claimed.run))
    kit.world.ring([f"log:{claimed.run_id}"])


async def _commit(claimed: Claimed, ending: Ending, content: object, kit: Kit, view: RunView) -> RunView:
    """The run after the commit, as far as this worker can tell."""
    world, workflow = kit.world, kit.workflows[claimed.target]
    while True:
        reaction = react_to_ending(workflow, view, ending, world.now(), world.new_id)
        await world.point("before_finish")
        written = owned(await kit.ledger.finish({
            "agent_id": claimed.agent_id, "turn_id": claimed.turn_id, "epoch": claimed.epoch,
            "outcome": ending.outcome, "card_id": ending.card_id, "content": content,
            "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
        }))  # fmt: skip
        if written.run is None:
            return reaction.applied_to(view, closed=1)
        view = written.run  # conflict: nothing was written, and this is what the run looks like now
