"""`helio run fork` and `helio run retry`: start a run that continues the log of another one."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Awaitable, Callable

from heliograph.cli.existing_database import missing_database
from heliograph.cli.files import read_state
from heliograph.cli.load_target import load_target
from heliograph.cli.manifests import configure
from heliograph.cli.output import json_line, line, table
from heliograph.cli.waits import run_command
from heliograph.config import read_settings
from heliograph.errors import NotFound
from heliograph.reactive.workflow import Workflow
from heliograph.run_fork import Fork, fork_run, retry_run
from heliograph.runtime import Runtime, open_runtime, telemetry_of

_WORDS = {
    "restarted": "starts again", "continued": "continues", "in_doubt": "ends as failed: IN_DOUBT", "delegated": "is left to its caller",
}  # fmt: skip


def fork(options: Namespace) -> int:
    """Fork a run. Returns 0, also for a fork that an earlier call has made."""
    workflow = configure(load_target(options.app, options), options).workflow
    state = None if options.state is None else read_state(options.state)
    at = int(options.at) if options.at.isascii() and options.at.isdigit() else options.at
    return _print(
        options,
        _made(options, workflow, lambda runtime: fork_run(runtime, workflow, options.run, at, state, options.run_id)),
    )


def retry(options: Namespace) -> int:
    """Retry a run from its first failed turn. Returns 0."""
    workflow = configure(load_target(options.app, options), options).workflow
    return _print(
        options, _made(options, workflow, lambda runtime: retry_run(runtime, workflow, options.run, options.run_id))
    )


def _made(options: Namespace, workflow: Workflow, make: Callable[[Runtime], Awaitable[Fork]]) -> Fork:
    async def made() -> Fork:
        lacking = missing_database(read_settings(os.environ))
        if lacking is not None:
            raise NotFound(f"no run {options.run}: {lacking}", code="no_data")
        async with open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime:
            return await make(runtime)

    return asyncio.run(made())


def _print(options: Namespace, made: Fork) -> int:
    if options.json:
        json_line("fork", made)
        return 0
    line(
        f"run {made.run_id} {'continues' if made.is_new else 'already continues'} run {made.origin} after {made.signal}"
    )
    if made.turns:
        headers = ("TURN", "AGENT", "IT", "NEW TURN", "RESULTS", "UNKNOWN RESULTS", "WAITS AGAIN FOR")
        table(headers, [(t.turn_id, t.agent, _WORDS[t.fate], t.new_turn_id or "-", str(t.results), str(t.unknown),
                         ", ".join(t.waiting) or "-") for t in made.turns])  # fmt: skip
    line(f"execute it with: {run_command(options, made.run_id)}")
    return 0
