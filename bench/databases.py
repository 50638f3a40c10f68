"""`python -m bench.databases`: measure the database that a test gets, beside copies of an empty one in the same seconds.

Each round makes and drops, in alternation: a database of the testing kit (with its connection and its thread), bare copies of the kit's
template with both strategies of PostgreSQL, and bare copies of template0, the floor: no database can be smaller. `--processes` run at
once, as the test processes of a suite do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import quantiles
from time import perf_counter

import asyncpg

from heliograph.testing.database import TestServer, beside, template_name

TARGET_MS = 50.0
KIT, FLOOR = "kit", "empty, file_copy"


async def rounds(server: TestServer, count: int) -> dict[str, list[float]]:
    """The milliseconds of each kind of database."""
    found: dict[str, list[float]] = defaultdict(list)
    connection = await asyncpg.connect(server.url("postgres"))
    name = f"bench_{os.getpid()}"
    copies = {
        "template, file_copy": f"template {template_name()} strategy file_copy",
        "template, wal_log": f"template {template_name()} strategy wal_log",
        FLOOR: "template template0 strategy file_copy",
        "empty, wal_log": "template template0 strategy wal_log",
    }
    try:
        for _ in range(count):
            started = perf_counter()
            url = await asyncio.to_thread(beside, server.create)
            found[KIT].append((perf_counter() - started) * 1000)
            await server.drop(url)
            for kind, copy in copies.items():
                started = perf_counter()
                await connection.execute(f"create database {name} {copy}")
                found[kind].append((perf_counter() - started) * 1000)
                await connection.execute(f"drop database {name}")
    finally:
        await connection.close()
    return dict(found)


def measure(url: str, count: int) -> dict[str, list[float]]:
    """The rounds of one process."""
    return asyncio.run(rounds(TestServer(Path(), url=url), count))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.databases", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of each process")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = TestServer(Path(folder))
        try:
            beside(server.create)  # makes the template
            with ProcessPoolExecutor(options.processes) as pool:
                url = server.url("postgres")
                for each in pool.map(measure, [url] * options.processes, [options.rounds] * options.processes):
                    for kind, values in each.items():
                        times[kind] += values
        finally:
            server.close()
    p50 = {}
    for kind, values in times.items():
        _, p50[kind], _ = quartiles = quantiles(values, n=4)
        print(f"{kind:20} p50 {p50[kind]:7.1f} ms, quarters {quartiles[0]:.1f} and {quartiles[2]:.1f} ms")
    print(f"a database of the kit is {p50[KIT] / p50[FLOOR]:.2f} times the floor; target: p50 under {TARGET_MS:g} ms")
    return 0 if p50[KIT] < TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
