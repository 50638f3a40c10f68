"""Stops when nothing else happens: in chaos a worker that is not told dies soon anyway, and its turn ends for that reason."""

from __future__ import annotations

import asyncio
import time

from heliograph import Client
from heliograph.config import Settings
from heliograph.runtime import open_runtime
from tests.journeys.chaos import doomed
from tests.journeys.chaos.errands import AT_WORK, GRACE_SECONDS
from tests.journeys.chaos.site import Site
from tests.journeys.chaos.verdict import Verdict
from tests.journeys.chaos.watch import ask

RUNS = 6
PATIENCE_SECONDS = 20.0  # until they are at work: the last worker that was killed may still hold its lease
ENDS_SECONDS = 10.0  # who is told ends by then, long before anybody is forced to
_TICK_SECONDS = 0.05


async def stop_in_calm(site: Site) -> Verdict:
    """Runs that would go on for ever, stopped whole, each at another moment."""
    names = [f"run_doomed_calm_{n}" for n in range(RUNS)]
    took, problems = [0.0], list[str]()
    async with open_runtime(Settings(database_url=site.server.url)) as runtime:
        for name in names:
            await runtime.start(doomed.app.workflow, {"way": doomed.BY_RUN}, name)
        for n, name in enumerate(names):
            if not await _comes(site, AT_WORK.replace("$1", f"'{name}'"), PATIENCE_SECONDS):
                problems.append(f"{name} was not begun within {PATIENCE_SECONDS:g} s")
            await asyncio.sleep(n * _TICK_SECONDS / RUNS)
            await Client.on(runtime).stop_run(name, grace_seconds=GRACE_SECONDS)
            began = time.monotonic()
            ended = f"select count(*) from heliograph.runs where run_id = '{name}' and status = 'ended'"
            if await _comes(site, ended, ENDS_SECONDS):
                took.append(time.monotonic() - began)
            else:
                problems.append(f"{name} had not ended {ENDS_SECONDS:g} s after it was told to stop")
    return Verdict("whoever is told to stop ends soon, when nothing is wrong", problems, f"within {max(took):.1f} s")


async def _comes(site: Site, query: str, seconds: float) -> bool:
    """Whether the answer is no longer 0 before so many seconds are over."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        site.fleet.replace_dead()
        if await ask(site, query, 0):
            return True
        await asyncio.sleep(_TICK_SECONDS)
    return False
