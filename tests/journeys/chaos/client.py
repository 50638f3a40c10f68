"""A client that starts runs until each of its own is acknowledged, and can be killed at any moment.

`python -m tests.journeys.chaos.client FIRST STEP RUNS PAUSE OPEN FOLDER`: runs FIRST, FIRST + STEP, .. below RUNS, PAUSE
seconds apart, while fewer than OPEN are under way, and until there is a file `enough` in FOLDER. A line goes to the file
`acknowledged` when `start` has answered, and only then: what is in there must be in the database for ever. Begun again,
it goes on behind what is in the file; a run whose start was done but not acknowledged is started twice, which must be
the same run.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from heliograph.errors import StoreUnavailable
from heliograph.runtime import Runtime, open_runtime
from tests.journeys.chaos.marks import append_line, read_lines
from tests.journeys.chaos.skewed import skew_clock
from tests.journeys.chaos.workload import app, initial_state, run_id_of

RETRY_SECONDS = 0.2
ACKNOWLEDGED, ENOUGH = "acknowledged", "enough"


async def main(numbers: range, pause_seconds: float, open_max: int, folder: Path) -> None:
    done = set(read_lines(folder / ACKNOWLEDGED))
    async with open_runtime() as runtime:
        for n in numbers:
            if run_id_of(n) in done:
                continue
            while not await start(runtime, n, open_max):
                if (folder / ENOUGH).exists():
                    return
                await asyncio.sleep(RETRY_SECONDS)
            append_line(folder / ACKNOWLEDGED, run_id_of(n))
            if (folder / ENOUGH).exists():
                return
            await asyncio.sleep(pause_seconds)


async def start(runtime: Runtime, n: int, open_max: int) -> bool:
    """Whether it is acknowledged; not so where enough runs are under way, or the database is away."""
    try:
        [[under_way]] = await runtime.database.fetch(
            "select count(*) from heliograph.runs where status <> 'ended' and run_id <> $1", run_id_of(n)
        )
        if under_way >= open_max:
            return False
        await runtime.start(app.workflow, initial_state(n), run_id_of(n))
    except StoreUnavailable:
        return False
    return True


if __name__ == "__main__":
    skew_clock()
    first, step, runs, pause, most, path = sys.argv[1:]
    try:
        asyncio.run(main(range(int(first), int(runs), int(step)), float(pause), int(most), Path(path)))
    except StoreUnavailable as away:  # it was not there when this process came up; whoever replaces it tries again
        sys.exit(f"error: {away.message}")
