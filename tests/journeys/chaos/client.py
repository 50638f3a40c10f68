"""A client that starts runs until each of its own is acknowledged, and can be killed at any moment.

`python -m tests.journeys.chaos.client FIRST STEP RUNS PAUSE OPEN FOLDER`: runs FIRST, FIRST + STEP, .. below RUNS, PAUSE
seconds apart, while fewer than OPEN are under way, and until there is a file `enough` in FOLDER. A line goes to the file
`acknowledged` when `start` has answered, and only then: what is in there must be in the database for ever. Begun again,
it goes on behind what is in the file; a run whose start was done but not acknowledged is started twice, which must be
the same run. What else is to be done with a run is in errands.py; a line in the file `served` says that it was done.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from heliograph.errors import StoreUnavailable
from heliograph.runtime import Runtime, open_runtime
from tests.journeys.chaos.errands import RETRY_SECONDS, Errand, errand_of
from tests.journeys.chaos.marks import append_line, read_lines
from tests.journeys.chaos.skewed import skew_clock

ACKNOWLEDGED, SERVED, ENOUGH = "acknowledged", "served", "enough"


async def main(numbers: range, pause_seconds: float, open_max: int, folder: Path) -> None:
    done = set(read_lines(folder / ACKNOWLEDGED))
    served = set(read_lines(folder / SERVED))
    async with open_runtime() as runtime, asyncio.TaskGroup() as beside:
        for errand in map(errand_of, numbers):
            if errand.run_id not in done:
                while (folder / ENOUGH).exists() or not await start(runtime, errand, open_max):
                    if (folder / ENOUGH).exists():
                        return  # those beside are waited for
                    await asyncio.sleep(RETRY_SECONDS)
                append_line(folder / ACKNOWLEDGED, errand.run_id)
            if errand.run_id not in served:
                beside.create_task(serve(runtime, errand, folder))
            if errand.run_id not in done:
                await asyncio.sleep(pause_seconds)


async def start(runtime: Runtime, errand: Errand, open_max: int) -> bool:
    """Whether it is acknowledged; not so where enough runs are under way, or the database is away."""
    try:
        [[under_way]] = await runtime.database.fetch(
            "select count(*) from heliograph.runs where status <> 'ended' and run_id <> $1", errand.run_id
        )
        if under_way >= open_max:
            return False
        if errand.project is not None:
            runtime = Runtime(replace(runtime.settings, project=errand.project), runtime.database, runtime.world)
        await runtime.start(errand.workflow, errand.state, errand.run_id)
    except StoreUnavailable:
        return False
    return True


async def serve(runtime: Runtime, errand: Errand, folder: Path) -> None:
    await errand.serve(runtime, errand.run_id, folder)
    append_line(folder / SERVED, errand.run_id)


if __name__ == "__main__":
    skew_clock()
    first, step, runs, pause, most, path = sys.argv[1:]
    try:
        asyncio.run(main(range(int(first), int(runs), int(step)), float(pause), int(most), Path(path)))
    except StoreUnavailable as away:  # it was not there when this process came up; whoever replaces it tries again
        sys.exit(f"error: {away.message}")
