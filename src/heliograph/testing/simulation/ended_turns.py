"""Read the ended turns of the kernel of a simulation, like 89_ended_turns.sql."""

from __future__ import annotations

import msgspec

from heliograph.ledger.rows import EndedTurnRow
from heliograph.testing.kernel.claim import claim_of
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.kernel.jsonb import decode, encode
from heliograph.testing.kernel.limits import content_of
from heliograph.testing.kernel.tables import EPOCH, Row, end_of, microseconds
from heliograph.testing.kernel.transaction import Transaction


def read_ended_turns(kernel: InMemoryKernel, project: str, run_id: str) -> list[EndedTurnRow]:
    """The ended turns of a run, in the order of their activations."""
    tx = Transaction(kernel._tables(project), microseconds(EPOCH), frozenset(), {}, project)
    ended = [turn for turn in tx.tables.turns.values() if turn["run_id"] == run_id and turn["state"] == "done"]
    ended.sort(key=lambda turn: turn["activation_seq"])
    return msgspec.convert(decode(encode([_ended_turn(tx, turn) for turn in ended])), list[EndedTurnRow])


def _ended_turn(tx: Transaction, turn: Row) -> Row:
    head = tx.tables.heads[turn["agent_id"]]
    claimed = claim_of(tx, head, turn, [{"message_type": turn["message_type"], "correlation_id": ""}])
    card = tx.tables.cards.get(end_of(turn["agent_turn_id"]))
    run = {**claimed["run"], "state": {}, "memory": {}}
    return {"claimed": {**claimed, "run": run, "stop": None}, "outcome": turn["outcome"],
            "content": None if card is None else content_of(tx, card["content"])}  # fmt: skip
