"""`python -m bench.databases`: measure how long a test waits for its database, beside copies of an empty one in the same seconds.

First, tests of `--test-ms` follow one another, and each takes a database of the testing kit. Then each round measures, in alternation: a database that
the kit makes when it is taken, as for the first test; bare copies of the kit's template with both strategies of PostgreSQL; and bare copies of
template0, the floor: no database can be smaller. `--processes` run at once, as the test processes of a suite do.
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

from heliograph.testing.database import TestServer, template_name
from heliograph.testing.prepared_databases import PreparedDatabases

TARGET_MS = 50.0
KIT, FLOOR = "kit", "empty, file_copy"


async def rounds(server: TestServer, count: int, test_ms: float) -> dict[str, list[float]]:
    """The milliseconds of each kind of database."""
    found: dict[str, list[float]] = defaultdict(list)
    databases = PreparedDatabases(server)
    for _ in range(2):  # from here on, the next one is prepared
        databases.release(databases.take())
    for _ in range(count):
        started = perf_counter()
        url = databases.take()
        found[KIT].append((perf_counter() - started) * 1000)
        await asyncio.sleep(test_ms / 1000)  # the test
        databases.release(url)
    databases.close()
    connection = await asyncpg.connect(server.admin_url)
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
            url = await server.create()
            found["kit, the first"].append((perf_counter() - started) * 1000)
            await server.drop(url)
            for kind, copy in copies.items():
                started = perf_counter()
                await connection.execute(f"create database {name} {copy}")
                found[kind].append((perf_counter() - started) * 1000)
                await connection.execute(f"drop database {name}")
    finally:
        await connection.close()
    return dict(found)


def measure(url: str, count: int, test_ms: float) -> dict[str, list[float]]:
    """The rounds of one process."""
    return asyncio.run(rounds(TestServer(Path(), url=url), count, test_ms))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.databases", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of each process")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--test-ms", type=float, default=100, help="how long a test takes")
    options = parser.parse_args()
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = TestServer(Path(folder))
        try:
            asyncio.run(server.create())  # makes the template
            with ProcessPoolExecutor(options.processes) as pool:
                url = server.admin_url
                each_process = [url], [options.rounds], [options.test_ms]
                for each in pool.map(measure, *(values * options.processes for values in each_process)):
                    for kind, values in each.items():
                        times[kind] += values
        finally:
            server.close()
    p50 = {}
    for kind, values in times.items():
        _, p50[kind], _ = quartiles = quantiles(values, n=4)
        print(f"{kind:20} p50 {p50[kind]:7.1f} ms, quarters {quartiles[0]:.1f} and {quartiles[2]:.1f} ms")
    print(
        f"a test waits {p50[KIT] / p50[FLOOR]:.2f} times the floor for its database; target: p50 under {TARGET_MS:g} ms"
    )
    return 0 if p50[KIT] < TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
