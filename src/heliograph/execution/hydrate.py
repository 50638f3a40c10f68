"""Read the tools and then the boxes of a turn before it acts. Its head and gate have come with the claim.

A turn without a box and without a tool server costs no round trip here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.codes import UNDECODABLE
from heliograph.definitions.tool import Tool
from heliograph.errors import AgentFailed, InvalidInput, KernelRefused
from heliograph.execution.owned_turn import Held, Resources
from heliograph.execution.steps import reached
from heliograph.records import Card
from heliograph.turn.context_box import context_text, result_fields_in
from heliograph.types import JsonObject


def reads_nothing(held: Held) -> bool:
    """Whether the turn has no box to read, and its agent calls no model: then there is nothing to hydrate."""
    return held.spec.prompt is None and held.claimed.context_box_id is None


async def hydrate(held: Held, *, lists_tools: bool) -> Resources:
    """The resources of a claimed turn.

    Raises AgentFailed naming the box that does not fit or cannot be read, TurnLost.
    """
    tools, error = await _tools_of(held) if lists_tools and held.spec.prompt is not None else ({}, None)
    cards = await _cards_of(held, held.claimed.context_box_id)
    try:
        fields = result_fields_in(cards)
    except InvalidInput as wrong:
        raise AgentFailed(f"context box {held.claimed.context_box_id}: {wrong.message}") from wrong
    return Resources(tools, error, cards, await _inherited(held), fields)


def wanted_fields(held: Held) -> Sequence[JsonObject]:
    """The fields that the deliverable must have: those of the message or the agent, and those that the context box adds."""
    own = held.claimed.result_fields or held.spec.result_fields
    names = {field["name"] for field in own}
    return [*own, *(field for field in held.resources.result_fields if field["name"] not in names)]


def boxes_of(held: Held) -> list[tuple[str, Sequence[Card]]]:
    """The boxes whose cards a model reads, by their ids."""
    claimed, given = held.claimed, held.resources
    found = [(claimed.context_box_id or "", given.cards), (claimed.output_box_id, given.inherited)]
    return [(box_id, cards) for box_id, cards in found if cards]


async def _tools_of(held: Held) -> tuple[Mapping[int, Sequence[Tool]], Exception | None]:
    """The tools of each toolset, or the error of listing them, which may defer the turn only when it acts."""
    toolbox, found = held.kit.toolbox, dict[int, Sequence[Tool]]()
    try:
        for place, given in enumerate(held.spec.tools):
            is_one = isinstance(given, Tool)
            found[place] = [given] if is_one else await held.kit.world.within(
                held.spec.timeout_seconds, toolbox.tools_of(given))  # fmt: skip
    except Exception as error:
        return {}, error
    return found, None


async def _inherited(held: Held) -> Sequence[Card]:
    """The cards by other turns in an output box that replaced the turn's own; its own cards are in its conversation."""
    claimed = held.claimed
    if held.spec.prompt is None or claimed.output_box_id == f"box_{claimed.turn_id}":
        return ()
    return await _cards_of(held, claimed.output_box_id, skips_own=True)


async def _cards_of(held: Held, box_id: str | None, *, skips_own: bool = False) -> Sequence[Card]:
    """The cards of a box; skips_own: without those of the turn. Raises AgentFailed for one that is too large for a model."""
    return () if box_id is None else await reached(_read(held, box_id, skips_own=skips_own))


async def _read(held: Held, box_id: str, *, skips_own: bool) -> Sequence[Card]:
    cards = list[Card]()
    try:
        async for page in held.kit.ledger.pages_of_box(box_id):
            cards += [card for card in page if not (skips_own and card.turn_id == held.claimed.turn_id)]
            if held.spec.prompt is not None:
                _check_fits(held, box_id, cards)
    except KernelRefused as error:
        if error.code != UNDECODABLE:
            raise
        raise AgentFailed(f"box {box_id} cannot be read: {error.message}", code=UNDECODABLE) from error
    return cards


def _check_fits(held: Held, box_id: str, cards: Sequence[Card]) -> None:
    spec = held.spec
    size = len(context_text(box_id, cards).encode("utf-8", "surrogatepass"))
    if size > spec.context_bytes_max:
        raise AgentFailed(f"box {box_id} does not fit: {len(cards)} of its cards have {size} bytes as a model reads them, and "
                          f"agent {spec.name} reads at most {spec.context_bytes_max}; put together a smaller box, or give the "
                          "agent a larger context_bytes_max")  # fmt: skip
