"""`python -m tests.journeys.kill9_subscribers_app called|iterating NAME LEASE_SECONDS`: a subscriber to `part:*`, until it is killed.

Prints its process id. Appends a line `begin` and a line `end` for each signal to the file in KILL9_EFFECTS. Between those of a `part:b` it
waits while the file `hold-PID` exists beside it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from heliograph import Client, Signal, open_runtime
from heliograph.adapters.base import AdapterServices
from heliograph.adapters.callback import function_subscriber
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.subscriptions.deliveries import Deliveries
from heliograph.subscriptions.leased_runs import LeasedRuns

PATTERN = "part:*"
_, KIND, NAME, LEASE = sys.argv
EFFECTS = Path(os.environ["KILL9_EFFECTS"])


def note(signal: Signal[Any], what: str) -> None:
    with EFFECTS.open("a") as file:
        file.write(f"{NAME} {os.getpid()} {signal.run_id} {signal.seq} {what}\n")


async def handle(signal: Signal[Any]) -> None:
    note(signal, "begin")
    while signal.name == "part:b" and os.access(EFFECTS.with_name(f"hold-{os.getpid()}"), os.F_OK):  # noqa: ASYNC110  a file has no event
        await asyncio.sleep(0.01)
    note(signal, "end")


async def called() -> None:
    async with open_runtime() as runtime:
        world, project = runtime.world, runtime.settings.project
        deliveries = Deliveries(
            AdapterServices(world, project),
            function_subscriber(NAME, (PATTERN,), handle, "start", 3600.0, 5),
            LeasedRuns(world, SignalFeed(world, project), float(LEASE)),
        )
        await deliveries.subscribe()
        print(os.getpid(), flush=True)
        await deliveries.run()


async def iterating() -> None:
    async with Client() as client:
        print(os.getpid(), flush=True)
        async for signal in client.subscribe(NAME, [PATTERN], since="start", lease_seconds=float(LEASE)):
            await handle(signal)


if __name__ == "__main__":
    asyncio.run({"called": called, "iterating": iterating}[KIND]())
