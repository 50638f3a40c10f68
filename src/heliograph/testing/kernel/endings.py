"""End turns, or take them from their owners, in memory: 50_endings.sql and 51_release.sql."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.budgets import settle_ended
from heliograph.testing.kernel.head import (
    bells,
    dispatch_next,
    log,
    owns,
)
from heliograph.testing.kernel.human_tasks import human_wait_time, waits_for_child
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import (
    content_as_recorded,
    limits,
    put_card,
    store_content,
)
from heliograph.testing.kernel.outbox import acknowledge, order_halts, order_stop, outbox_row
from heliograph.testing.kernel.tables import DELIVERABLE, INBOX_OPEN, Row, end_of
from heliograph.testing.kernel.transaction import Transaction


def terminal(tx: Transaction, endings: list[Any]) -> None:
    """End turns: write their cards, close their calls, and report each end to the parent and to the outbox.

    Bugs: finish_splits_event, kernel_end_without_event, child_not_reported, children_run_on, children_forced.
    """
    tables, limited = tx.tables, limits(tx)
    ending = [(item, turn) for item in j.records(endings)
              if (turn := tables.turns.get(get_text(item, "turn_id"))) is not None]  # fmt: skip
    for item, turn in ending:
        head, epoch = tables.heads[turn["agent_id"]], j.get_whole(item, "epoch")
        turn_id = turn["agent_turn_id"]
        if end_of(turn_id) in tables.cards:
            raise SqlError("23505", f"{turn_id} has a deliverable already")
        put_card(tx, end_of(turn_id), turn["output_box_id"], turn_id, head["turn_epoch"] + 1 if epoch is None else epoch,
                 DELIVERABLE, store_content(tx, content_as_recorded(item, "content"), limited["card_bytes_max"]))  # fmt: skip
    stops = {turn["agent_turn_id"]: _child_stop(tx, item, turn) for item, turn in ending}
    closed = [wait for item, turn in ending for wait in _close(tx, item, turn)]
    commands = [acknowledge(tx, f"cmd:{wait['agent_turn_id']}:{wait['tool_call_id']}") for wait in closed]
    settle_ended(tx, [str(turn["agent_turn_id"]) for _, turn in ending if turn["budgets"] is not None])
    for item, turn in ending:
        bug = "kernel_end_without_event" if get(item, "epoch") is ABSENT else "finish_splits_event"
        if not tables.wires:
            continue
        tx.next("outbox_id")
        if bug not in tx.bugs:
            outbox_row(tx, f"evt:{turn['agent_turn_id']}", "task_event", turn["agent_turn_id"])
    for _, turn in ending:
        if turn["parent_turn_id"] is not None and "child_not_reported" not in tx.bugs:
            tx.next("outbox_id")
            outbox_row(tx, f"report:{turn['agent_turn_id']}", "report", turn["parent_turn_id"],
                           call_id=turn["parent_call_id"], body={"child_turn_id": turn["agent_turn_id"]})  # fmt: skip
    for wait in closed if "children_run_on" not in tx.bugs else ():
        if wait["child_turn_id"] is not None:
            order_stop(tx, wait["child_turn_id"], {"reason": "parent_termination"} | stops[wait["agent_turn_id"]])
    order_halts(tx, commands)


def _child_stop(tx: Transaction, item: Row, turn: Row) -> Row:
    """How the end of a turn stops its children: as the turn itself was stopped, and gracefully after any other end."""
    given, head = get(item, "child_stop"), tx.tables.heads[turn["agent_id"]]
    if given not in (ABSENT, None):
        return dict(given)
    at, until = head["stop_requested_at"], head["force_at"]
    grace = None if until is None else max(until - at, 0) / 1_000_000
    return {"mode": "force" if "children_forced" in tx.bugs else "graceful", "grace_seconds": grace}


def _close(tx: Transaction, item: Row, turn: Row) -> list[Row]:
    """Write one ending, except its card and its rows of the outbox. Returns the calls that it has closed."""
    tables, turn_id = tx.tables, turn["agent_turn_id"]
    head = tables.heads[turn["agent_id"]]
    is_suspended = head["active_agent_turn_id"] == turn_id and head["status"] == "suspended"
    if is_suspended and (turn["human_wait_since"] is None or waits_for_child(tx, turn_id)):
        waited = human_wait_time(tx, turn_id, head["moved_at"], with_open=True)
        tx.set(turn, human_wait_since=tx.now - waited if waited else None)
    tx.update(
        tables.turns,
        turn,
        state="done",
        outcome=get_text(item, "outcome"),
        finished_at=tx.now,
        lacks_event=not tables.wires,
    )
    for row in tables.inbox.of(turn_id):
        if row["status"] in INBOX_OPEN:
            tx.set(row, status="canceled" if row["status"] == "queued" else "consumed", consumed_at=tx.now)
    closed = sorted((w for w in tables.waits.of(turn_id) if w["state"] == "open"), key=lambda w: str(w["tool_call_id"]))
    for wait in closed:
        tx.update(tables.waits, wait, state="closed", resolved_at=tx.now)
    if head["active_agent_turn_id"] == turn_id:
        lease = tables.leases.get((head["agent_id"], head["turn_epoch"]))
        if lease is not None and lease["ended_at"] is None:
            tx.set(lease, ended_at=max(tx.now, head["moved_at"]))
        tx.update(
            tables.heads, head, status="idle", turn_epoch=head["turn_epoch"] + 1, active_agent_turn_id=None, phase=None,
            owner=None, lease_until=None, ready_at=None, due_at=None, waiting_tool_count=0, resume_deadline=None,
            resumes_on=None, expecting_correlation_id=None, stop_requested_at=None, force_at=None, stop_reason=None,
            terminates=False, sweep_failures=0, activation_seq=None, moved_at=max(tx.now, head["moved_at"]),
        )  # fmt: skip
    return closed


def end_by_kernel(
    tx: Transaction, turn_id: str, outcome: str, code: str, message: str, details: Row | None = None, *,
    is_untrusted: bool = False, child_stop: Row | None = None,
) -> list[str]:  # fmt: skip
    """End a turn without its owner, as a sweep or a stop does. Returns the agents that it woke. Bug: open_turns_miscounted."""
    turn = tx.tables.turns[turn_id]
    tx = tx.at(not_before_cards(tx, turn_id))
    run, head = tx.tables.runs[turn["run_id"]], tx.tables.heads[turn["agent_id"]]
    error: Row = {"code": code, "message": message, "recoverable": False, **({"details": details} if details else {})}
    trust = {"trust": "untrusted"} if is_untrusted else {}
    terminal(tx, [{"turn_id": turn_id, "outcome": outcome, "content": {"text": message, "error": error, **trust},
                   "child_stop": child_stop}])  # fmt: skip
    tx.update(tx.tables.runs, run, open_turns=run["open_turns"] - (0 if "open_turns_miscounted" in tx.bugs else 1))
    payload = {"agent": head["agent_name"], "outcome": outcome, "error": error, "deliverable_card_id": end_of(turn_id)}
    log(tx, run["run_id"], turn_id, [{
        "name": "agent:failed", "agent": head["agent_name"], "is_pending": True, "payload": payload,
        "parent": str(turn["activation_seq"]), **trust,
    }])  # fmt: skip
    return dispatch_next(tx, [turn["agent_id"]])


def not_before_cards(tx: Transaction, turn_id: str) -> int:
    newest = max(tx.tables.cards.of(f"box_{turn_id}"), key=lambda card: int(card["position"]), default=None)
    return tx.now if newest is None else max(tx.now, int(newest["created_at"]))


def release(tx: Transaction, items: Any) -> list[Row]:
    answer = []
    for item in j.elements(items):
        if j.has(item, "failure"):
            _check_failure(get(item, "failure"))
    for item in j.elements(items):
        outcome, woken = "stale", list[str]()
        if owns(tx, item):
            agent_id = str(get_text(item, "agent_id"))
            ended = (
                None if may_terminate(tx, agent_id) and not j.has(item, "failure") else end_if_stopping(tx, agent_id)
            )
            if ended is not None:
                outcome, woken = "stopped", ended
            elif j.has(item, "failure"):
                code, message = (str(get_text(item["failure"], key)) for key in ("code", "message"))
                outcome, woken = "ok", end_by_kernel(tx, str(get_text(item, "turn_id")), "failed", code, message)
            else:
                outcome, woken = "ok", [release_head(tx, agent_id, None)]
        answer.append({"turn_id": get_text(item, "turn_id"), "outcome": outcome, **bells(tx, woken)})
    return answer


def _check_failure(failure: Any) -> None:
    lengths = [len((get_text(failure, key) or "").encode()) for key in ("code", "message")]
    if not (1 <= lengths[0] <= 200 and 1 <= lengths[1] <= 4000):
        raise SqlError("22023", "a failure must have a code of 1 to 200 bytes and a message of 1 to 4000")


def release_head(tx: Transaction, agent_id: str, due_at: int | None) -> str:
    """Take the head from its owner and dispatch it again under the next epoch. Bugs: no_bump, recovery_loses_place."""
    head = tx.tables.heads[agent_id]
    turn_id = head["active_agent_turn_id"]
    at = max(not_before_cards(tx, turn_id), head["moved_at"])
    lease, epoch = tx.tables.leases.get((agent_id, head["turn_epoch"])), head["turn_epoch"] + 1
    if lease is not None:
        tx.set(lease, ended_at=at)
    tx.update(
        tx.tables.heads, head, status="dispatched", turn_epoch=head["turn_epoch"] if "no_bump" in tx.bugs else epoch,
        owner=None, lease_until=None, phase=None, due_at=due_at, moved_at=at,
        ready_at=at if "recovery_loses_place" in tx.bugs else head["ready_at"],
    )  # fmt: skip
    for row in tx.tables.inbox.of(turn_id):
        if row["status"] == "processing":
            tx.set(row, status="pending", turn_epoch=epoch)
    return agent_id


def may_terminate(tx: Transaction, agent_id: str) -> bool:
    """Whether a graceful stop of a turn is pending, and another worker can still run its terminate phase."""
    head = tx.tables.heads[agent_id]
    return bool(head["terminates"]) and head["force_at"] is not None and head["force_at"] > tx.now


def end_if_stopping(tx: Transaction, agent_id: str) -> list[str] | None:
    """End a running turn with a pending graceful stop. Returns the agents that it woke; None without a stop.

    Bug: stop_forgotten.
    """
    head = tx.tables.heads[agent_id]
    if head["stop_requested_at"] is None:
        return None
    if "stop_forgotten" in tx.bugs:
        tx.set(head, stop_requested_at=None, force_at=None, stop_reason=None)
        return None
    reason = head["stop_reason"]
    return end_by_kernel(
        tx, head["active_agent_turn_id"], "canceled", "CANCELED", "stopped" if reason is None else reason
    )
