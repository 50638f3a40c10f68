"""Stop runs without any other fault: during chaos, a worker that misses its stop is soon killed, which ends its turn."""

from __future__ import annotations

import asyncio
import time

from heliograph import Client
from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.journeys.chaos import doomed
from tests.journeys.chaos.client_actions import AT_WORK, GRACE_SECONDS
from tests.journeys.chaos.site import Site
from tests.journeys.chaos.verdict import Verdict
from tests.journeys.chaos.watch import read_number

RUNS = 6
PATIENCE_SECONDS = 20.0  # until the turns run: the last killed worker may still have its lease
ENDS_SECONDS = 10.0  # a turn that receives its stop ends by then, long before the kernel forces it
_TICK_SECONDS = 0.05


async def stop_in_calm(site: Site) -> Verdict:
    """Stop endless runs, each at a different moment."""
    names = [f"run_doomed_calm_{n}" for n in range(RUNS)]
    took, problems = [0.0], list[str]()
    await _comes(site, "select 1", PATIENCE_SECONDS)  # the last fault may have been a full disk: PostgreSQL recovers
    async with open_runtime(Settings(database_url=site.server.url)) as runtime:
        for name in names:
            await runtime.start(doomed.app.workflow, {"way": doomed.BY_RUN}, name)
        for n, name in enumerate(names):
            if not await _comes(site, AT_WORK.replace("$1", f"'{name}'"), PATIENCE_SECONDS):
                problems.append(f"{name} did not begin within {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(n * _TICK_SECONDS / RUNS)
            await Client.on(runtime).stop_run(name, grace_seconds=GRACE_SECONDS)
            began = time.monotonic()
            ended = f"select count(*) from heliograph.runs where run_id = '{name}' and status = 'ended'"
            if await _comes(site, ended, ENDS_SECONDS):
                took.append(time.monotonic() - began)
            else:
                problems.append(f"{name} had not ended {ENDS_SECONDS:g} s after its stop")
    return Verdict("a stopped run ends soon without other faults", problems, f"within {max(took):.1f} s")


async def _comes(site: Site, query: str, seconds: float) -> bool:
    """Return whether the query returns another number than 0 within the given time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        site.fleet.replace_dead()
        if await read_number(site, query, 0):
            return True
        await asyncio.sleep(_TICK_SECONDS)
    return False
