"""`python -m bench`: compare Heliograph with the floor and with its peers, in one run on one server, as ratios.

Work A is one durable job, work B one durable turn with one suspended call; agents at work are prompt agents, children, many agents and streams. The tables have rates, latencies, and per item the CPU time
of each process, the commits, the fsyncs and the log. Repetitions of all lines alternate; medians and quartiles are printed.
Absolute figures depend on the machine; the ratios within one run do not. For a quick look:

    python -m bench --seconds 1 --reps 1 --work A --only floor heliograph

The server is a separate embedded PostgreSQL 18 in a temporary folder, with fsync and synchronous_commit on. Peers need
`make bench-peers` once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.history import database_with_history
from bench.machine import read_header
from bench.meter.sample import Sample
from bench.parts import TRIPS, Parts, measure_parts
from bench.place import SERVER, Place
from bench.plot import draw
from bench.report import Row, as_json, print_report, row_of
from bench.works import LOADS, PEER, Contender, contenders
from heliograph.embedded.server import open_embedded

RESULTS = Path(__file__).with_name("results")


async def measure_all(place: Place, lines: Sequence[Contender], seconds: float, reps: int) -> list[Row]:
    """Measure each line under each load `reps` times. Repetitions alternate between lines, so a slow minute affects all of them."""
    cells = [(line, load) for line in lines for load in LOADS if load in line.loads]
    samples: dict[tuple[str, str, str], list[Sample]] = {}
    problems: dict[tuple[str, str, str], str] = {}
    for repetition in range(1, reps + 1):
        for number, (line, load) in enumerate(cells, 1):
            key = (line.work, line.name, load)
            _print_progress(f"{repetition}/{reps} {number}/{len(cells)} work {line.work}, {line.name}, {load}")
            measure, callers = line.loads[load]
            try:
                samples.setdefault(key, []).append(await measure(place, callers, seconds))
            except Exception as failed:
                if line.kind != PEER:
                    raise
                problems[key] = f"{type(failed).__name__}: {failed}"  # a peer's failure is a finding, not ours to raise
    _print_progress("")
    return [
        row_of(line, load, samples[line.work, line.name, load], problems.get((line.work, line.name, load), ""))
        for line, load in cells
    ]


async def run(place: Place, options: argparse.Namespace) -> tuple[dict[str, Any], list[Contender], list[Row], Parts]:
    async with AsyncExitStack() as stack:
        histories = {n: await stack.enter_async_context(database_with_history(place, n)) for n in options.history}
        named = [line for line in contenders(histories) if _is_named(line, options)]
        lines = [line for line in named if line.work in options.work.upper()]
        header = await read_header(place.url, options.seconds, options.reps)
        rows = await measure_all(place, lines, options.seconds, options.reps)
        parts = (
            TRIPS if options.only and TRIPS in options.work.upper() else "" if options.only else options.work.upper()
        )
        return header, lines, rows, await measure_parts(place, parts, lines or named, options.seconds, options.reps)


def main() -> None:
    options = _read_options()
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            header, lines, rows, parts = asyncio.run(run(Place(server.url, server.bin), options))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print_report(header, lines, rows, parts)
    name = "reference" if options.keep else header["at"][:16].replace(" ", "-").replace(":", "")
    written = {".json": json.dumps(as_json(header, rows, parts), indent=1) + "\n", ".svg": draw(header, rows)}
    for ending, text in written.items():
        (RESULTS / (name + ending)).write_text(text, encoding="utf-8")
    print(f"\nwritten to bench/results/{name}.json and .svg")


def _is_named(line: Contender, options: argparse.Namespace) -> bool:
    return not options.only or any(part in line.name for part in options.only)


def _print_progress(message: str) -> None:
    """Print the progress on a terminal, because a run takes long."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each repetition of each row (default 3)")
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each row; medians are shown (default 3)")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="lines whose name contains one of these, without K and W"
    )
    parser.add_argument(
        "--work",
        default="ABPFRDTKW",
        help="which of A, B, agents at work (P steps, F children, R a run, D tokens), T (round trips), K (kernel calls) and W (the worker alone)",
    )
    parser.add_argument(
        "--history", nargs="*", type=int, metavar="TURNS", help="measure upon so many finished turns, too (100000)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="write results/reference.json and .svg, which are under version control"
    )
    options = parser.parse_args()
    options.history = [100_000] if options.history == [] else options.history or []
    return options


if __name__ == "__main__":
    main()
