"""The twin of 90_doctor.sql: the same checks under the same names, over the twin's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from heliograph.testing.kernel.budgets import check_budgets
from heliograph.testing.kernel.doctor_runs import check_boxes, check_orphans, check_runs
from heliograph.testing.kernel.doctor_waits import check_waits
from heliograph.testing.kernel.tables import DELIVERABLE, INBOX_OPEN, Project, Row, Transaction

Found = Iterator[tuple[str, str]]


def doctor(tx: Transaction, is_quiescent: bool) -> list[Row]:
    checks: list[Callable[[Project], Found]] = [
        _active, _deliverables, _events, _order, _inbox, _leases, _epochs, check_runs, check_waits, check_boxes, check_orphans, check_budgets,
    ]  # fmt: skip
    found = [pair for check in checks for pair in check(tx.tables)]
    found += _rest(tx.tables) if is_quiescent else ()
    return [{"check": name, "subject": subject} for name, subject in sorted(found)]


def _active(tables: Project) -> Found:
    active = [t for t in tables.turns.values() if t["state"] == "active"]
    for agent_id, count in Counter(t["agent_id"] for t in active).items():
        if count > 1:
            yield "I1 at most one active turn per agent", agent_id
    held = {h["active_agent_turn_id"]: h for h in tables.heads.values() if h["active_agent_turn_id"] is not None}
    for turn_id, head in held.items():
        turn = tables.turns.get(turn_id)
        if turn is None or turn["state"] != "active" or turn["agent_id"] != head["agent_id"]:
            yield "I2 head and turn agree", head["agent_id"]
    for turn in active:
        if turn["agent_turn_id"] not in held:
            yield "I2 an active turn has its head", turn["agent_turn_id"]


def _rest(tables: Project) -> Found:
    """What may not be under way any more."""
    for row in tables.outbox.values():
        if row["published_at"] is None:
            yield "I8 nothing is left in the outbox", row["key"]
    for turn in tables.turns.values():
        if turn["state"] != "done":
            yield "I9 nothing is left open", turn["agent_turn_id"]
    for head in tables.heads.values():
        if head["status"] != "idle":
            yield "I9 no agent is busy", head["agent_id"]
    for run_id, run in tables.runs.items():
        if run["status"] != "ended":
            yield "R7 every run has ended", run_id


def _deliverables(tables: Project) -> Found:
    of_turn: dict[str, list[Row]] = {}
    for card in tables.cards.values():
        if card["kind"] == DELIVERABLE:
            of_turn.setdefault(card["agent_turn_id"], []).append(card)
    newest: dict[str, int] = {}
    for lease in tables.leases.values():
        newest[lease["agent_turn_id"]] = max(lease["turn_epoch"], newest.get(lease["agent_turn_id"], 0))
    for turn_id, turn in tables.turns.items():
        cards, is_done = of_turn.get(turn_id, []), turn["state"] == "done"
        if is_done and len(cards) != 1:
            yield "I3 a finished turn has exactly one deliverable", turn_id
        if is_done and not any(
            (c["card_id"], c["box_id"]) == (turn["deliverable_card_id"], turn["output_box_id"]) for c in cards
        ):
            yield "I4 the deliverable is the one pointed at, in the output box", turn_id
        if not is_done:
            yield from (("I5 no deliverable before the end", turn_id) for _ in cards)
        for card in cards if turn["outcome"] == "success" and turn_id in newest else ():
            if card["turn_epoch"] != newest[turn_id]:
                yield "I18 the deliverable is the last owner's", turn_id
    for card in tables.cards.values():
        for end in of_turn.get(card["agent_turn_id"], []) if card["kind"] != DELIVERABLE else ():
            if card["turn_epoch"] > end["turn_epoch"] or card["position"] > end["position"]:
                yield "I12 no card after the deliverable", card["agent_turn_id"]


def _events(tables: Project) -> Found:
    events = Counter(o["agent_turn_id"] for o in tables.outbox.values() if o["kind"] == "task_event")
    for turn_id, turn in tables.turns.items():
        if turn["state"] == "done" and events[turn_id] != 1:
            yield "I6 a finished turn has exactly one task event", turn_id
        if turn["state"] != "done":
            yield from (("I7 no task event before the end", turn_id) for _ in range(events[turn_id]))


def _order(tables: Project) -> Found:
    before: dict[str, int | None] = {}
    for turn_id, turn in sorted(tables.turns.items(), key=lambda pair: int(pair[1]["queue_seq"])):
        if len([e for e in tables.edges.of(turn_id) if e["primitive"] == "enqueue"]) != 1:
            yield "I14 exactly one enqueue edge per turn", turn_id
        if turn["attempts"] >= turn["max_attempts"]:
            yield "I15 attempts are bounded", turn_id
        if turn["outcome"] not in ("timeout", "canceled"):
            earlier, finished_at = before.get(turn["agent_id"]), turn["finished_at"]
            if earlier is not None and finished_at is not None and finished_at < earlier:
                yield "I13 turns of an agent finish in order", turn_id
            before[turn["agent_id"]] = finished_at


def _inbox(tables: Project) -> Found:
    suspended = {h["active_agent_turn_id"] for h in tables.heads.values() if h["status"] == "suspended"}
    for turn_id, turn in tables.turns.items():
        owed = [row for row in tables.inbox.of(turn_id) if row["status"] in INBOX_OPEN]
        if turn["state"] == "done":
            yield from (("I11 a finished turn owes nothing in the inbox", turn_id) for _ in owed)
        elif turn_id not in suspended and not any(row["agent_id"] == turn["agent_id"] for row in owed):
            yield "I10 an open turn is owed in the inbox, unless it is suspended", turn_id


def _leases(tables: Project) -> Found:
    for card in tables.cards.values():
        turn = tables.turns.get(card["agent_turn_id"])
        if turn is None or card["kind"] in (DELIVERABLE, "tool.result"):
            continue
        lease = tables.leases.get((turn["agent_id"], card["turn_epoch"]))
        if (
            lease is None or card["created_at"] < lease["started_at"] or lease["agent_turn_id"] != card["agent_turn_id"]
            or (lease["ended_at"] is not None and card["created_at"] > lease["ended_at"])
        ):  # fmt: skip
            yield "I16 no card outside its writer's lease", card["card_id"]
    before: Row | None = None
    for (agent_id, epoch), lease in sorted(tables.leases.items()):
        earlier = None if before is None or before["agent_id"] != agent_id else before
        if earlier is not None and (earlier["ended_at"] is None or lease["started_at"] < earlier["ended_at"]):
            yield "I17 leases of an agent never overlap", agent_id
        before, head = lease, tables.heads.get(agent_id)
        is_held = head is not None and head["turn_epoch"] == epoch and head["status"] == "running"
        if lease["ended_at"] is None and not is_held:
            yield "H2 a lease is open only while its head runs", agent_id
        if head is not None and head["turn_epoch"] < epoch:
            yield "H3 no lease is newer than its head", agent_id


def _epochs(tables: Project) -> Found:
    for agent_id, head in tables.heads.items():
        lease = tables.leases.get((agent_id, head["turn_epoch"]))
        if head["status"] == "running" and (
            lease is None or lease["ended_at"] is not None or lease["agent_turn_id"] != head["active_agent_turn_id"]
        ):
            yield "H1 a running head has the open lease of its epoch", agent_id
        # dispatched: under a new epoch, or, resumed, under the last owner's
        fits = {"idle": lease is None, "running": lease is not None, "suspended": lease is not None, "dispatched": True}
        if head["turn_epoch"] > 0 and not fits[head["status"]]:
            yield "H3 the epoch of a head is of its status", agent_id
