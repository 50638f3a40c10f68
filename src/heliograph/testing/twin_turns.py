"""The twin of 40_claim, 41_append and 50_endings.sql: functions of the same names."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id
from heliograph.testing import twin_json as j
from heliograph.testing.twin_json import ABSENT, Refusal, get, get_text
from heliograph.testing.twin_runs import count_owed, dispatch_next, owns, react_to, run_view, write_signals
from heliograph.testing.twin_tables import DELIVERABLE, INBOX_OPEN, Row, Transaction, interval


def claim(tx: Transaction, targets: Any, worker: str, limit: int, lease_seconds: float) -> list[Row]:
    _check_lease(lease_seconds)
    if not 1 <= limit <= 1000:
        raise Refusal("22023", f"limit must be between 1 and 1000, not {limit}")
    wanted = j.elements(targets)
    ready = [h for h in tx.tables.heads.values() if h["status"] == "dispatched" and _is_wanted(h, wanted)]
    ready.sort(key=lambda h: (-h["priority"], h["ready_at"], h["agent_id"]))
    for head in ready[:limit]:
        _take(tx, head, worker, lease_seconds)
    return [_claimed(tx, h) for h in ready[:limit] if _cause(tx, h) is not None]


def _is_wanted(head: Row, targets: list[Any]) -> bool:
    return any(
        head["target"] == j.get_text(t, "target")
        and (j.get(t, "agents") is None or head["agent_name"] in j.get(t, "agents"))
        and j.get_text(t, "run_id") in (None, head["run_id"])
        if isinstance(t, dict)
        else head["target"] == j.text(t)
        for t in targets
    )


def _take(tx: Transaction, head: Row, worker: str, lease_seconds: float) -> None:
    """Bug: no_bump."""
    bump = 0 if "no_bump" in tx.bugs else 1
    tx.update(
        tx.tables.heads, head, status="running", turn_epoch=head["turn_epoch"] + bump, owner=worker, phase="init",
        lease_until=tx.now + interval(lease_seconds), moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    agent_id, epoch = head["agent_id"], head["turn_epoch"]
    tx.insert(tx.tables.leases, (agent_id, epoch), {
        "agent_id": agent_id, "turn_epoch": epoch, "agent_turn_id": head["active_agent_turn_id"], "owner": worker,
        "started_at": head["moved_at"], "ended_at": None, "said": 0, "said_seq": None,
    })  # fmt: skip


def _cause(tx: Transaction, head: Row) -> Row | None:
    turn = tx.tables.turns[head["active_agent_turn_id"]]
    return tx.tables.signals.get((turn["run_id"], turn["cause_seq"]))


def _claimed(tx: Transaction, head: Row) -> Row:
    turn, cause = tx.tables.turns[head["active_agent_turn_id"]], _cause(tx, head)
    assert cause is not None
    run_id = head["run_id"]
    inbox = []
    for row in tx.tables.inbox.values():
        is_due = row["status"] in ("pending", "deferred") and row["next_retry_at"] <= head["moved_at"]
        if is_due and row["agent_turn_id"] == turn["agent_turn_id"] and row["agent_id"] == head["agent_id"]:
            tx.set(row, status="processing", turn_epoch=head["turn_epoch"])
            inbox.append({"message_type": row["message_type"], "correlation_id": row["correlation_id"]})
    return {
        "agent_id": head["agent_id"], "agent": head["agent_name"], "run_id": run_id, "target": head["target"],
        "turn_id": turn["agent_turn_id"], "epoch": head["turn_epoch"], "priority": head["priority"],
        "attempts": turn["attempts"], "max_attempts": turn["max_attempts"],
        "ttl_seconds": (turn["expires_at"] - tx.now) / 1_000_000,
        "context_box_id": turn["context_box_id"], "output_box_id": turn["output_box_id"],
        "activation_id": signal_id(run_id, turn["activation_seq"]),
        "cause": {"id": signal_id(run_id, turn["cause_seq"]), "name": cause["name"], "payload": cause["payload"],
                  "agent": cause["agent"]},
        "inbox": inbox, "run": run_view(tx, run_id),
    }  # fmt: skip


def _check_lease(lease_seconds: float) -> None:
    if not 0.1 <= lease_seconds <= 86_400:
        raise Refusal("22023", f"a lease must last between 0.1 and 86400 seconds, not {lease_seconds}")


def renew(tx: Transaction, items: Any, lease_seconds: float) -> list[Row]:
    _check_lease(lease_seconds)
    answer, renewed = [], set()
    listed = [(item, get_text(item, "agent_id"), j.get_whole(item, "epoch")) for item in j.elements(items)]
    for item, agent_id, epoch in listed:
        if (agent_id, epoch, get_text(item, "turn_id")) in renewed or not owns(
            tx, agent_id, get_text(item, "turn_id"), epoch
        ):
            continue
        head = tx.tables.heads[agent_id]
        phase = get_text(item, "phase")
        tx.update(tx.tables.heads, head, lease_until=tx.now + interval(lease_seconds),
                  phase=head["phase"] if phase is None else phase)  # fmt: skip
        renewed.add((agent_id, epoch, get_text(item, "turn_id")))
    for item, agent_id, epoch in listed:
        turn_id = get_text(item, "turn_id")
        answer.append({"turn_id": turn_id, "outcome": "ok" if (agent_id, epoch, turn_id) in renewed else "stale"})
    return answer


def append(tx: Transaction, items: Any) -> list[Row]:
    """Bug: ungated_append."""
    answer: list[Row] = []
    for item in j.elements(items):
        agent_id, turn_id, epoch = _token(item)
        if not owns(tx, agent_id, turn_id, epoch) and "ungated_append" not in tx.bugs:
            answer.append({"turn_id": turn_id, "outcome": "stale"})
            continue
        head, phase = tx.tables.heads[agent_id], get_text(item, "phase")
        if phase is not None and head["phase"] is not None:
            tx.update(tx.tables.heads, head, phase=phase)
        cards = get(item, "cards")
        _put_cards(tx, turn_id, epoch, [] if cards is ABSENT else cards)
        answer.append({"turn_id": turn_id, "outcome": "ok", "first_seq": _say(tx, item)})
    return answer


def _token(item: Any) -> tuple[str | None, str | None, int | None]:
    return get_text(item, "agent_id"), get_text(item, "turn_id"), j.get_whole(item, "epoch")


def _say(tx: Transaction, item: Any) -> int | None:
    """Bug: append_repeats."""
    agent_id, turn_id, epoch = _token(item)
    drafts = get(item, "signals")
    drafts = [] if drafts is ABSENT else drafts
    owed = count_owed(drafts)
    lease = tx.tables.leases.get((agent_id, epoch))
    said = j.parse_integer(get_text(item, "said"))
    is_repeat = lease is not None and said is not None and lease["said"] > said
    if not drafts or (is_repeat and "append_repeats" not in tx.bugs):
        return None if lease is None else lease["said_seq"]
    run = tx.tables.runs[tx.tables.turns[turn_id]["run_id"]]
    first = run["signal_seq"] + 1
    write_signals(tx, run["run_id"], run["signal_seq"], turn_id, drafts)
    if lease is not None:
        tx.set(lease, said=lease["said"] + len(drafts), said_seq=first)
    tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + len(drafts), owed=run["owed"] + owed,
              version=run["version"] + (1 if owed else 0), updated_at=tx.now)  # fmt: skip
    return int(first)


def _put_cards(tx: Transaction, turn_id: str | None, epoch: int | None, cards: Any) -> None:
    for card in j.elements(cards):
        if get_text(card, "kind") == DELIVERABLE:
            raise Refusal("22023", "a deliverable is written by finish, and by nothing else")
        card_id = get_text(card, "card_id")
        row = _card(tx, card_id, turn_id, epoch, get_text(card, "kind"), get(card, "content"))
        if card_id not in tx.tables.cards:
            tx.insert(tx.tables.cards, card_id, row)
            _box(tx, tx.tables.turns[turn_id]["output_box_id"], card_id)


def _card(
    tx: Transaction, card_id: str | None, turn_id: str | None, epoch: int | None, kind: str | None, content: Any
) -> Row:  # fmt: skip
    if content is ABSENT:
        raise Refusal("23502", "null value in column content of cards")
    row = {"card_id": card_id, "agent_turn_id": turn_id, "turn_epoch": epoch, "kind": kind, "content": content,
           "created_at": tx.now}  # fmt: skip
    tx.tables.cards.check(row)
    return row


def _box(tx: Transaction, box_id: str, card_id: str | None) -> None:
    position = tx.next("position")
    tx.insert(tx.tables.boxes, (box_id, position), {"box_id": box_id, "position": position, "card_id": card_id})


def terminal(
    tx: Transaction, turn_id: str, epoch: int | None, card_id: str | None, content: Any, outcome: str | None
) -> None:
    """Bugs: finish_splits_event, kernel_end_without_event."""
    tables = tx.tables
    turn = tables.turns[turn_id]
    head = tables.heads[turn["agent_id"]]
    row = _card(tx, card_id, turn_id, head["turn_epoch"] if epoch is None else epoch, DELIVERABLE, content)
    if any(c["agent_turn_id"] == turn_id and c["kind"] == DELIVERABLE for c in tables.cards.values()):
        raise Refusal("23505", f"{turn_id} has a deliverable already")
    tx.insert(tables.cards, card_id, row)
    _box(tx, turn["output_box_id"], card_id)
    tx.update(tables.turns, turn, state="done", outcome=outcome, deliverable_card_id=card_id, finished_at=tx.now)
    for inbox in tables.inbox.values():
        is_own = inbox["agent_turn_id"] == turn_id and inbox["agent_id"] == turn["agent_id"]
        if is_own and inbox["status"] in INBOX_OPEN:
            tx.set(inbox, status="canceled" if inbox["status"] == "queued" else "consumed", consumed_at=tx.now)
    bug = "kernel_end_without_event" if str(card_id).endswith("_end") else "finish_splits_event"
    if bug in tx.bugs:
        tx.next("outbox_id")  # as in the mutant of the SQL, which deletes what was inserted
    else:
        _task_event(tx, turn, card_id, outcome)
    if head["active_agent_turn_id"] == turn_id:
        lease = tables.leases.get((head["agent_id"], head["turn_epoch"]))
        if lease is not None and lease["ended_at"] is None:
            tx.set(lease, ended_at=max(tx.now, head["moved_at"]))
        tx.update(
            tables.heads, head, status="idle", turn_epoch=head["turn_epoch"] + 1, active_agent_turn_id=None, phase=None,
            owner=None, lease_until=None, ready_at=None, trace_id=None, parent_step_id=None,
            moved_at=max(tx.now, head["moved_at"]),
        )  # fmt: skip


def _task_event(tx: Transaction, turn: Row, card_id: str | None, outcome: str | None) -> None:
    outbox_id, turn_id = tx.next("outbox_id"), turn["agent_turn_id"]
    key = f"evt:{turn_id}"
    if any(o["key"] == key for o in tx.tables.outbox.values()):
        raise Refusal("23505", f"the outbox has {key} already")
    tx.insert(tx.tables.outbox, outbox_id, {
        "outbox_id": outbox_id, "kind": "task_event", "key": key, "subject": f"evt.agent.{turn['agent_id']}.task",
        "agent_turn_id": turn_id, "created_at": tx.now, "published_at": None,
        "body": {"agent_turn_id": turn_id, "status": outcome, "output_box_id": turn["output_box_id"],
                 "deliverable_card_id": card_id},
    })  # fmt: skip


def finish(tx: Transaction, items: Any) -> list[Row]:
    answer = []
    for item in j.elements(items):
        if get_text(item, "turn_id") in tx.tables.turns:
            j.elements(get(get(item, "reaction"), "activations"))  # read before anything else, to lock their heads
    for item in j.elements(items):
        turn = tx.tables.turns.get(get_text(item, "turn_id"))
        outcome, targets = _finish_one(tx, item, turn)
        row: Row = {"turn_id": get_text(item, "turn_id"), "outcome": outcome, "targets": targets}
        if outcome == "conflict" and turn is not None:
            row["run"] = run_view(tx, turn["run_id"])
        answer.append(row)
    return answer


def _finish_one(tx: Transaction, item: Any, turn: Row | None) -> tuple[str, list[str]]:
    """Bugs: finish_no_gate, no_version_guard, no_chain."""
    agent_id, turn_id, epoch = _token(item)
    head = tx.tables.heads.get(agent_id)
    is_owner = owns(tx, agent_id, turn_id, epoch)
    if "finish_no_gate" in tx.bugs:
        is_owner = head is not None and turn_id is not None and head["active_agent_turn_id"] == turn_id
    if not is_owner or turn is None or agent_id is None or turn_id is None:
        card_id = get_text(item, "card_id")
        is_mine = turn is not None and card_id is not None and turn["deliverable_card_id"] == card_id
        return "duplicate" if is_mine else "stale", []
    version = j.get_whole(get(item, "reaction"), "version")
    run = tx.tables.runs[turn["run_id"]]
    if run["version"] != version and "no_version_guard" not in tx.bugs:
        return "conflict", []
    terminal(
        tx,
        turn_id,
        j.get_whole(item, "epoch"),
        get_text(item, "card_id"),
        get(item, "content"),
        get_text(item, "outcome"),
    )
    targets = [] if "no_chain" in tx.bugs else dispatch_next(tx, [agent_id])
    return "ok", targets + react_to(tx, turn["run_id"], turn_id, 1, get(item, "signals"), get(item, "reaction"))


def end_by_kernel(tx: Transaction, turn_id: str, outcome: str, code: str, message: str) -> list[str]:
    """Bugs: no_chain, no_owed, open_turns_miscounted."""
    turn = tx.tables.turns[turn_id]
    tx = tx.at(after_cards(tx, turn_id))
    run, head = tx.tables.runs[turn["run_id"]], tx.tables.heads[turn["agent_id"]]
    card_id = f"card_{turn_id}_end"
    error = {"code": code, "message": message, "recoverable": False}
    terminal(tx, turn_id, None, card_id, {"text": message, "error": error}, outcome)
    owed = 0 if "no_owed" in tx.bugs else 1
    payload = {"agent": head["agent_name"], "outcome": outcome, "error": error, "deliverable_card_id": card_id}
    write_signals(tx, run["run_id"], run["signal_seq"], turn_id, [{
        "name": "agent:failed", "agent": head["agent_name"], "owed": bool(owed), "payload": payload,
        "parent": signal_id(run["run_id"], turn["activation_seq"]),
    }])  # fmt: skip
    closed = 0 if "open_turns_miscounted" in tx.bugs else 1
    tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + 1, owed=run["owed"] + owed,
              open_turns=run["open_turns"] - closed, version=run["version"] + 1, updated_at=tx.now)  # fmt: skip
    return [] if "no_chain" in tx.bugs else dispatch_next(tx, [turn["agent_id"]])


def after_cards(tx: Transaction, turn_id: str) -> int:
    written: list[int] = [c["created_at"] for c in tx.tables.cards.values() if c["agent_turn_id"] == turn_id]
    return max([tx.now, *written])
