"""End a turn: compute the reaction, commit it with the deliverable, and compute it again if the run moved on."""

from __future__ import annotations

from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.errors import AgentFailed
from heliograph.execution.ownership import gate_of, owned
from heliograph.execution.project_services import Kit
from heliograph.reactive.reaction import Ending, react_to_ending
from heliograph.records import Claimed, RunView
from heliograph.turn.drafts import draft_item


def card_id(claimed: Claimed) -> str:
    """A turn has one deliverable, because that has one id (K21)."""
    return f"card:{claimed.turn_id}:end"


async def deliver(claimed: Claimed, ending: Ending, content: object, kit: Kit) -> None:
    """One gated commit (K1). Raises TurnLost when another epoch owns the turn, AgentFailed when the output does not
    fit the state that it meets, or what the turn says is refused."""
    async with kit.gates.enter(claimed.run_id) as gate:
        gate.view = await _commit(claimed, ending, content, kit, gate.newest(claimed.run))
    kit.ring(f"log:{claimed.run_id}")
    if claimed.parent_turn_id is not None:
        kit.ring(f"report:{claimed.target}")  # somebody waits for this turn


async def _commit(claimed: Claimed, ending: Ending, content: object, kit: Kit, view: RunView) -> RunView:
    """The run after the commit, as far as this worker can tell."""
    world, workflow = kit.world, kit.workflows[claimed.target]
    while True:
        reaction = react_to_ending(workflow, view, ending, world.now(), world.new_id)
        await world.point("before_finish")
        written = owned(await kit.ledger.finish({
            **gate_of(claimed), "outcome": ending.outcome, "content": content,
            "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
        }))  # fmt: skip
        if written.outcome == "refused":
            raise AgentFailed(f"the end of this turn was refused: {written.message}", code=RESOURCE_EXHAUSTED)
        if written.run is None:
            return reaction.applied_to(view, closed=1)
        view = written.run  # conflict: nothing was written, and this is what the run looks like now
