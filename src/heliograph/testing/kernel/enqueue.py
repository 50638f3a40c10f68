"""Deliver messages to agents in memory, like 32_enqueue.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id, split_signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.boxes import reject_context
from heliograph.testing.kernel.budgets import budget_of
from heliograph.testing.kernel.head import bells, payload_of, signal_at
from heliograph.testing.kernel.ids import check, is_reserved, wrong_id, wrong_name
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.limits import limits, over_limit, reject_activations, reject_signals, rejection
from heliograph.testing.kernel.reactions import commit_reactions
from heliograph.testing.kernel.run_forks import owner_at, root_id
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import agent_of


def enqueue(tx: Transaction, messages: Any) -> list[Row]:
    limited, answer = limits(tx), []
    for item in j.elements(messages):
        parent = tx.tables.turns.get(get_text(item, "parent_turn_id"))
        is_of_run = parent is not None and parent["run_id"] == get_text(item, "run_id")  # a budget is of one run
        message = j.joined(item, {"depth": 1 + (-1 if parent is None else parent["depth"]),
                                  "budgets": parent["budgets"] if parent is not None and is_of_run else None,
                                  "sender": signal_id(parent["run_id"], parent["activation_seq"]) if parent is not None else None})  # fmt: skip
        verdict, awake = _reject_message(tx, message, limited) or reject_context(tx, message), list[str]()
        if verdict is None:
            awake = commit_reactions(tx, [_reaction_to(tx, message)], 0)
        answer.append(
            {"turn_id": get_text(message, "turn_id"), "outcome": "queued", **bells(tx, awake), **(verdict or {})}
        )
    return answer


def _reaction_to(tx: Transaction, message: Row) -> Row:
    run_id, agent = (get_text(message, key) for key in ("run_id", "agent"))
    assert run_id is not None
    parent = get_text(message, "cause") or get_text(message, "sender") or root_id(tx.tables, run_id)
    sent = {"name": get_text(message, "name"), "payload": payload_of(message), "parent": parent}
    woken = {"name": "agent:activated", "parent": 0, "agent": agent, "payload": {"agent": agent}}
    activation = {key: value for key, value in message.items() if key not in ("parent_turn_id", "sender")}
    reaction: Row = {"activations": [{**activation, "cause": 0, "activation": 1}]}
    if get_text(message, "parent_turn_id") is None:
        reaction["is_message"] = True
    return {"run_id": run_id, "signals": [sent, woken], "reaction": reaction}


def _reject_message(tx: Transaction, message: Any, limited: Row) -> Row | None:
    """Reject a message to an unknown agent or an ended run, and recognize a repeated one. Bug: enqueue_no_dedup."""
    run_id, turn_id = get_text(message, "run_id"), get_text(message, "turn_id")
    if turn_id in tx.tables.turns and "enqueue_no_dedup" not in tx.bugs:
        return {"outcome": _same_message(tx, message)}
    run = tx.tables.runs.get(run_id)
    head = tx.tables.heads.get(agent_of(message))
    if head is None or run is None or run_id is None:
        return {"outcome": "unknown_agent"}
    if run["status"] != "running":
        return {"outcome": "ended"}
    if get_text(message, "message_type") == "ui_action" and head["status"] != "idle":
        return {"outcome": "busy"}
    name, parent, cause = (get_text(message, key) for key in ("name", "parent_turn_id", "cause"))
    check(wrong_id("a turn id", turn_id) or wrong_name(name))
    if is_reserved(str(name)):
        return rejection("reserved_name", f"only the runtime emits {name}: choose another first segment")
    if parent is not None and parent not in tx.tables.turns:
        return rejection("unknown_turn", f"there is no turn {parent[:200]}")
    if cause is not None and not _is_signal_of(tx, run, cause):
        return rejection("unknown_cause", f"run {run_id} has no signal {cause[:200]}")
    if message["depth"] > limited["depth_max"] and "depth_unbounded" not in tx.bugs:
        return over_limit("recursion_depth_exceeded", f"the turn would be {message['depth']} delegations deep",
                          limited["depth_max"], "do the work without a further delegation", "depth_max")  # fmt: skip
    return reject_signals([message], limited) or reject_activations(tx, run_id, [message], limited)


def _is_signal_of(tx: Transaction, run: Row, cause: str) -> bool:
    known = split_signal_id(cause)
    if known is None or not 1 <= known[1] <= run["signal_seq"]:
        return False
    return cause == signal_id(owner_at(tx.tables, run["run_id"], known[1]) or run["run_id"], known[1])


def _same_message(tx: Transaction, message: Any) -> str | None:
    turn = tx.tables.turns[get_text(message, "turn_id")]
    cause = signal_at(tx, turn["run_id"], turn["cause_seq"])
    if cause is None:
        return None
    is_same = (
        turn["agent_id"] == agent_of(message)
        and j.text(cause["name"]) == get_text(message, "name") is not None
        and cause["payload"] == payload_of(message)
        and turn["message_type"] == (get_text(message, "message_type") or "turn")
        and turn["callback_url"] == get_text(message, "callback_url")
        and turn["result_fields"] == (None if (fields := get(message, "result_fields")) is ABSENT else fields)
        and (budget_of(tx, turn["agent_turn_id"]) or None) == (None if (own := get(message, "budget")) is ABSENT else own)
        and any(i["message_type"] == turn["message_type"] and i["payload_box_id"] == get_text(message, "context_box_id")
                for i in tx.tables.inbox.of(turn["agent_turn_id"]))
    )  # fmt: skip
    return "duplicate" if is_same else "conflict"
