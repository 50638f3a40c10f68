"""`python -m bench.top`: the time of a refresh of `helio top` with many ended runs in the database, beside that with one.

A refresh reads the newest hundred runs, and the logs of those that have grown; here none has. Reads of both databases alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.figures import Figure, Figures
from bench.history import database_with_history
from bench.meter.sample import quantile
from bench.place import SERVER, Place
from heliograph.cli.top_load import LoadWatch
from heliograph.embedded.server import open_embedded
from heliograph.ledger.pool import Database
from heliograph.ledger.reader import Reader

ROWS = 100  # of the screen


async def measure(place: Place, runs: int, reads: int) -> dict[int, list[float]]:
    """The seconds of each read, by the number of ended runs in the database."""
    found: dict[int, list[float]] = {}
    async with AsyncExitStack() as stack:
        watches = {}
        for count in (0, runs):
            url = await stack.enter_async_context(database_with_history(place, count))
            database = await Database.open(url, project="default")
            stack.push_async_callback(database.close)
            watches[count] = LoadWatch(Reader(database, "default"), ROWS)
            await watches[count].read_counted()
            found[count] = []
        for _ in range(reads):
            for count, watch in watches.items():
                began = time.perf_counter()
                await watch.read()
                found[count].append(time.perf_counter() - began)
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.top", description=__doc__)
    parser.add_argument(
        "--history", type=int, default=100_000, metavar="N", help="ended runs in the database (100,000)"
    )
    parser.add_argument("--reads", type=int, default=100, metavar="N", help="reads of each database (100)")
    options = parser.parse_args(arguments)
    home = Path(tempfile.mkdtemp(prefix="heliograph-top-"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    try:
        with open_embedded(home, settings=SERVER) as server:
            found = asyncio.run(measure(Place(server.url, server.bin), options.history, options.reads))
        server.wait_stopped(60)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    figures = Figures()
    for label, at in (("p50", 0.5), ("p99", 0.99)):
        one, many = (1000 * quantile(found[count], at) for count in (0, options.history))
        name = f"a refresh of helio top with {options.history:,} ended runs, {label}"
        figures.add(Figure(name, many, "ms", one, "with one run"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
