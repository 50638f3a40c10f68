"""End a turn: compute the reaction, commit it with the deliverable, and compute it again if the run moved on."""

from __future__ import annotations

from collections.abc import Callable

from heliograph.codes import RESOURCE_EXHAUSTED, RESULT_MISSING
from heliograph.definitions.fields import problems_of
from heliograph.errors import AgentFailed
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.run_serializer import RunSerializer
from heliograph.reactive.ending import Ending
from heliograph.reactive.react import react_to_ending
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.run_end import TOO_LARGE, state_too_large
from heliograph.records import RunFailure
from heliograph.turn.drafts import draft_items
from heliograph.turn.events import Deliver
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.types import Json, JsonObject


async def deliver(
    owned: OwnedTurn,
    services: ProjectServices,
    effect: Deliver,
    emitted: tuple[tuple[str, Json], ...],
    usage: tuple[int, int],
) -> None:
    """End the turn in one commit. emitted, usage: see `Ending`.

    Raises TurnLost when another epoch owns the turn. Raises AgentFailed when the output lacks required fields, when the
    current state does not accept it, or when the kernel rejects the signals.
    """
    if effect.outcome == "success":
        _check_fields(owned, effect.output)
    claimed = owned.claimed
    ending = Ending(
        agent=claimed.agent, turn_id=claimed.turn_id, activation_id=claimed.activation_id, outcome=effect.outcome,
        card_id=f"card:{claimed.turn_id}:end", output=effect.output, error=effect.error, drafts=await owned.signals.take(),
        emitted=emitted, usage=usage, is_untrusted=owned.taint.is_tainted,
    )  # fmt: skip
    content: JsonObject = {**effect.content, "trust": UNTRUSTED} if ending.is_untrusted else effect.content
    with services.run_serializers.enter(claimed.run_id) as serializer:
        reaction, is_confirmed = await _commit(owned, services.ledger.may_follow, serializer, ending, content)
    if services.metrics is not None:
        owned.signals.count(ending.drafts)
        services.metrics.ended(claimed.agent, ending.outcome)
    owned.trace.reacted(reaction)
    if is_confirmed and reaction.status == "ended":
        services.local_runs.record_end(services.ledger.project, claimed.run_id, claimed.target, reaction.drafts)
    services.ring(f"log:{claimed.run_id}")
    if claimed.parent_turn_id is not None:
        services.ring(f"report:{claimed.target}")  # its parent waits for this turn


async def _commit(
    owned: OwnedTurn, may_follow: Callable[[str], bool], serializer: RunSerializer, ending: Ending, content: JsonObject
) -> tuple[Reaction, bool]:
    """Commit, and compute the reaction again after each conflict. Returns the reaction, and whether the commit was answered `ok`.

    After `duplicate`, an earlier attempt may have committed another reaction.
    """
    world, view = owned.world, owned.claimed.run
    failure: RunFailure | None = None
    while True:
        await serializer.ready(may_follow)
        seen, follows = owned.inputs.newest(serializer, view)
        try:
            reaction = react_to_ending(owned.workflow, seen, ending, world.now(), world.new_id, failure)
        except AgentFailed:
            if follows is None:
                raise
            await serializer.settled()  # the run that this output does not match may never be committed
            continue
        after = reaction.applied_to(seen, closed=1)
        serializer.sending(ending.turn_id, after, ending.output)
        try:
            await world.failpoint("before_finish")
            item = {"outcome": ending.outcome, "content": content, "version": reaction.version,
                    "signals": draft_items(reaction.drafts, owned.claimed.run_id), "reaction": reaction.to_item()}  # fmt: skip
            result = await owned.ledger.finish(item if follows is None else {**item, "follows": follows})
            if result.outcome != "rejected":
                serializer.committed(result.run or after)
        finally:
            serializer.answered()
        if result.code == TOO_LARGE and reaction.status == "ended" and ending.error is not None and failure is None:
            failure = state_too_large(result.message)
        elif result.outcome == "rejected":
            raise AgentFailed(f"the end of this turn was rejected: {result.message}", code=RESOURCE_EXHAUSTED)
        elif result.run is None:
            return reaction, result.outcome == "ok"
        else:
            view = result.run  # conflict: nothing was written; compute again for the current run


def _check_fields(owned: OwnedTurn, output: Json) -> None:
    """Raises AgentFailed for an output without the required fields (L0-84, L0-89)."""
    required = owned.required_fields
    if required and (problems := problems_of(required, output)):
        names = ", ".join(str(field["name"]) for field in required)
        raise AgentFailed(f"agent {owned.claimed.agent} must answer with the fields {names}: {'; '.join(problems)}",
                          code=RESULT_MISSING)  # fmt: skip
