"""Read the tools and the boxes of a turn before it acts.

A turn without a box and without a tool server costs no round trip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.codes import UNDECODABLE
from heliograph.definitions.tool import Tool
from heliograph.errors import AgentFailed, InvalidInput, KernelRejected
from heliograph.execution.owned_turn import OwnedTurn, Resources
from heliograph.execution.step_recorder import store_call
from heliograph.ids import split_signal_id
from heliograph.records import Card, EarlierTurn
from heliograph.tools.bound_tool import BoundTool
from heliograph.tools.toolbox import Toolbox
from heliograph.turn.context_box import context_text, result_fields_in
from heliograph.turn.earlier_turns import MESSAGE, fitting_turns, is_of_session

_FIRST_PAGE = 20  # turns of a conversation: many windows need no more
_PAGE_MAX = 1000


def reads_nothing(owned: OwnedTurn) -> bool:
    """Whether hydration has nothing to read: no context box, and an agent without a model."""
    return not owned.spec.uses_tools and owned.claimed.context_box_id is None


async def hydrate(owned: OwnedTurn, toolbox: Toolbox, *, lists_tools: bool) -> Resources:
    """Read the resources of a claimed turn. Raises TurnLost, and AgentFailed naming a box that is too large or unreadable."""
    tools, error = await _tools_of(owned, toolbox) if lists_tools and owned.spec.uses_tools else ({}, None)
    cards = await _cards_of(owned, owned.claimed.context_box_id)
    try:
        fields = result_fields_in(cards)
    except InvalidInput as wrong:
        raise AgentFailed(f"context box {owned.claimed.context_box_id}: {wrong.message}") from wrong
    earlier, has_all = await _earlier_turns(owned)
    return Resources(tools, error, cards, await _inherited(owned), fields, earlier, has_all)


async def _tools_of(owned: OwnedTurn, toolbox: Toolbox) -> tuple[Mapping[int, Sequence[BoundTool]], Exception | None]:
    """The tools of each toolset, or the error of listing them. The error is raised when the turn acts."""
    found: dict[int, Sequence[BoundTool]] = {}
    try:
        for place, given in enumerate(owned.spec.tools):
            is_one = isinstance(given, Tool)
            tools = (
                [given]
                if is_one
                else await owned.world.within(owned.spec.timeout_seconds, owned.inputs.tools(toolbox, given))
            )
            found[place] = [toolbox.bound(tool) for tool in tools]
    except Exception as error:
        return {}, error
    return found, None


async def _inherited(owned: OwnedTurn) -> Sequence[Card]:
    """The cards by other turns in a replaced output box; the conversation already has the turn's own cards."""
    claimed = owned.claimed
    if owned.spec.prompt is None or claimed.output_box_id == f"box_{claimed.turn_id}":
        return ()
    return await _cards_of(owned, claimed.output_box_id, skips_own=True)


async def _earlier_turns(owned: OwnedTurn) -> tuple[Sequence[EarlierTurn], bool]:
    """The turns that came before in a conversation and fit into the model's window, the newest first; and whether these are all."""
    claimed, spec = owned.claimed, owned.spec
    if spec.prompt is None or not is_of_session(claimed):
        return (), True
    turns, place = list[EarlierTurn](), split_signal_id(claimed.activation_id)
    assert place is not None
    before, limit, room = place[1], _FIRST_PAGE, spec.history_tokens
    while True:
        page = await store_call(owned.ledger.earlier_turns(claimed.run_id, claimed.agent, before, limit))
        answers = [turn for turn in page if turn.cause.name == MESSAGE]
        fitting, room = fitting_turns(answers, room)
        turns += fitting
        if len(fitting) < len(answers) or not page or 1 < len(page) < limit:  # one: of a row that is large
            return turns, len(fitting) == len(answers)
        before, limit = page[-1].seq, _next_page(len(turns), spec.history_tokens - room, room)


def _next_page(count: int, used: int, room: int) -> int:
    """How many turns to read next: those that fill the window if they are as long as the ones before, and a few more."""
    return min(_FIRST_PAGE + count * room // max(used, 1), _PAGE_MAX)


async def _cards_of(owned: OwnedTurn, box_id: str | None, *, skips_own: bool = False) -> Sequence[Card]:
    """The cards of a box. skips_own: without the turn's own cards. Raises AgentFailed for a box that is too large for a model."""
    return () if box_id is None else await store_call(_read(owned, box_id, skips_own=skips_own))


async def _read(owned: OwnedTurn, box_id: str, *, skips_own: bool) -> Sequence[Card]:
    cards = list[Card]()
    try:
        async for page in owned.ledger.pages_of_box(box_id):
            cards += [card for card in page if not (skips_own and card.turn_id == owned.claimed.turn_id)]
            if owned.spec.prompt is not None:
                _check_size(owned, box_id, cards)
    except KernelRejected as error:
        if error.code != UNDECODABLE:
            raise
        raise AgentFailed(f"box {box_id} cannot be read: {error.message}", code=UNDECODABLE) from error
    return cards


def _check_size(owned: OwnedTurn, box_id: str, cards: Sequence[Card]) -> None:
    spec = owned.spec
    size = len(context_text(box_id, cards).encode("utf-8", "surrogatepass"))
    if size > spec.context_bytes_max:
        raise AgentFailed(f"box {box_id} is too large: {len(cards)} of its cards have {size} bytes as a model reads them, and "
                          f"agent {spec.name} reads at most {spec.context_bytes_max}; compose a smaller box, or give the "
                          "agent a larger context_bytes_max")  # fmt: skip
