"""Write logs and dispatch turns in memory, like 10_log and 20_head.sql, under the same names.

The in-memory kernel has no locks, because it runs one call at a time. The headers
of the SQL document the functions; the docstrings here name the bugs that mutants switch on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from heliograph.control.pool_names import queue_name
from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.checkpoints import checkpoint
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.run_forks import owner_at
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def run_of(agent_id: str | None) -> str | None:
    return None if agent_id is None else agent_id.partition("/")[0]


def log(tx: Transaction, run_id: str, turn_id: str | None, entries: list[Any], recording: str | None = None) -> int:
    """Append entries to a run's log. Returns the position of the first. Bug: no_pending_reactions."""
    pending = 0 if "no_pending_reactions" in tx.bugs else sum(is_pending(entry) for entry in entries)
    run = tx.tables.runs[run_id]
    first = int(run["signal_seq"]) + 1
    tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + len(entries), pending_reactions=run["pending_reactions"] + pending,
              version=run["version"] + (1 if pending else 0), updated_at=tx.now)  # fmt: skip
    insert_signals(tx, run_id, first, turn_id, entries, is_pending=pending > 0, recording=recording)
    checkpoint(tx, run_id, first - 1)
    return first


def insert_signals(
    tx: Transaction, run_id: str, first: int, turn_id: str | None, entries: list[Any], *, is_pending: bool = False,
    recording: str | None = None,
) -> None:  # fmt: skip
    tx.insert(tx.tables.signals, (run_id, first), {
        "run_id": run_id, "seq": first, "count": len(entries), "entries": entries, "agent_turn_id": turn_id,
        "at": tx.now, "is_pending": is_pending, "recording": recording,
    })  # fmt: skip


def is_pending(entry: Any) -> bool:
    return bool(j.parse_boolean(get_text(entry, "is_pending")))


def signal_at(tx: Transaction, run_id: str, seq: int) -> Row | None:
    """One signal of a run's log, whose first part a fork shares with another run."""
    run_id = owner_at(tx.tables, run_id, seq) or run_id
    for row in tx.tables.signals.newest_of(run_id):  # the cause of a turn is rarely far back
        if 0 <= seq - row["seq"] < row["count"]:
            entry = row["entries"][seq - row["seq"]]
            name, agent = (get(entry, key) for key in ("name", "agent"))
            return {
                "id": signal_id(run_id, seq), "name": None if name is ABSENT else name, "payload": payload_of(entry),
                "agent": None if agent is ABSENT else agent, "turn_id": row["agent_turn_id"], **trust_of(entry),
            }  # fmt: skip
    return None


def trust_of(content: Any) -> Row:
    """The mark of an untrusted signal or deliverable; an empty dict for a trusted one."""
    return {"trust": "untrusted"} if get_text(content, "trust") == "untrusted" else {}


def payload_of(entry: Any) -> Any:
    payload = get(entry, "payload")
    return {} if payload is ABSENT else payload


def dispatch_next(tx: Transaction, agent_ids: Iterable[str]) -> list[str]:
    """Dispatch the oldest queued turn of each idle agent. Returns the agents that it woke. Bugs: dispatch_lifo, no_chain."""
    tables, woken = tx.tables, list[str]()
    for agent_id in sorted(set(agent_ids)) if "no_chain" not in tx.bugs else ():
        head = tables.heads.get(agent_id)
        queued = tables.queued(agent_id) if head is not None and head["status"] == "idle" else []
        if head is None or not queued:
            continue
        turn = queued[-1 if "dispatch_lifo" in tx.bugs else 0]
        tx.update(
            tables.heads, head, status="dispatched", turn_epoch=head["turn_epoch"] + 1,
            active_agent_turn_id=turn["agent_turn_id"], priority=turn["priority"], pool=turn["pool"], ready_at=tx.now,
            due_at=due_at_of(tx, turn),
            activation_seq=turn["activation_seq"],
            moved_at=max(tx.now, head["moved_at"]),
        )  # fmt: skip
        activate(tx, turn)
        for row in tables.inbox.of(turn["agent_turn_id"]):
            if row["status"] == "queued":
                tx.set(row, status="pending", turn_epoch=head["turn_epoch"], next_retry_at=tx.now)
        woken.append(agent_id)
    return woken


def due_at_of(tx: Transaction, turn: Row) -> int | None:
    """When a turn that waits for a token may begin."""
    starts_at: int | None = turn["starts_at"]
    return starts_at if starts_at is not None and starts_at > tx.now else None


def activate(tx: Transaction, turn: Row) -> None:
    """Make this the active turn of its agent. Raises 23505 if the agent has one already."""
    if any(t["state"] == "active" and t is not turn for t in tx.tables.turns.of(turn["agent_id"])):
        raise SqlError("23505", f"{turn['agent_id']} has an active turn already")
    tx.set(turn, state="active")


def owns(tx: Transaction, item: Any) -> bool:
    """The owner gate, for an item {agent_id, turn_id, epoch}."""
    j.get_whole(item, "epoch")  # an argument of a function: read whether it is needed or not
    return is_owner(tx, item)


def is_owner(tx: Transaction, item: Any) -> bool:
    """The owner gate where it is part of a statement, which reads the epoch last."""
    head, turn_id = tx.tables.heads.get(get_text(item, "agent_id")), get_text(item, "turn_id")
    return (
        head is not None and head["status"] == "running" and turn_id is not None
        and head["active_agent_turn_id"] == turn_id and head["turn_epoch"] == j.get_whole(item, "epoch")
    )  # fmt: skip


def rounds(keys: Iterable[Hashable], steps: Sequence[int] | None = None) -> list[list[int]]:
    """Divide items into rounds in which no two items have the same key; return the positions of each round, from 0.

    steps: an item with a value above 0 joins the round of the one before it of its key.
    """
    seen: dict[Hashable, int] = {}
    found: list[list[int]] = []
    for place, key in enumerate(keys):
        number = seen[key] = seen.get(key, -1) + (0 if steps is not None and steps[place] else 1)
        if number == len(found):
            found.append([])
        found[number].append(place)
    return found


def bells(tx: Transaction, woken: Iterable[str]) -> Row:
    """`_bells`: the queues to ring, and the agents that the call woke, if any."""
    agent_ids = distinct(woken)
    targets = distinct(queue_of(tx.tables.heads[agent_id]) for agent_id in agent_ids)
    return {"targets": targets, **({"woken": agent_ids} if agent_ids else {})}


def queue_of(head: Row) -> str:
    """`_queue_name`, for a head."""
    return queue_name(head["target"], head["pool"])


def add_bells(tx: Transaction, answers: list[Row], woken: Iterable[str]) -> list[Row]:
    """Add the queues of the whole call to each row, and the agents to the first row only."""
    found = bells(tx, woken)
    for n, row in enumerate(answers):
        row.update(found if n == 0 else {"targets": found["targets"]})
    return answers


def distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))
