"""`helio callback list` and `helio callback redeliver`: completion webhooks and their delivery."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from heliograph.cli.existing_database import open_client, open_list
from heliograph.cli.output import json_line, line, moment, note, started_since, table
from heliograph.error_text import safe_repr
from heliograph.ledger.rows import CallbackRow

_LIMIT_MAX = 1000


def list_callbacks(options: Namespace) -> int:
    rows = asyncio.run(_list(options))
    if options.json:
        for row in rows:
            json_line("callback", row)
    elif rows:
        table(("CALLBACK", "OF", "STATE", "TRIES", "NEXT", "URL", "LAST ERROR"), [_cells(row) for row in rows])
    else:
        note("no such callbacks")
    return 0


def redeliver(options: Namespace) -> int:
    sent = asyncio.run(_redeliver(options.callback))
    for callback_id in sent:
        if options.json:
            json_line("redelivered", {"callback_id": callback_id, "outcome": "due"})
        else:
            line(f"{callback_id} is due again; a worker sends it")
    if not sent and not options.json:
        note("no dead callbacks")
    return 0


async def _list(options: Namespace) -> list[CallbackRow]:
    async with open_list(options.run) as reader:
        return await reader.callbacks(options.state, options.limit, run_id=options.run, target=options.app,
                                      since=started_since(options.since))  # fmt: skip


async def _redeliver(callback_id: str | None) -> list[str]:
    async with open_client(f"callback {callback_id}" if callback_id else "callbacks") as client:
        rows = [] if callback_id else await client.callbacks("dead", _LIMIT_MAX)
        wanted = [callback_id] if callback_id else [row.callback_id for row in rows]
        for each in wanted:
            await client.redeliver(each)
        return wanted


def _cells(row: CallbackRow) -> tuple[str, ...]:
    return (row.callback_id, row.turn_id or row.run_id, row.state, str(row.attempts), moment(row.due_at), safe_repr(row.url, 60),
            safe_repr(row.last_error or "-", 60))  # fmt: skip
