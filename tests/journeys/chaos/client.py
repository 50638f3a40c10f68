"""Start runs until each start is acknowledged. The process can be killed at any moment.

`python -m tests.journeys.chaos.client FIRST STEP RUNS PAUSE OPEN FOLDER` starts the runs FIRST, FIRST + STEP, and so on
below RUNS, PAUSE seconds apart, while fewer than OPEN are running, until FOLDER contains the file `enough`. The client
appends a line to the file `acknowledged` after `start` has returned, and only then: each run in that file must stay in
the database. A restarted client continues after the last line. It may start a run twice whose first start was not
acknowledged; both starts must create the same run. Before a start, it appends a line to the file `attempted`: the start
may commit although its answer is lost, so the client repeats it even after `enough`. Otherwise nobody would stop an
endless run of doomed.py. `client_actions.py` contains the further actions on a run. A line in the file `served` records
that they are done.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from heliograph.errors import StoreUnavailable
from heliograph.runtime import Runtime, open_runtime
from tests.journeys.chaos.client_actions import RETRY_SECONDS, ClientAction, action_of
from tests.journeys.chaos.marks import append_line, read_lines
from tests.journeys.chaos.skewed import skew_clock

ATTEMPTED, ACKNOWLEDGED, SERVED, ENOUGH = "attempted", "acknowledged", "served", "enough"


async def main(numbers: range, pause_seconds: float, open_max: int, folder: Path) -> None:
    done = set(read_lines(folder / ACKNOWLEDGED))
    served = set(read_lines(folder / SERVED))
    async with open_runtime() as runtime, asyncio.TaskGroup() as beside:
        for action in map(action_of, numbers):
            if action.run_id not in done:
                while not await start(runtime, action, open_max, folder):
                    if has_finished(action.run_id, folder):
                        return  # the task group waits for the running actions
                    await asyncio.sleep(RETRY_SECONDS)
                append_line(folder / ACKNOWLEDGED, action.run_id)
            if action.run_id not in served:
                beside.create_task(serve(runtime, action, folder))
            if action.run_id not in done:
                await asyncio.sleep(pause_seconds)


def has_finished(run_id: str, folder: Path) -> bool:
    """Return whether no run is to be started any more, and this one has not been attempted."""
    return (folder / ENOUGH).exists() and run_id not in read_lines(folder / ATTEMPTED)


async def start(runtime: Runtime, action: ClientAction, open_max: int, folder: Path) -> bool:
    """Return whether the start is acknowledged: not while enough runs are running, or without the database."""
    if has_finished(action.run_id, folder):
        return False
    try:
        [[under_way]] = await runtime.database.fetch(
            "select count(*) from heliograph.runs where status <> 'ended' and run_id <> $1", action.run_id
        )
        if under_way >= open_max:
            return False
        if action.project is not None:
            runtime = Runtime(replace(runtime.settings, project=action.project), runtime.database, runtime.world)
        append_line(folder / ATTEMPTED, action.run_id)
        await runtime.start(action.workflow, action.state, action.run_id)
    except StoreUnavailable:
        return False
    return True


async def serve(runtime: Runtime, action: ClientAction, folder: Path) -> None:
    await action.serve(runtime, action.run_id, folder)
    append_line(folder / SERVED, action.run_id)


if __name__ == "__main__":
    skew_clock()
    first, step, runs, pause, most, path = sys.argv[1:]
    try:
        asyncio.run(main(range(int(first), int(runs), int(step)), float(pause), int(most), Path(path)))
    except StoreUnavailable as away:  # the database was away at the start; the replacement of this process tries again
        sys.exit(f"error: {away.message}")
