"""The options of the message that activated a turn, for a fork that starts the turn again."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id, split_signal_id
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import ActivatedTurn
from heliograph.signals.model import LogEntry, Signal
from heliograph.types import JsonObject


async def message_options(reader: Reader, activation: LogEntry, turn: ActivatedTurn) -> JsonObject | None:
    """Return what an activation needs of the message behind a turn; None if a reaction activated the turn.

    A callback is not an option of the new turn: its receiver waits for the first one.
    """
    if not _may_be_of_message(activation):
        return None
    first = await reader.signals(activation.run_id, activation.commit_seq - 1, 1)
    if not first or not _is_of_message(first[0], activation, turn):
        return None
    options: JsonObject = {
        "priority": turn.priority, "pool": turn.pool, "max_attempts": turn.max_attempts, "message_type": turn.message_type,
        "ttl_seconds": (turn.expires_at - turn.created_at).total_seconds(),
    }  # fmt: skip
    if turn.actor is not None:
        options["actor"] = turn.actor
    if turn.result_fields is not None:
        options["result_fields"] = list(turn.result_fields)
    own = [row for row in await reader.budgets(turn) if row.turn_id == turn.turn_id]
    return {**options, "budget": {row.kind: row.amount_max for row in own}} if own else options


def _may_be_of_message(activation: LogEntry) -> bool:
    """Whether the first signal of the commit can be a message, or the start of a fork; saves a query for usual activations.

    A message is the cause of its activation, which follows it; it does not begin a log. A fork has its causes in the log that it shares.
    """
    cause = split_signal_id(str(activation.parent))
    if cause is None or cause[1] < activation.commit_seq:
        return True
    return cause[1] == activation.commit_seq > 1 and activation.seq == activation.commit_seq + 1


def _is_of_message(first: Signal, activation: LogEntry, turn: ActivatedTurn) -> bool:
    """Whether a message activated a turn. first: the first signal of the commit that did.

    A message and the activation are a commit of their own, and no agent emits the message. A fork says it of the turns that it has
    started again.
    """
    if first.name == "workflow:forked":
        payload: Any = first.payload
        return any(
            line.get("new_turn_id") == turn.turn_id and line.get("is_message") is True for line in payload["turns"]
        )
    is_cause = activation.parent == signal_id(activation.run_id, activation.commit_seq)
    return (
        is_cause
        and activation.seq == activation.commit_seq + 1
        and first.agent is None
        and first.name != "workflow:start"
    )
