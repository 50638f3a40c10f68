"""`helio turn stop` and `helio run stop`: end work that is not wanted any more."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from heliograph.cli.arguments import login_name
from heliograph.cli.open_database import open_client
from heliograph.cli.output import json_line, line

if TYPE_CHECKING:
    from heliograph.client.replies import StopResult


def stop_turn(options: Namespace) -> int:
    """0 also for a turn that has ended before: nobody has to ask again."""
    return _stop_message("turn", options.turn, asyncio.run(_stop_turn(options)), options)


def stop_run(options: Namespace) -> int:
    """0 also for a run that has ended before."""
    return _stop_message("run", options.run, asyncio.run(_stop_run(options)), options)


async def _stop_turn(options: Namespace) -> StopResult:
    async with open_client(f"turn {options.turn}") as client:
        return await client.stop_turn(
            options.turn,
            now=options.now,
            grace_seconds=options.grace,
            reason=options.reason,
            actor=options.by or login_name(),
        )


async def _stop_run(options: Namespace) -> StopResult:
    async with open_client(f"run {options.run}") as client:
        return await client.stop_run(
            options.run,
            now=options.now,
            grace_seconds=options.grace,
            reason=options.reason,
            actor=options.by or login_name(),
        )


def _stop_message(kind: str, name: str, result: StopResult, options: Namespace) -> int:
    if options.json:
        json_line({f"{kind}_id": name, "outcome": result.outcome, "ended_as": result.ended_as})
    elif result.outcome == "already_done":
        line(f"{kind} {name} has ended already: {result.ended_as or 'pruned'}")
    elif result.outcome == "stopping" and not options.now:
        line(f"{kind} {name} is stopping; what runs gets {options.grace:g} s to wind up")
    else:
        line(f"{kind} {name} is {result.outcome}")
    return 0
