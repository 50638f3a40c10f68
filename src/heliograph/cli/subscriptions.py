"""`helio signal subscriptions|unsubscribe`: the durable subscriptions of the project."""

from __future__ import annotations

import asyncio
from argparse import Namespace

import msgspec

from heliograph.cli.existing_database import open_client
from heliograph.cli.output import json_line, line, note, table
from heliograph.definitions.signal_subscribers import check_subscription_name
from heliograph.ledger.signal_feed import SubscriptionRow
from heliograph.signals.signal_text import clock


def subscriptions(options: Namespace) -> int:
    rows = asyncio.run(_read())
    if options.json:
        for row in rows:
            json_line("subscription", msgspec.to_builtins(row))
    elif rows:
        cells = [(row.name, " ".join(row.patterns), *_counts(row), clock(row.created_at)) for row in rows]
        table(("NAME", "PATTERNS", "RUNS", "BEHIND", "TAKEN", "SINCE"), cells)
    else:
        note("no subscriptions; Heliograph.on_signal and Client.subscribe create them")
    return 0


def unsubscribe(options: Namespace) -> int:
    check_subscription_name(options.name)
    asyncio.run(_delete(options.name))
    if options.json:
        json_line("unsubscribed", {"name": options.name, "outcome": "unsubscribed"})
    else:
        line(f"subscription {options.name} is deleted")
    return 0


def _counts(row: SubscriptionRow) -> list[str]:
    """The numbers of a subscription; those that count a part of its runs have a plus sign."""
    return [f"{number}{'+' if row.is_partial else ''}" for number in (row.runs, row.behind, row.taken)]


async def _read() -> list[SubscriptionRow]:
    async with open_client(None) as client:
        return await client.subscriptions()


async def _delete(name: str) -> None:
    async with open_client(f"subscription {name}") as client:
        await client.unsubscribe(name)
