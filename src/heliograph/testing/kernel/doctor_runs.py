"""The twin of 91_doctor_runs.sql, but for waits: runs, boxes and orphans; the same checks under the same names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.head import is_pending, run_of
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.tables import Project, Row

Found = Iterator[tuple[str, str]]


def read_log(tables: Project, run_id: str) -> list[Row]:
    """A run's signals in order, one row for each: {run_id, seq, name, payload, at, agent, parent_id, agent_turn_id, owed}."""
    return [
        signal for row in sorted(tables.signals.of(run_id), key=lambda r: int(r["seq"])) for signal in signals_of(row)
    ]


def signals_of(row: Row) -> list[Row]:
    """The signals of one row of the table."""
    found = []
    for n, entry in enumerate(row["entries"]):
        parent, payload = get(entry, "parent"), get(entry, "payload")
        is_index = isinstance(parent, int | float) and not isinstance(parent, bool)
        found.append({
            "run_id": row["run_id"], "seq": row["seq"] + n, "name": get_text(entry, "name"),
            "payload": {} if payload is ABSENT else payload, "at": get_text(entry, "at") or row["at"],
            "agent": get_text(entry, "agent"), "agent_turn_id": row["agent_turn_id"], "owed": row["owed"] and is_pending(entry),
            "is_untrusted": get_text(entry, "trust") == "untrusted",
            "parent_id": signal_id(row["run_id"], row["seq"] + (j.whole(parent) or 0)) if is_index else j.text(parent),
        })  # fmt: skip
    return found


def check_runs(tables: Project) -> Found:
    open_turns = Counter(t["run_id"] for t in tables.turns.values() if t["state"] != "done")
    for run_id, run in tables.runs.items():
        log, is_ended, pruned = read_log(tables, run_id), run["status"] == "ended", run["pruned_seq"]
        if run["open_turns"] != open_turns[run_id]:
            yield "R1 open turns are counted right", run_id
        if run["owed"] != sum(s["owed"] for s in log):
            yield "R2 owed reactions are counted right", run_id
        if [s["seq"] for s in log] != list(range(pruned + 1, run["signal_seq"] + 1)):
            yield "R3 the log is gapless", run_id
        ends = sum(s["name"] == "workflow:end" for s in log)
        if not (1 if is_ended and pruned == 0 else 0) <= ends <= is_ended:
            yield "R4 an ended run has one workflow:end, and no other has one", run_id
        yield from (
            ("R5 all but the root have a parent, which comes before", run_id)
            for s in log
            if not _has_parent(s, log, pruned)
        )
        if not is_ended and run["open_turns"] == 0 and run["owed"] == 0:
            yield "R6 nothing waits for ever", run_id


def _has_parent(signal: Row, log: list[Row], pruned: int) -> bool:
    parent_id = signal["parent_id"]
    if parent_id is None or signal["seq"] == 1:
        return bool((parent_id is None) == (signal["seq"] == 1))
    found = re.fullmatch(re.escape(signal_id(signal["run_id"], 0)[:-1]) + "([0-9]+)", parent_id)
    if found is None:
        return True
    seq = int(found[1])
    is_known = bool(log) and log[0]["seq"] <= seq <= log[-1]["seq"] and parent_id == signal_id(signal["run_id"], seq)
    return seq < signal["seq"] if is_known else seq <= pruned


def check_boxes(tables: Project) -> Found:
    for box_id, cards in tables.cards.groups.items():
        if len({c["agent_turn_id"] for c in cards.values()}) > 1:
            yield "B1 a box has one writer", box_id
    for card in tables.cards.values():
        box = tables.boxes.get(card["box_id"])
        if box is not None and box["kind"] == "context" and card["agent_turn_id"] is not None:
            yield "B2 no turn writes into a context box", card["card_id"]
    for box_id, count in Counter(t["output_box_id"] for t in tables.turns.values() if t["state"] != "done").items():
        if count > 1:
            yield "B3 no two open turns have one output box", box_id
    for turn_id, turn in tables.turns.items():
        box = tables.boxes.get(turn["output_box_id"])
        if turn["output_box_id"] != f"box_{turn_id}" and (box is None or box["writer_turn_id"] != turn_id):
            yield "B4 a turn writes to its own box, or to a fork made for it", turn_id
        yield from _check_context(tables, turn_id, turn["context_box_id"])


def _check_context(tables: Project, turn_id: str, box_id: str | None) -> Found:
    if box_id is None:
        return
    box, own = tables.boxes.get(box_id), box_id[4:] if box_id.startswith("box_") else None
    if box is None and own not in tables.turns:
        yield "B5 a turn has the box that it reads", turn_id
    writer = tables.turns.get(own if box is None else box["writer_turn_id"])
    if writer is not None and writer["state"] != "done":
        yield "B6 nobody writes to what a turn reads", turn_id


def check_orphans(tables: Project) -> Found:
    for agent_id, head in tables.heads.items():
        if head["run_id"] not in tables.runs or head["run_id"] != run_of(agent_id):
            yield "O1 an agent has its run", agent_id
    for turn_id, turn in tables.turns.items():
        owner = tables.heads.get(turn["agent_id"])
        if turn["run_id"] not in tables.runs or owner is None or owner["run_id"] != turn["run_id"]:
            yield "O2 a turn has its agent and its run", turn_id
    for row in tables.signals.values():
        if row["run_id"] not in tables.runs:
            yield "O3 a log has its run", row["run_id"]
    for name, table in (("O4 an inbox row has its turn", tables.inbox), ("O5 an edge has its turn", tables.edges)):
        yield from ((name, row["agent_turn_id"]) for row in table.values() if row["agent_turn_id"] not in tables.turns)
    yield from _orphaned_calls(tables)
    yield from _orphaned_boxes(tables)


def _orphaned_calls(tables: Project) -> Found:
    for wait in tables.waits.values():
        if wait["agent_turn_id"] not in tables.turns:
            yield "O6 a call has its turn", f"{wait['agent_turn_id']} {wait['tool_call_id']}"
    for lease in tables.leases.values():
        if lease["agent_turn_id"] not in tables.turns:
            yield "O7 a lease has its turn", lease["agent_id"]
    for row in tables.outbox.values():
        if (
            get_text(row["body"], "child_turn_id") if row["kind"] == "report" else row["agent_turn_id"]
        ) not in tables.turns:
            yield "O8 a row of the outbox has its turn", row["key"]


def _orphaned_boxes(tables: Project) -> Found:
    for card in tables.cards.values():
        turn_id = card["agent_turn_id"]
        if card["box_id"] not in tables.boxes if turn_id is None else turn_id not in tables.turns:
            yield "O9 a card has its turn, or its box", card["card_id"]
        blob_id = get_text(card["content"], "$blob")
        if blob_id is not None and blob_id.startswith("sha256:") and blob_id not in tables.blobs:
            yield "O12 a card that points to a blob finds it", card["card_id"]
    for box_id, box in tables.boxes.items():
        base = box["base_box_id"]
        if base is not None and base not in tables.boxes and not (base.startswith("box_") and base[4:] in tables.turns):
            yield "O10 a fork has its base", box_id
        if box["writer_turn_id"] is not None and box["writer_turn_id"] not in tables.turns:
            yield "O11 a box that a turn may write to has its turn", box_id
