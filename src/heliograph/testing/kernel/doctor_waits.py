"""The twin of `_doctor_waits` in 91_doctor_runs.sql: the same checks under the same names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from heliograph.testing.kernel.reports import nearest
from heliograph.testing.kernel.tables import DELIVERABLE, Project, Row

Found = Iterator[tuple[str, str]]


def check_waits(tables: Project) -> Found:
    for head in tables.heads.values():
        if head["status"] == "suspended":
            waits = [
                w
                for w in tables.waits.of(head["active_agent_turn_id"])
                if w["state"] == "open" and w["kind"] != "inline"
            ]
            if head["waiting_tool_count"] != len(waits):
                yield "W1 a suspended turn counts its open calls", head["agent_id"]
            if head["resume_deadline"] != nearest(waits):
                yield "W9 the nearest deadline is the one shown", head["agent_id"]
    for wait in tables.waits.values():
        yield from _check_wait(tables, wait)
    for row in tables.outbox.values():
        asked = tables.waits.get((row["agent_turn_id"], row["call_id"]))
        if row["kind"] == "cmd" and (asked is None or (row["published_at"] is None) != (asked["state"] == "open")):
            yield "W3 a command goes out until its call is resolved, and no longer", row["key"]
    results = {w["result_card_id"] for w in tables.waits.values() if w["result_card_id"] is not None}
    cards = Counter(
        c["agent_turn_id"] for c in tables.cards.values() if c["kind"] != DELIVERABLE and c["card_id"] not in results
    )
    for turn_id, turn in tables.turns.items():
        numbers = [w["resolved_position"] for w in tables.waits.of(turn_id) if w["state"] == "resolved"]
        if sorted(numbers) != list(range(1, len(numbers) + 1)):
            yield "W5 results are numbered as they came", turn_id
        if turn["card_count"] != cards[turn_id]:
            yield "W10 cards are counted right", turn_id
        if turn["state"] != "done" and turn["people_since"] is not None:
            head = tables.heads[turn["agent_id"]]
            if head["active_agent_turn_id"] != turn_id or head["status"] != "suspended":
                yield "W11 a turn that waits for people is suspended", turn_id


def _check_wait(tables: Project, wait: Row) -> Found:
    turn_id, call_id, child_id = wait["agent_turn_id"], wait["tool_call_id"], wait["child_turn_id"]
    name, turn, is_resolved = f"{turn_id} {call_id}", tables.turns.get(turn_id), wait["state"] == "resolved"
    if wait["state"] == "open" and turn is not None and turn["state"] == "done":
        yield "W2 no call is open once its turn is done", name
    card = tables.cards.get(wait["result_card_id"])
    if is_resolved != (card is not None and card["agent_turn_id"] == turn_id):
        yield "W4 a resolved call has its result", name
    child, report = tables.turns.get(child_id), tables.outbox.get(f"report:{child_id}")
    is_at_work = child is not None and child["state"] != "done"
    is_told = report is not None and report["published_at"] is None
    if wait["kind"] == "child" and wait["state"] == "open" and not is_at_work and not is_told:
        yield "W6 an open child is at work, or its report is on the way", name
    edges = Counter((e["primitive"], e["edge_phase"]) for e in tables.edges.of(turn_id) if e["call_id"] == call_id)
    asked, told = ("join", "join") if wait["kind"] == "child" else ("tool_call", "report")
    reports = int(is_resolved and wait["kind"] != "inline")
    if edges[asked, "request"] != 1 or edges[told, "response"] != reports:
        yield "W7 a call has one edge out, and one back once it is resolved", name
    if sum(row["applied"] and row["correlation_id"] == call_id for row in tables.inbox.of(turn_id)) != reports:
        yield "W8 a resolved call has one applied report", name
