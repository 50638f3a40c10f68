"""Resolve waits in memory, like 64_resolve.sql: write each result as card, inbox row and signal, and resume the turns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.checkpoints import checkpoint
from heliograph.testing.kernel.circuit_breakers import count_circuits
from heliograph.testing.kernel.forks import continues_without, response_of, with_canceled_siblings
from heliograph.testing.kernel.head import insert_signals
from heliograph.testing.kernel.human_tasks import credit_human_wait_time, is_human_wait
from heliograph.testing.kernel.jsonb import SqlError, get, get_raw, get_text
from heliograph.testing.kernel.limits import put_card, store_content
from heliograph.testing.kernel.outbox import acknowledge, order_halts, order_stop
from heliograph.testing.kernel.tables import Row, result_of
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import inbox_row

_AFTERS = ("suspend", "terminate")


def resolve(
    tx: Transaction, results: Iterable[Any], limited: Row, *, logs: bool
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Returns the turns that resume, and the agents that it woke."""
    items: list[Row] = []
    for n, result in enumerate(with_canceled_siblings(tx, j.records(list(results)))):
        turn_id, call_id = get_text(result, "turn_id"), get_text(result, "call_id")
        wait, turn = tx.tables.waits.get((turn_id, call_id)), tx.tables.turns.get(turn_id)
        if wait is None or turn is None or not _may_resolve(tx, wait):
            continue
        head = tx.tables.heads[turn["agent_id"]]
        if head["active_agent_turn_id"] == turn_id:
            items.append(
                {
                    "result": result,
                    "n": n,
                    "wait": wait,
                    "turn": turn,
                    "head": head,
                    "run": tx.tables.runs[turn["run_id"]],
                }
            )
    _number(tx, items)
    for item in items:
        seq = item["seq"] if logs else j.get_whole(item["result"], "seq") or item["run"]["signal_seq"]
        _write_result(tx, item, limited, seq, logs=logs)
    for item in sorted(
        (i for i in items if continues_without(i["result"])), key=lambda i: str(i["wait"]["child_turn_id"])
    ):
        child = item["wait"]["child_turn_id"]
        if child is not None:
            order_stop(tx, child, {"reason": "the turn that waited for it went on without it", "mode": "force"})
    order_halts(tx, [item["command"] for item in items if continues_without(item["result"])])
    if logs:
        _log_results(tx, items, limited)
    answer = _wake(tx, items)
    _count_circuits(tx, items)
    return answer


def _count_circuits(tx: Transaction, items: list[Row]) -> None:
    results = [
        {"turn_id": item["wait"]["agent_turn_id"], "call_id": item["wait"]["tool_call_id"], "status": item["status"],
         "circuit": item["wait"]["circuit"], "is_recoverable": get_text(item["value"], "recoverable") != "false"}
        for item in items if item["wait"]["circuit"] is not None
    ]  # fmt: skip
    if results:
        count_circuits(tx, results)


def _may_resolve(tx: Transaction, wait: Row) -> bool:
    """Whether a result may still resolve this wait: only an open wait is resolved, once.

    Bugs: no_wait_cas (K4), child_reported_twice.
    """
    is_forced = "no_wait_cas" in tx.bugs or (wait["kind"] == "child" and "child_reported_twice" in tx.bugs)
    return wait["state"] == "open" or is_forced


def _number(tx: Transaction, items: list[Row]) -> None:
    """Sort the results by run and turn, and set the position of each among the results of its turn and in the log of its run."""
    items.sort(key=lambda i: (i["turn"]["run_id"], i["turn"]["agent_turn_id"], i["n"]))
    by_run: dict[str, int] = {}
    for item in items:
        run_id = item["turn"]["run_id"]
        by_run[run_id] = by_run.get(run_id, item["run"]["signal_seq"]) + 1
        item["seq"] = by_run[run_id]
    by_turn: dict[str, int] = {}
    for item in items:
        turn_id = item["turn"]["agent_turn_id"]
        if turn_id not in by_turn:
            by_turn[turn_id] = max((w["resolved_position"] or 0 for w in tx.tables.waits.of(turn_id)), default=0)
        by_turn[turn_id] += 1
        item["position"] = by_turn[turn_id]


def _write_result(tx: Transaction, item: Row, limited: Row, seq: int, *, logs: bool) -> None:
    result, wait, turn, head = (item[key] for key in ("result", "wait", "turn", "head"))
    turn_id, call_id, status = turn["agent_turn_id"], wait["tool_call_id"], get_text(result, "status")
    key = "output" if status == "success" else "error"
    item["trust"], item["value"] = _trust(wait, result), get_raw(result, key)
    item["status"], item["card_id"] = status, result_of(turn_id, call_id)
    content = {
        "call_id": call_id, "tool": wait["tool"], "status": status, "trust": item["trust"], key: item["value"],
        **(get_raw(result, "more") or {}),
        **({"session": session} if wait["kind"] == "human" and (session := get_text(result, "session")) is not None else {}),
    }  # fmt: skip
    if j.exceeds(item["value"], limited["card_bytes_max"]):
        content = store_content(tx, content, limited["card_bytes_max"])
    if not put_card(tx, item["card_id"], turn["output_box_id"], turn_id, head["turn_epoch"], "tool.result", content):
        raise SqlError("23505", f"another card has the id {item['card_id']}: choose another id")
    control = get_text(get(get(result, "output"), "__cg_control"), "after_execution") if wait["may_override"] else None
    item["is_awaited"] = head["status"] == "suspended" and wait["kind"] != "inline"
    tx.update(tx.tables.waits, wait, state="resolved", status=status, resolved_position=item["position"], resolved_at=tx.now, resolved_seq=seq,
              after_execution=control if control in _AFTERS else wait["after_execution"])  # fmt: skip
    if (message_type := get_text(result, "message_type")) is not None:
        _write_message(tx, item, message_type)
    item["command"] = acknowledge(tx, f"cmd:{turn_id}:{call_id}") if wait["kind"] != "inline" else None


