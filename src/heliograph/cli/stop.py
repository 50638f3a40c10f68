"""`helio turn stop` and `helio run stop`: end a turn or a run as canceled."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from contextlib import suppress
from typing import TYPE_CHECKING

from heliograph.cli.arguments import login_name
from heliograph.cli.existing_database import open_existing_runtime
from heliograph.cli.output import json_line, line
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound, StoreUnavailable

if TYPE_CHECKING:
    from heliograph.client.replies import StopResult
    from heliograph.runtime import Runtime


def stop_turn(options: Namespace) -> int:
    """Stop a turn. Returns 0, also for a turn that has already ended."""
    return asyncio.run(_stop("turn", options.turn, options))


def stop_run(options: Namespace) -> int:
    """Stop a run. Returns 0, also for a run that has already ended."""
    return asyncio.run(_stop("run", options.run, options))


async def _stop(kind: str, name: str, options: Namespace) -> int:
    from heliograph.client import stops  # slow to import, like those below
    from heliograph.client.arguments import check_id, check_stop

    async with open_existing_runtime(f"{kind} {name}") as runtime:
        check_id(name, f"a {kind} id", f"/{kind}_id")
        actor = options.by or login_name()
        request = check_stop(now=options.now, grace_seconds=options.grace, reason=options.reason, actor=actor)
        stop = stops.stop_turn if kind == "turn" else stops.stop_run
        result = await stop(runtime, name, request)
        next_step = await _next_step(runtime, kind, name, options) if result.outcome == "stopping" else ""
    _print_stop(kind, name, result, next_step, is_json=options.json)
    return 0


async def _next_step(runtime: Runtime, kind: str, name: str, options: Namespace) -> str:
    """What ends the turn or the run that is stopping."""
    if kind == "run":
        with suppress(NotFound, StoreUnavailable):
            run = await runtime.reader.run(name)
            if not run.open_turns:  # it had none, or all of them were waiting and have ended at once
                return f"; it has no open turn, so a worker of {safe_repr(run.target)} ends it"
    return "" if options.now else f"; {'it has' if kind == 'turn' else 'its turns have'} {options.grace:g} s to finish"


def _print_stop(kind: str, name: str, result: StopResult, next_step: str, *, is_json: bool) -> None:
    if is_json:
        json_line("stopped", {f"{kind}_id": name, "outcome": result.outcome, "ended_as": result.ended_as})
    elif result.outcome == "already_done":
        line(f"{kind} {name} has already ended: {result.ended_as or 'pruned'}")
    else:
        line(f"{kind} {name} is {result.outcome}{next_step}")
