"""`helio turn list`, `show` and `children`: turns, their owners, calls and cards."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

import msgspec

from heliograph.cli.existing_database import open_existing, open_list
from heliograph.cli.output import (
    WHOLE,
    ago,
    duration,
    fields,
    json_line,
    line,
    moment,
    note,
    started_since,
    table,
    width,
)
from heliograph.cli.waits import child_lines
from heliograph.cli.workers import last_beat
from heliograph.client.budgets import Budget, budget_of
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.error_text import counted, safe_repr
from heliograph.ledger.rows import CardRow, DelegationRow, LeaseRow, TurnRow, WaitRow, WorkerRow
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import clock, json_text

_CONTENT_WIDTH = 100
_EPOCH = "the fencing token: it rises with each dispatch, claim and end of a turn of this agent"


def list_turns(options: Namespace) -> int:
    rows = asyncio.run(_list(options))
    if options.json:
        for row in rows:
            json_line("turn", row)
    elif rows:
        headers = ("TURN", "AGENT", "RUN", "STATUS", "PHASE", "EPOCH", "ATTEMPT", "STARTED", "TOOK")
        table(headers, [_cells(row) for row in rows])
    else:
        note("no such turns; helio run list lists the runs")
    return 0


def show_turn(options: Namespace) -> int:
    turn, leases, waits, cards, cause, budgets, worker = asyncio.run(_show(options.turn))
    if options.json:
        json_line(
            "turn",
            {
                **msgspec.to_builtins(turn),
                "cause": cause,
                "leases": leases,
                "calls": waits,
                "cards": cards,
                "budgets": budgets,
                "worker": worker,
            },
        )
        return 0
    fields(_facts(turn, cause, worker))
    line()
    _print_leases(turn, leases)
    if budgets:
        line()
        table(("BUDGET OF", "KIND", "MOST", "USED", "RESERVED", "LEFT"), [_budget_cells(budget) for budget in budgets])
    if waits:
        line()
        table(("CALL", "TOOL", "KIND", "STATE", "OPENED", "TOOK", "DEADLINE"), [_call_cells(wait) for wait in waits])
        for text in child_lines(waits):
            line(f"waits for its child {text}")
    line()
    _print_cards(turn, cards)
    return 0


def list_children(options: Namespace) -> int:
    rows = asyncio.run(_children(options.turn))
    if options.json:
        for row in rows:
            json_line("child", row)
    elif rows:
        headers = ("CALL", "AGENT", "TURN", "STATUS", "OUTCOME", "OPENED", "TOOK")
        table(headers, [_child_cells(row) for row in rows])
    else:
        note(f"{options.turn} has delegated nothing")
    return 0


async def _children(turn_id: str) -> list[DelegationRow]:
    async with open_existing(f"turn {turn_id}") as reader:
        await reader.turn(turn_id)
        return await reader.delegations(turn_id)


def _child_cells(row: DelegationRow) -> tuple[str, ...]:
    took = duration((row.resolved_at or datetime.now(UTC)) - row.opened_at)
    return row.call_id, row.agent, row.task_id, row.status, row.outcome or "-", moment(row.opened_at), took


async def _list(options: Namespace) -> list[TurnRow]:
    async with open_list(options.run) as reader:
        return await reader.turns(run_id=options.run, status=options.status or options.outcome, target=options.app,
                                  since=started_since(options.since), limit=options.limit)  # fmt: skip


async def _show(
    turn_id: str,
) -> tuple[TurnRow, list[LeaseRow], list[WaitRow], list[CardRow], dict[str, Any], list[Budget], WorkerRow | None]:
    async with open_existing(f"turn {turn_id}") as reader:
        turn = await reader.turn(turn_id)
        seq = int(turn.cause_id.rpartition("_")[2])
        [cause] = await reader.signals(turn.run_id, seq - 1, limit=1)
        waits = await reader.waits(turn_id)
        budgets = [budget_of(row) for row in await reader.budgets(turn)]
        worker = None if turn.owner is None else await reader.worker(turn.owner)
        return turn, await reader.leases(turn_id), waits, await reader.cards(turn_id), _cause(cause), budgets, worker


def _cause(signal: Signal) -> dict[str, Any]:
    return {"id": signal.id, "name": signal.name, "agent": signal.agent, "payload": signal.payload}


def _status(turn: TurnRow) -> str:
    return turn.outcome or turn.status


def _took(turn: TurnRow) -> str:
    return duration((turn.finished_at or datetime.now(UTC)) - turn.created_at)


def _cells(turn: TurnRow) -> tuple[str, ...]:
    return (turn.turn_id, turn.agent, turn.run_id, _status(turn), turn.phase or "-", str(turn.turn_epoch or "-"),
            _attempt(turn), ago(turn.created_at), _took(turn))  # fmt: skip


def _attempt(turn: TurnRow) -> str:
    """The current or last attempt. A new attempt begins when a turn loses its worker."""
    return "-" if turn.status == "queued" else f"{turn.attempts + 1} of {turn.max_attempts}"


def _facts(turn: TurnRow, cause: dict[str, Any], worker: WorkerRow | None) -> dict[str, str | None]:
    by = f" by {cause['agent']}" if cause["agent"] else ""
    return {
        "turn": turn.turn_id,
        "agent": turn.agent,
        "run": f"{turn.run_id} of {turn.target}",
        "pool": None if turn.pool == DEFAULT_POOL else turn.pool,
        "status": f"{turn.status}, {turn.outcome}" if turn.outcome else turn.status,
        "phase": turn.phase,
        "owner": f"{turn.owner}, lease until {clock(turn.lease_until)}" if turn.owner and turn.lease_until else None,
        "health": None
        if worker is None
        else f"the owner is {worker.health}, its last heartbeat was {last_beat(worker)}",
        "doing": _activity(turn),
        "stopping": f"since {clock(turn.stop_requested_at)}" if turn.stop_requested_at else None,
        "attempt": _attempt(turn),
        "epoch": None if turn.turn_epoch is None else f"{turn.turn_epoch}, {_EPOCH}",
        "deferred": _deferrals(turn),
        "reads": turn.context_box_id,
        "parent": f"call {turn.parent_call_id} of {turn.parent_turn_id}" if turn.parent_turn_id else None,
        "woken by": f"{cause['name']}{by} ({cause['id']})",
        "activation": turn.activation_id,
        "started": moment(turn.created_at),
        "took" if turn.finished_at else "for": _took(turn),
    }


def _activity(turn: TurnRow) -> str | None:
    """The current activity of the turn (L0-16 to L0-18)."""
    match turn.activity:
        case "awaiting_tool_result":
            until = f", the first deadline at {clock(turn.resume_deadline)}" if turn.resume_deadline else ""
            return f"waits for {counted(turn.waiting_tool_count or 0, 'call')}{until}"
        case "executing_tool":
            return f"step {turn.current_tool}"
        case _:
            return turn.activity


def _deferrals(turn: TurnRow) -> str | None:
    if not turn.defer_count:
        return None
    return counted(turn.defer_count, "time") + (f", until {moment(turn.due_at)}" if turn.due_at else "")


def _call_cells(wait: WaitRow) -> tuple[str, ...]:
    took = duration((wait.resolved_at or datetime.now(UTC)) - wait.opened_at)
    state = wait.status or wait.state
    return (wait.call_id, wait.tool, wait.kind, state, moment(wait.opened_at), took, moment(wait.deadline))


def _budget_cells(budget: Budget) -> tuple[str, ...]:
    over = f" and {budget.overspent:.15g} over" if budget.overspent else ""
    return (budget.turn_id, budget.kind, f"{budget.amount_max:.15g}", f"{budget.used:.15g}{over}", f"{budget.reserved:.15g}",
            f"{budget.remaining:.15g}")  # fmt: skip


def _print_leases(turn: TurnRow, leases: list[LeaseRow]) -> None:
    if not leases:
        line("no worker has claimed it yet")
        return
    rows = []
    for lease in leases:
        end = lease.ended_at or turn.finished_at
        held = duration(end - lease.started_at) if end else "running"
        rows.append((str(lease.turn_epoch), lease.owner, moment(lease.started_at), held))
    table(("EPOCH", "OWNER", "FROM", "HELD"), rows)


def _print_cards(turn: TurnRow, cards: list[CardRow]) -> None:
    if not cards:
        line(f"no cards yet in {turn.output_box_id}")
        return
    for card in cards:
        line(f"{card.card_id}  {card.kind}  epoch {card.turn_epoch}")
        print_content(card.content)


def print_content(content: Any) -> None:
    """Print the content of a card, indented."""
    for text in _content(content):
        line(f"    {text}")


def _content(content: Any) -> list[str]:
    """Format a deliverable: text as lines, fields by name, anything else as JSON."""
    if isinstance(content, dict) and isinstance(limit := content.get("limit"), dict):
        rest = {key: value for key, value in content.items() if key != "limit"}
        return [*_content(rest), f"cut short: {safe_repr(str(limit.get('message')), WHOLE)}"]
    if isinstance(content, dict) and isinstance(content.get("fields"), list):
        return [f"{each['name']}: {_short(each['value'])}" for each in content["fields"]]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        code = content["error"]["code"] if isinstance(content.get("error"), dict) else None
        # output of agents is untrusted: its escape codes must not reach the terminal
        rows = [safe_repr(row, WHOLE) for row in content["text"].splitlines()]
        return [f"{code}: {rows[0]}" if rows else str(code), *rows[1:]] if code else rows
    return [_short(content)]


def _short(value: Any) -> str:
    return json_text(value, width(_CONTENT_WIDTH))
