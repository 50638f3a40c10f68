"""End a turn: compute the reaction, commit it with the deliverable, and compute it again if the run moved on."""

from __future__ import annotations

from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.errors import AgentFailed
from heliograph.execution.ownership import owner_fields, require_owned
from heliograph.execution.project_services import ProjectServices
from heliograph.reactive.ending import Ending
from heliograph.reactive.reaction import react_to_ending
from heliograph.records import Claimed, RunView
from heliograph.turn.drafts import draft_item


def card_id(claimed: Claimed) -> str:
    """The id of the only deliverable of a turn (K21)."""
    return f"card:{claimed.turn_id}:end"


async def deliver(claimed: Claimed, ending: Ending, content: object, services: ProjectServices) -> None:
    """End the turn in one gated commit (K1).

    Raises TurnLost when another epoch owns the turn. Raises AgentFailed when the current state does not accept the output, or
    the kernel refuses the signals.
    """
    async with services.run_serializers.enter(claimed.run_id) as serializer:
        serializer.view = await _commit(claimed, ending, content, services, serializer.newest(claimed.run))
    services.ring(f"log:{claimed.run_id}")
    if claimed.parent_turn_id is not None:
        services.ring(f"report:{claimed.target}")  # its parent waits for this turn


async def _commit(
    claimed: Claimed, ending: Ending, content: object, services: ProjectServices, view: RunView
) -> RunView:
    """Commit, and compute the reaction again after each conflict. Returns the run as this worker knows it afterwards."""
    world, workflow = services.world, services.workflows[claimed.target]
    while True:
        reaction = react_to_ending(workflow, view, ending, world.now(), world.new_id)
        await world.failpoint("before_finish")
        result = require_owned(await services.ledger.finish({
            **owner_fields(claimed), "outcome": ending.outcome, "content": content,
            "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
        }))  # fmt: skip
        if result.outcome == "refused":
            raise AgentFailed(f"the end of this turn was refused: {result.message}", code=RESOURCE_EXHAUSTED)
        if result.run is None:
            return reaction.applied_to(view, closed=1)
        view = result.run  # conflict: nothing was written; compute again for the current run
