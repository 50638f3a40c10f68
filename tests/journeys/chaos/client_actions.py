"""Actions of clients on a run after its start: send it messages, stop it, prune it.

Of eight runs, two belong to trials.py and receive a message twice. Two belong to doomed.py and are stopped in one of
four ways. One belongs to ageing.py and is pruned from its first turn to its last. The others run undisturbed. Each
action may be interrupted at any point and repeated.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from heliograph import Client
from heliograph.errors import Rejected, StoreUnavailable
from heliograph.reactive.workflow import Workflow
from heliograph.runtime import Runtime
from tests.journeys.chaos import ageing, doomed, trials, workload
from tests.journeys.chaos.marks import append_line, chance_of

RETRY_SECONDS = 0.2
GRACE_SECONDS = 60.0  # of a graceful stop: longer than any fault, so a turn that receives its stop ends earlier
BEGIN_TRIES = 50  # how often a client looks for running turns before it stops the run anyway
AT_WORK = """select count(*) from heliograph.agent_state_head
              where run_id = $1 and agent_name in ('stubborn', 'deaf') and status = 'running'"""
GREETED = "greeted"  # the file with the turns of messages that were acknowledged
GREETING = "hello"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientAction:
    """A run to start and the action that follows. project: None for the default project."""

    run_id: str
    workflow: Workflow
    state: Mapping[str, Any]
    serve: Callable[[Runtime, str, Path], Awaitable[None]]
    project: str | None = None


def action_of(n: int) -> ClientAction:
    if n % 4 == 1:
        return ClientAction(f"run_trial_{n}", trials.app.workflow, {}, _greet)
    if n % 4 == 3:
        return ClientAction(f"run_doomed_{n}", doomed.app.workflow, {"way": n // 4 % 4}, _stop)
    if n % 8 == 2:
        return ClientAction(f"run_aged_{n}", ageing.app.workflow, {}, _forget, ageing.PROJECT)
    return ClientAction(workload.run_id_of(n), workload.app.workflow, workload.initial_state(n), _do_nothing)


async def _do_nothing(_runtime: Runtime, _run_id: str, _folder: Path) -> None: ...


async def _greet(runtime: Runtime, run_id: str, folder: Path) -> None:
    """Send the same message twice; an ended run accepts none."""
    client, turn_id = Client.on(runtime), f"turn_guest_{run_id}"
    for _ in range(2):
        try:
            await _until_answered(  # as many attempts as its turn may need: workers die often
                lambda: client.enqueue(run_id, "guest", {"text": GREETING}, turn_id=turn_id, max_attempts=100)
            )
        except Rejected as refused:
            if refused.code != "run_ended":
                raise
            return
        append_line(folder / GREETED, turn_id)


async def _stop(runtime: Runtime, run_id: str, _folder: Path) -> None:
    """Stop the run during its work, or before it has begun if no worker claims it for a while."""
    client, way = Client.on(runtime), workload.number_of(run_id) // 4 % 4
    for _ in range(BEGIN_TRIES):
        if (await _until_answered(lambda: runtime.database.fetch(AT_WORK, run_id)))[0][0]:
            break
        await asyncio.sleep(RETRY_SECONDS)
    await asyncio.sleep(0.5 * chance_of(run_id))
    if way == doomed.BY_RUN:
        await _until_answered(lambda: client.stop_run(run_id, grace_seconds=GRACE_SECONDS))
    elif way == doomed.BY_RUN_NOW:
        await _until_answered(lambda: client.stop_run(run_id, now=True))
    elif way == doomed.BY_SQL:
        item = json.dumps([{"run_id": run_id, "mode": "graceful", "grace_seconds": GRACE_SECONDS}])
        statement = "select heliograph.stop_runs('default', $1::text::jsonb, clock_timestamp())"
        await _until_answered(lambda: runtime.database.fetch(statement, item))
    else:
        await _stop_turns(runtime, client, run_id)


async def _stop_turns(runtime: Runtime, client: Client, run_id: str) -> None:
    """Force the stop of boss, twice; stop deaf with a short grace, and again with a longer one that has no effect."""
    statement = """select h.agent_name, t.agent_turn_id from heliograph.agent_turns t
                     join heliograph.agent_state_head h using (project_id, agent_id)
                    where t.run_id = $1 and h.agent_name in ('boss', 'deaf')"""
    turns = {row[0]: row[1] for row in await _until_answered(lambda: runtime.database.fetch(statement, run_id))}
    for _ in range(2):
        await _until_answered(lambda: client.stop_turn(turns["boss"], now=True))
    for grace in (0.5, GRACE_SECONDS):
        await _until_answered(lambda seconds=grace: client.stop_turn(turns["deaf"], grace_seconds=seconds))  # type: ignore[misc]


async def _forget(runtime: Runtime, run_id: str, _folder: Path) -> None:
    """Prune until no row of the run remains."""
    remaining = "select count(*) from heliograph.runs where project_id = $1 and run_id = $2"
    while (await _until_answered(lambda: runtime.database.fetch(remaining, ageing.PROJECT, run_id)))[0][0]:
        await _until_answered(lambda: runtime.database.fetch(ageing.PRUNE))
        await asyncio.sleep(0.3)


async def _until_answered(call: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
