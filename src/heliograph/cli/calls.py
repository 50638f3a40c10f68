"""`helio call list` and `helio call report`: list or take the open calls of turns, and report their results."""

from __future__ import annotations

import asyncio
import shlex
from argparse import Namespace
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.cli.existing_database import open_client, open_list
from heliograph.cli.files import read_result
from heliograph.cli.output import ago, duration, json_line, line, note, started_since, table, width
from heliograph.error_text import safe_repr
from heliograph.key_patterns import json_without_secrets
from heliograph.ledger.rows import WaitRow

if TYPE_CHECKING:
    from heliograph.client.replies import Command

_ARGUMENTS_WIDTH = 100
_MEANING = {
    "applied": "the turn has its result",
    "early": "the result is kept until the turn makes this call",
    "duplicate": "the call was reported before; the first report counts",
    "late": "the deadline has passed; the turn has continued without the result",
    "turn_done": "the turn has already ended; nothing changed",
}


def list_calls(options: Namespace) -> int:
    """Print the open calls. Returns 0, also for an empty list."""
    rows = asyncio.run(_list(options))
    if options.json:
        for row in rows:
            json_line("call", row, is_input=True)
    elif rows:
        table(("TURN", "CALL", "TOOL", "AGENT", "OPENED", "LEFT"), [_cells(row) for row in rows])
    else:
        note("no open calls")
    return 0


def take_calls(options: Namespace) -> int:
    """Take open calls of a tool, and print them with their tokens. Returns 0, also if there are none."""
    commands = asyncio.run(_take(options.tool, options.limit, options.pool))
    _print_commands(commands, as_json=options.json)
    return 0


def report(options: Namespace) -> int:
    """Report the result of a call. Returns 0 for every acknowledged report, also for one without effect."""
    result = None if options.error is not None else read_result(options.result, options.result_file)
    outcome = asyncio.run(_report(options, result))
    if options.json:
        json_line("report", {"turn_id": options.turn, "call_id": options.call_id, "outcome": outcome})
    else:
        line(f"{outcome}: {_MEANING[outcome]}")
    return 0


async def _list(options: Namespace) -> list[WaitRow]:
    async with open_list(options.run) as reader:
        return await reader.open_calls(options.tool, options.limit, run_id=options.run, target=options.app,
                                       since=started_since(options.since))  # fmt: skip


async def _take(tool: str, limit: int, pool: str) -> list[Command]:
    async with open_client(f"call of {tool}") as client:
        return await client.take_commands([tool], limit, pool=pool)


async def _report(options: Namespace, result: Any) -> str:
    async with open_client(f"turn {options.turn}") as client:
        return await client.report(
            options.turn, options.call_id, token=options.token, result=result, error=options.error
        )


def _cells(row: WaitRow) -> tuple[str, ...]:
    left = "-" if row.deadline is None else duration(row.deadline - datetime.now(UTC))
    return row.turn_id, row.call_id, row.tool, row.agent_id.split("/")[1], ago(row.opened_at), left


def _print_commands(commands: Sequence[Command], *, as_json: bool) -> None:
    for command in commands:
        entry = {
            "turn_id": command.turn_id, "call_id": command.call_id, "tool": command.tool, "arguments": command.arguments,
            "deadline": command.deadline, "delivery": command.delivery, "token": command.token,
        }  # fmt: skip
        if as_json:
            json_line("command", entry, is_input=True)
            continue
        arguments = safe_repr(json_without_secrets(command.arguments).decode(), width(_ARGUMENTS_WIDTH))
        answer = ["helio", "call", "report", command.turn_id, command.call_id]
        answer += ["--token", command.token] if command.token else []
        line(f"{command.tool} {arguments}")
        line(f"    {shlex.join(answer)} --result JSON")
    if not commands and not as_json:
        note("no open calls, or other processes have taken them")
