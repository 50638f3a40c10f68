"""The parts of a run that nobody recorded: what the ledger has of it (decision 0089).

The part of a turn has its claim with the results of all its calls, and its deliverable. The log of the file has the rest: prompts, deltas,
usage, and the state. So nothing is in the file twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from heliograph.errors import KernelRejected
from heliograph.ids import split_signal_id
from heliograph.ledger.open_turns import UnreadableTurn
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import EndedTurnRow
from heliograph.reactive.run_memory import OPEN, SESSION
from heliograph.recording.entries import is_texts
from heliograph.recording.recording import Gap, Part
from heliograph.records import Card, Claimed, EarlierTurn
from heliograph.signals.model import Signal
from heliograph.turn.earlier_turns import MESSAGE
from heliograph.types import JsonObject

LEDGER = "ledger"  # in the data of a part: what only such parts have
EARLIER = "earlier"  # in it: of the first turn of an agent in a fork of a session, the turns that the fork shares
UNRECORDED = (
    "it was not recorded: its parts come from the ledger, which has no clock, no ids, no order of parallel steps, and of system texts "
    "and tools only hashes"
)
NOT_ENDED = "it has not ended"
ENDED_SINCE = "the ledger does not have its turn: it was pruned, or ended while the run was exported"
SHARED = "its turns before the fork are those of {runs}: export that run, too"
CONTINUED = "it continues a turn of {runs}, which has the signals of its beginning: export that run, too"
PRUNED = "the front of its log is pruned, and with it the state that its turns have read"
DAMAGED = "its first signal, or the memory of the run with the agents of its start, is damaged"


async def ledger_parts(reader: Reader, run_id: str) -> tuple[Sequence[Signal], Iterable[int], list[Part], list[Gap]]:
    """The log of a run, the positions of its untrusted signals, the parts from the ledger, and the gaps between them."""
    turns, memory = await reader.ended_turns(run_id)
    signals, untrusted = await reader.signals_with_trust(run_id)  # after the turns: so it has all signals of each
    parts, gaps = list[Part](), [Gap("run", UNRECORDED)]
    if signals and signals[0].seq > 1:
        return signals, untrusted, parts, [*gaps, Gap("log", PRUNED)]
    shared = " and ".join(dict.fromkeys(s.run_id for s in signals if s.run_id != run_id))
    if shared:
        gaps.append(Gap("start", SHARED.format(runs=shared)))
    elif (part := start_part(run_id, signals, memory)) is None:
        gaps.append(Gap("start", DAMAGED))
    else:
        parts.append(part)
    read, continued, agents = set[str](), _continued_turns(signals, run_id), set[str]()
    for turn in turns:
        turn_id = turn.turn_id if isinstance(turn, UnreadableTurn) else turn.claimed.turn_id
        read.add(turn_id)
        found = (
            Gap(turn_id, CONTINUED.format(runs=shared))
            if turn_id in continued
            else await _part_or_gap(reader, turn, signals)
        )
        if isinstance(found, Gap):
            gaps.append(found)
        else:
            parts.append(found)
            if (
                shared
                and isinstance(turn, EndedTurnRow)
                and turn.claimed.agent not in agents
                and turn.claimed.cause.name == MESSAGE
            ):
                agents.add(turn.claimed.agent)
                ledger: Any = found.data[LEDGER]
                ledger[EARLIER] = await _shared_turns(reader, turn.claimed)
    ended = {s.turn_id for s in signals if s.name in ("agent:completed", "agent:failed")}
    begun = dict.fromkeys(s.turn_id for s in signals if s.turn_id is not None and s.run_id == run_id)
    gaps += [Gap(each, ENDED_SINCE if each in ended else NOT_ENDED) for each in begun if each not in read]
    return signals, untrusted, parts, gaps


async def _part_or_gap(reader: Reader, turn: EndedTurnRow | UnreadableTurn, signals: Sequence[Signal]) -> Part | Gap:
    """The part of a turn; a gap if its records, or the boxes that it could read, were damaged."""
    if isinstance(turn, UnreadableTurn):
        return Gap(turn.turn_id, turn.message)
    last = max((s.timestamp for s in signals if s.turn_id == turn.claimed.turn_id), default=None)
    try:
        boxes = {box: await reader.cards_of_box(box) for box in boxes_of(turn.claimed)}
    except KernelRejected as error:
        return Gap(turn.claimed.turn_id, f"a box that it could read: {error.message}")
    read = {
        box: [card for card in cards if last is not None and card.created_at <= last] for box, cards in boxes.items()
    }
    return turn_part(turn, read)


async def _shared_turns(reader: Reader, claimed: Claimed) -> Any:
    """The turns before the first one of an agent in a fork: those of the runs whose log it shares."""
    place, turns = split_signal_id(claimed.activation_id), list[EarlierTurn]()
    before = 0 if place is None else place[1]
    while page := await reader.earlier_turns(claimed.run_id, claimed.agent, before):
        turns += page
        before = page[-1].seq
    return msgspec.to_builtins([turn for turn in turns if turn.cause.name == MESSAGE])


def _continued_turns(signals: Iterable[Signal], run_id: str) -> set[str]:
    """The turns of a fork that found calls of the turns which they continue."""
    found = set[str]()
    for signal in signals:
        if signal.name == "workflow:forked" and signal.run_id == run_id:
            payload: Any = signal.payload
            found |= {turn["new_turn_id"] for turn in payload.get("turns", ())
                      if "new_turn_id" in turn and any(turn.get(key) for key in ("results", "unknown", "waiting"))}  # fmt: skip
    return found


def start_part(run_id: str, signals: Sequence[Signal], memory: Any) -> Part | None:
    """The start of a run; None if it was damaged. memory: of the run; it keeps the agents with which the run began."""
    payload: Any = signals[0].payload if signals and signals[0].name == "workflow:start" else None
    state = payload.get("state") if isinstance(payload, dict) else None
    agents = memory.get("agents") if isinstance(memory, dict) else None
    if not isinstance(state, dict) or not is_texts(agents):
        return None
    caller: JsonObject = {SESSION: OPEN} if isinstance(payload, dict) and payload.get(SESSION) is True else {}
    return Part("start", {"run_id": run_id, "state": state, "caller": caller, LEDGER: {"agents": agents}}, [])


def turn_part(turn: EndedTurnRow, boxes: Mapping[str, Iterable[Card]]) -> Part:
    """One ended turn. boxes: the cards that it could read, by the ids of their boxes."""
    ledger: JsonObject = {"outcome": turn.outcome, "content": turn.content,
                          "boxes": msgspec.to_builtins({box: list(cards) for box, cards in boxes.items() if cards})}  # fmt: skip
    claimed = msgspec.structs.replace(turn.claimed, ttl_seconds=0.0)  # an export of tomorrow has the same lines
    return Part(turn.claimed.turn_id, {"claimed": msgspec.to_builtins(claimed), LEDGER: ledger}, [])


def boxes_of(claimed: Claimed) -> list[str]:
    """The ids of the boxes whose cards the agent of a turn may read."""
    found = [] if claimed.context_box_id is None else [claimed.context_box_id]
    return found if claimed.output_box_id == f"box_{claimed.turn_id}" else [*found, claimed.output_box_id]


def is_of_ledger(part: Part) -> bool:
    """Whether a part comes from the ledger, and was not recorded."""
    return LEDGER in part.data
