"""`helio turn stop` and `helio run stop`: end a turn or a run as canceled."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from heliograph.cli.arguments import login_name
from heliograph.cli.existing_database import open_client
from heliograph.cli.output import json_line, line

if TYPE_CHECKING:
    from heliograph.client.replies import StopResult


def stop_turn(options: Namespace) -> int:
    """Stop a turn. Returns 0, also for a turn that has already ended."""
    return _stop_message("turn", options.turn, asyncio.run(_stop("turn", options.turn, options)), options)


def stop_run(options: Namespace) -> int:
    """Stop a run. Returns 0, also for a run that has already ended."""
    return _stop_message("run", options.run, asyncio.run(_stop("run", options.run, options)), options)


async def _stop(kind: str, name: str, options: Namespace) -> StopResult:
    async with open_client(f"{kind} {name}") as client:
        stop = client.stop_turn if kind == "turn" else client.stop_run
        actor = options.by or login_name()
        return await stop(name, now=options.now, grace_seconds=options.grace, reason=options.reason, actor=actor)


def _stop_message(kind: str, name: str, result: StopResult, options: Namespace) -> int:
    if options.json:
        json_line("stopped", {f"{kind}_id": name, "outcome": result.outcome, "ended_as": result.ended_as})
    elif result.outcome == "already_done":
        line(f"{kind} {name} has already ended: {result.ended_as or 'pruned'}")
    elif result.outcome == "stopping" and not options.now:
        line(f"{kind} {name} is stopping; its turns have {options.grace:g} s to finish")
    else:
        line(f"{kind} {name} is {result.outcome}")
    return 0