def _trust(wait: Row, result: Any) -> str:
    """Judge a result: people are trusted, children as their turns are, tools if their authors vouch for them.

    The error of a question that timed out quotes the question.
    """
    if wait["kind"] == "child":
        return str(get_text(result, "trust") or "trusted")
    if wait["kind"] == "human":
        is_quoted = get_text(result, "message_type") == "timeout" and wait["taint"] is not None
        return "untrusted" if is_quoted else "trusted"
    return "trusted" if wait["is_trusted"] and wait["taint"] is None else "untrusted"


def _write_message(tx: Transaction, item: Row, message_type: str) -> None:
    result, wait, turn, head = (item[key] for key in ("result", "wait", "turn", "head"))
    turn_id, call_id, known = turn["agent_turn_id"], wait["tool_call_id"], j.get_whole(result, "inbox_id")
    fields = {
        "applied": True,
        "report_status": item["status"],
        "turn_epoch": head["turn_epoch"],
    }
    if known is None:
        inbox_id = tx.next("inbox_id")
        tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
            tx, turn, inbox_id, message_type, "pending", call_id, actor=get_text(result, "actor"), **fields))  # fmt: skip
    else:
        tx.set(tx.tables.inbox[turn_id, known], payload=None, **fields)


def _log_results(tx: Transaction, items: list[Row], limited: Row) -> None:
    """Write one row of the log for each turn."""
    for places in _together([item["turn"]["agent_turn_id"] for item in items]):
        group = [items[n] for n in places]
        run = group[0]["run"]
        entries = [_entry(tx, item, limited) for item in group]
        insert_signals(
            tx,
            run["run_id"],
            group[0]["seq"],
            group[0]["turn"]["agent_turn_id"],
            entries,
            is_pending=run["wakes_on_results"],
        )
    for run_id in {item["turn"]["run_id"] for item in items}:
        run, seqs = tx.tables.runs[run_id], [i["seq"] for i in items if i["turn"]["run_id"] == run_id]
        pending = len(seqs) if run["wakes_on_results"] else 0
        tx.update(tx.tables.runs, run, signal_seq=max(seqs), pending_reactions=run["pending_reactions"] + pending,
                  version=run["version"] + (1 if pending else 0), updated_at=tx.now)  # fmt: skip
        checkpoint(tx, run_id, min(seqs) - 1)


def _together(keys: list[str]) -> list[list[int]]:
    found: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    return list(found.values())


def _entry(tx: Transaction, item: Row, limited: Row) -> Row:
    wait = item["wait"]
    if wait["child_turn_id"] is not None:
        return _draft(item, "delegation_response", response_of(tx, item, limited))
    payload = {"id": wait["tool_call_id"], "call_id": wait["tool_call_id"], "name": wait["tool"], "status": item["status"],
               "card_id": item["card_id"]}  # fmt: skip
    if not j.exceeds(item["value"], limited["payload_bytes_max"]):  # such a result is only in the card
        payload["output" if item["status"] == "success" else "error"] = item["value"]
    return _draft(item, "tool:result", payload)


def _draft(item: Row, name: str, payload: Row) -> Row:
    head = item["head"]
    return {"name": name, "agent": head["agent_name"], "parent": str(head["activation_seq"]), "payload": payload,
            **({"is_pending": True} if item["run"]["wakes_on_results"] else {}), **({"trust": "untrusted"} if item["trust"] == "untrusted" else {})}  # fmt: skip


def _wake(tx: Transaction, items: list[Row]) -> tuple[list[str], list[str]]:
    """Resume the suspended turns that have all the results for which they wait. Returns the turns, and the agents that it woke.

    Bugs: resume_at_once (K15), resume_never.
    """
    resumed, woken = list[str](), list[str]()
    kinds = {(i["turn"]["agent_turn_id"], i["wait"]["kind"]) for i in items if i["is_awaited"]}
    for turn_id in sorted({turn_id for turn_id, _ in kinds}):
        turn = tx.tables.turns[turn_id]
        head = tx.tables.heads[turn["agent_id"]]
        left, since = open_waits(tx, turn_id), head["moved_at"]
        if not left or head["resumes_on"] == "each" or "resume_at_once" in tx.bugs:
            tx.update(tx.tables.heads, head, status="dispatched", waiting_tool_count=0, resume_deadline=None, resumes_on=None,
                      moved_at=max(tx.now, head["moved_at"]))  # fmt: skip
            resumed.append(turn_id)
            woken.append(head["agent_id"])
            if {(turn_id, "human"), (turn_id, "child")} & kinds:
                credit_human_wait_time(tx, turn, since, resumes=True)
        else:
            tx.update(tx.tables.heads, head, waiting_tool_count=len(left), resume_deadline=nearest(left))
            if is_human_wait(left):
                credit_human_wait_time(tx, turn, since, resumes=False)
    return resumed, woken


def open_waits(tx: Transaction, turn_id: str) -> list[Row]:
    return [w for w in tx.tables.waits.of(turn_id) if w["state"] == "open" and w["kind"] != "inline"]


def nearest(waits: list[Row]) -> int | None:
    return min((w["deadline"] for w in waits if w["deadline"] is not None), default=None)
