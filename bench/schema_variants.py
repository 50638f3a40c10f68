"""`python -m bench.schema_variants NAME=FILE.sql...`: compare the CPU time of kernel calls under changes of the schema.

Each variant is a database with the schema and the statements of its file, for example constraints, indexes or other functions. Each
round leads a few runs from their start to their end in every database, in alternating order. Prints for each call the median of the
server's CPU time per item, and the ratio of each variant to the schema as it is, which is measured twice: the second ratio is noise.
The variant `guarded` is always there: it has the constraints of rows that test databases have (decision 0104).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg

from bench.kernel_calls import CALLS, WARM_ROUNDS, Calls, record_requests
from bench.place import SERVER, Place
from bench.server_time import Stopwatch, Times
from heliograph.embedded.server import open_embedded
from heliograph.ledger.pool import Database
from heliograph.testing.kernel.row_guard import guard_rows

AS_IT_IS, GUARDED, AGAIN = "as it is", "guarded", "again"


async def measure(place: Place, variants: Mapping[str, str], size: int, rounds: int) -> dict[str, dict[str, Times]]:
    """The times of each call in each variant. size: the number of items of a call."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(place.database())
        requests = await record_requests(url)
        sides: dict[str, Calls] = {}
        for name, sql in variants.items():
            url = await stack.enter_async_context(place.database())
            connection = await asyncpg.connect(url)
            if name == GUARDED:
                await guard_rows(connection)
            elif sql:
                await connection.execute(sql)
            await connection.close()
            database = await Database.open(url, size=1)
            stack.push_async_callback(database.close)
            [row] = await database.fetch("select pg_backend_pid() as pid")
            sides[name] = Calls(database, requests, Stopwatch(row["pid"]))
        for number in range(WARM_ROUNDS + rounds):
            first = number % len(sides)
            for name in [*sides, *sides][first : first + len(sides)]:
                if number == WARM_ROUNDS:
                    sides[name].times = {call: Times() for call in CALLS}
                await sides[name].one_round([number * size + n + 1 for n in range(size)])
        return {name: side.times for name, side in sides.items()}


def print_times(found: Mapping[str, Mapping[str, Times]], size: int) -> None:
    print(f"\n{size} items per call: µs of the server's CPU per item")
    print(f"{'':14}" + "".join(f"{name:>14}" for name in found))
    totals = {
        name: [sum(each) for each in zip(*(times[call].cpu for call in CALLS), strict=True)]
        for name, times in found.items()
    }
    for call in CALLS:
        print(
            f"{call:14}"
            + "".join(f"{1e6 * statistics.median(times[call].cpu) / size:14,.1f}" for times in found.values())
        )
    print(f"{'all':14}" + "".join(f"{1e6 * statistics.median(each) / size:14,.1f}" for each in totals.values()))
    ratios = [statistics.median(b / a for a, b in zip(totals[AS_IT_IS], each, strict=True)) for each in totals.values()]
    print(f"{'ratio':14}" + "".join(f"{ratio:14.3f}" for ratio in ratios), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.schema_variants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("variants", nargs="*", metavar="NAME=FILE", help="a file with SQL statements")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 32], help="items per call (1 32)")
    parser.add_argument("--rounds", type=int, default=200, help="of each size (200)")
    options = parser.parse_args()
    variants = {AS_IT_IS: "", GUARDED: ""}
    for name, _, file in (variant.partition("=") for variant in options.variants):
        variants[name] = Path(file).read_text(encoding="utf-8")
    variants[AGAIN] = ""
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            for size in options.sizes:
                place = Place(server.url, server.bin)
                print_times(asyncio.run(measure(place, variants, size, options.rounds)), size)
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
