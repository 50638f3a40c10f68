"""The twin of 90_doctor.sql: the same checks under the same names, over the twin's tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

from heliograph.ids import signal_id
from heliograph.testing.twin_tables import DELIVERABLE, INBOX_OPEN, Project, Row, Transaction

Found = Iterator[tuple[str, str]]


def doctor(tx: Transaction, is_quiescent: bool) -> list[Row]:
    checks: list[Callable[[Project, bool], Found]] = [_heads, _deliverables, _events, _rest, _leases, _runs]
    found = sorted(pair for check in checks for pair in check(tx.tables, is_quiescent))
    return [{"check": name, "subject": subject} for name, subject in found]


def _heads(tables: Project, is_quiescent: bool) -> Found:
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
    for turn in tables.turns.values() if is_quiescent else ():
        if turn["state"] != "done":
            yield "I9 nothing is left open", turn["agent_turn_id"]
    for head in tables.heads.values() if is_quiescent else ():
        if head["status"] != "idle":
            yield "I9 no agent is busy", head["agent_id"]


def _deliverables(tables: Project, is_quiescent: bool) -> Found:
    boxed = {(b["box_id"], b["card_id"]) for b in tables.boxes.values()}
    of_turn: dict[str, list[Row]] = {}
    for card in tables.cards.values():
        if card["kind"] == DELIVERABLE:
            of_turn.setdefault(card["agent_turn_id"], []).append(card)
    for turn_id, turn in tables.turns.items():
        cards, is_done = of_turn.get(turn_id, []), turn["state"] == "done"
        if is_done and len(cards) != 1:
            yield "I3 a finished turn has exactly one deliverable", turn_id
        pointed = [c for c in cards if c["card_id"] == turn["deliverable_card_id"]]
        if is_done and not any((turn["output_box_id"], c["card_id"]) in boxed for c in pointed):
            yield "I4 the deliverable is the one pointed at, in the output box", turn_id
        if not is_done:
            yield from (("I5 no deliverable before the end", turn_id) for _ in cards)
        epochs = [le["turn_epoch"] for le in tables.leases.values() if le["agent_turn_id"] == turn_id]
        for card in cards if turn["outcome"] == "success" and epochs else ():
            if card["turn_epoch"] != max(epochs):
                yield "I18 the deliverable is the last owner's", turn_id
    position = {b["card_id"]: b["position"] for b in tables.boxes.values()}
    for card in tables.cards.values():
        for end in of_turn.get(card["agent_turn_id"], []) if card["kind"] != DELIVERABLE else ():
            if card["turn_epoch"] > end["turn_epoch"] or position[card["card_id"]] > position[end["card_id"]]:
                yield "I12 no card after the deliverable", card["agent_turn_id"]


def _events(tables: Project, is_quiescent: bool) -> Found:
    events = Counter(o["agent_turn_id"] for o in tables.outbox.values())
    for turn_id, turn in tables.turns.items():
        if turn["state"] == "done" and events[turn_id] != 1:
            yield "I6 a finished turn has exactly one task event", turn_id
        if turn["state"] != "done":
            yield from (("I7 no task event before the end", turn_id) for _ in range(events[turn_id]))
    for event in tables.outbox.values() if is_quiescent else ():
        if event["published_at"] is None:
            yield "I8 every task event is published", event["agent_turn_id"]


def _rest(tables: Project, is_quiescent: bool) -> Found:
    for row in tables.inbox.values():
        if row["status"] in INBOX_OPEN and tables.turns[row["agent_turn_id"]]["state"] == "done":
            yield "I11 a finished turn owes nothing in the inbox", row["agent_turn_id"]
    owed = {row["agent_turn_id"] for row in tables.inbox.values() if row["status"] in INBOX_OPEN}
    yield from (
        ("I10 an open turn is owed in the inbox", turn_id)
        for turn_id, turn in tables.turns.items()
        if turn["state"] != "done" and turn_id not in owed
    )
    edges = Counter(e["agent_turn_id"] for e in tables.edges.values() if e["primitive"] == "enqueue")
    before: dict[str, int | None] = {}
    for turn_id, turn in tables.turns.items():
        if edges[turn_id] != 1:
            yield "I14 exactly one enqueue edge per turn", turn_id
        if turn["attempts"] >= turn["max_attempts"]:
            yield "I15 attempts are bounded", turn_id
        if turn["outcome"] != "timeout":
            earlier, finished_at = before.get(turn["agent_id"]), turn["finished_at"]
            if earlier is not None and finished_at is not None and finished_at < earlier:
                yield "I13 turns of an agent finish in order", turn_id
            before[turn["agent_id"]] = finished_at


def _leases(tables: Project, is_quiescent: bool) -> Found:
    for card in tables.cards.values():
        turn = tables.turns[card["agent_turn_id"]]
        lease = tables.leases.get((turn["agent_id"], card["turn_epoch"]))
        if card["kind"] != DELIVERABLE and (
            lease is None or card["created_at"] < lease["started_at"] or lease["agent_turn_id"] != card["agent_turn_id"]
            or (lease["ended_at"] is not None and card["created_at"] > lease["ended_at"])
        ):  # fmt: skip
            yield "I16 no card outside its writer's lease", card["card_id"]
    before: Row | None = None
    for _, lease in sorted(tables.leases.items()):
        earlier = None if before is None or before["agent_id"] != lease["agent_id"] else before
        if earlier is not None and (earlier["ended_at"] is None or lease["started_at"] < earlier["ended_at"]):
            yield "I17 leases of an agent never overlap", lease["agent_id"]
        before = lease


def _runs(tables: Project, is_quiescent: bool) -> Found:
    open_turns = Counter(t["run_id"] for t in tables.turns.values() if t["state"] != "done")
    logs: dict[str, list[Row]] = {}
    for signal in tables.signals.values():
        logs.setdefault(signal["run_id"], []).append(signal)
    for run_id, run in tables.runs.items():
        log = logs.get(run_id, [])
        known = {str(s["seq"]) for s in log}
        is_ended = run["status"] == "ended"
        if run["open_turns"] != open_turns[run_id]:
            yield "R1 open turns are counted right", run_id
        if run["owed"] != sum(s["owed"] for s in log):
            yield "R2 owed reactions are counted right", run_id
        if run["signal_seq"] != len(log) or run["signal_seq"] != max((s["seq"] for s in log), default=0):
            yield "R3 the log is gapless", run_id
        if is_ended != sum(s["name"] == "workflow:end" for s in log):
            yield "R4 an ended run has one workflow:end, and no other has one", run_id
        for signal in log:
            parent = re.fullmatch(re.escape(signal_id(run_id, 0)[:-1]) + "([0-9]+)", signal["parent_id"] or "")
            if parent is not None and not (parent[1] in known and int(parent[1]) < signal["seq"]):
                yield "R5 a parent comes before its child", run_id
        if not is_ended and run["open_turns"] == 0 and run["owed"] == 0:
            yield "R6 nothing waits for ever", run_id
        if is_quiescent and not is_ended:
            yield "R7 every run has ended", run_id
