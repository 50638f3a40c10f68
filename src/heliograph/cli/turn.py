"""`helio turn list` and `helio turn show`: the units of work, who owned them, what they said."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

import msgspec

from heliograph.cli.output import clock, duration, fields, json_line, line, moment, note, table
from heliograph.cli.reading import open_existing
from heliograph.errors import shown
from heliograph.ledger.reader import CardRow, LeaseRow, TurnRow
from heliograph.signals.model import Signal

_CONTENT_WIDTH = 100


def list_turns(options: Namespace) -> int:
    rows = asyncio.run(_list(options))
    if options.json:
        for row in rows:
            json_line(row)
    elif rows:
        headers = ("TURN", "AGENT", "RUN", "STATUS", "PHASE", "EPOCH", "RECOVERED", "STARTED", "TOOK")
        table(headers, [_cells(row) for row in rows])
    else:
        note("no such turns: helio runs shows what there is")
    return 0


def show_turn(options: Namespace) -> int:
    turn, leases, cards, cause = asyncio.run(_show(options.turn))
    if options.json:
        json_line({**msgspec.to_builtins(turn), "cause": cause, "leases": leases, "cards": cards})
        return 0
    fields(_facts(turn, cause))
    line()
    _print_leases(turn, leases)
    line()
    _print_cards(turn, cards)
    return 0


async def _list(options: Namespace) -> list[TurnRow]:
    async with open_existing(None if options.run is None else f"run {options.run}") as reader:
        if options.run is not None:
            await reader.run(options.run)  # a run that does not exist is an error, one without turns is not
        return await reader.turns(run_id=options.run, status=options.status, limit=options.limit)


async def _show(turn_id: str) -> tuple[TurnRow, list[LeaseRow], list[CardRow], dict[str, Any]]:
    async with open_existing(f"turn {turn_id}") as reader:
        turn = await reader.turn(turn_id)
        seq = int(turn.cause_id.rpartition("_")[2])
        [cause] = await reader.signals(turn.run_id, seq - 1, limit=1)
        return turn, await reader.leases(turn_id), await reader.cards(turn_id), _cause(cause)


def _cause(signal: Signal) -> dict[str, Any]:
    return {"id": signal.id, "name": signal.name, "agent": signal.agent, "payload": signal.payload}


def _status(turn: TurnRow) -> str:
    return turn.outcome or turn.status


def _took(turn: TurnRow) -> str:
    return duration((turn.finished_at or datetime.now(UTC)) - turn.created_at)


def _cells(turn: TurnRow) -> tuple[str, ...]:
    return (turn.turn_id, turn.agent, turn.run_id, _status(turn), turn.phase or "-", str(turn.turn_epoch or "-"),
            str(turn.attempts), moment(turn.created_at), _took(turn))  # fmt: skip


def _facts(turn: TurnRow, cause: dict[str, Any]) -> dict[str, str | None]:
    by = f" by {cause['agent']}" if cause["agent"] else ""
    return {
        "turn": turn.turn_id,
        "agent": turn.agent,
        "run": f"{turn.run_id} of {turn.target}",
        "status": f"{turn.status}, {turn.outcome}" if turn.outcome else turn.status,
        "phase": turn.phase,
        "owner": f"{turn.owner}, lease until {clock(turn.lease_until)}" if turn.owner and turn.lease_until else None,
        "recovered": f"{turn.attempts} of at most {turn.max_attempts} times" if turn.attempts else None,
        "woken by": f"{cause['name']}{by} ({cause['id']})",
        "activation": turn.activation_id,
        "started": moment(turn.created_at),
        "took" if turn.finished_at else "for": _took(turn),
    }


def _print_leases(turn: TurnRow, leases: list[LeaseRow]) -> None:
    if not leases:
        line("no worker has taken it yet")
        return
    rows = []
    for lease in leases:
        end = lease.ended_at or turn.finished_at
        held = duration(end - lease.started_at) if end else "still held"
        rows.append((str(lease.turn_epoch), lease.owner, moment(lease.started_at), held))
    table(("EPOCH", "OWNER", "FROM", "HELD"), rows)


def _print_cards(turn: TurnRow, cards: list[CardRow]) -> None:
    if not cards:
        line(f"no cards yet in {turn.output_box_id}")
        return
    for card in cards:
        line(f"{card.card_id}  {card.kind}  epoch {card.turn_epoch}")
        for text in _content(card.content):
            line(f"    {text}")


def _content(content: Any) -> list[str]:
    """A deliverable as its reader wants it: text as text, fields by name, anything else as JSON."""
    if isinstance(content, dict) and isinstance(content.get("fields"), list):
        return [f"{each['name']}: {_short(each['value'])}" for each in content["fields"]]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        code = content["error"]["code"] if isinstance(content.get("error"), dict) else None
        # what agents say is data: escape codes in it must not reach the terminal
        rows = [shown(row, 10_000) for row in content["text"].splitlines()]
        return [f"{code}: {rows[0]}" if rows else str(code), *rows[1:]] if code else rows
    return [_short(content)]


def _short(value: Any) -> str:
    return shown(value if isinstance(value, str) else msgspec.json.encode(value).decode(), _CONTENT_WIDTH)
