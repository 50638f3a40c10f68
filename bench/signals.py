"""`python -m bench.signals`: measure what signals cost on a log of ten million, as ratios to floors that are measured in the same run.

1. The match of a name against 10,000 subscriptions with wildcards, beside a look-up in a dict.
2. Fold, seek and checkpoints of a player, on a million signals in memory, beside `json.loads` of the same signals.
3. Why signals were emitted, trees and graphs, on a project of `--total` signals, `--run` of them in one run: beside one row of the table by its
   primary key.
4. Takes of a subscriber, beside a read of the same rows.
5. Forks of the long run, time and WAL, beside one inserted row.

The server is an embedded PostgreSQL of its own in a temporary folder, with fsync on. It needs about 4 GB for ten million signals. Ratios are of one
run: what is measured and its floor take turns, so they share the load of the machine. CPU is the time of the server's process alone. `--save NAME` keeps the figures in `bench/results`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg

from bench.causes import measure_causes
from bench.figures import Figure, Figures
from bench.forks import measure_forks
from bench.machine import ROOT, read_header
from bench.playback import measure_playback
from bench.signal_log import fill
from bench.subscribers import NEW_US, PATTERNS, SEEN_US, match_costs
from bench.takes import measure_takes
from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install

RESULTS = ROOT / "bench" / "results"


def measure_match(rounds: int, figures: Figures) -> None:
    floor, known, fresh = (1e6 * seconds for seconds in match_costs(rounds))
    for name, value, target in (("seen before", known, SEEN_US), ("new", fresh, NEW_US)):
        figures.add(
            Figure(f"match of a name {name}, {PATTERNS:,} wildcards", value, "µs", floor, "dict look-ups", target)
        )


async def measure_database(url: str, options: argparse.Namespace, figures: Figures) -> dict[str, Any]:
    """Fill the database and measure in it; return what describes the measurement."""
    connection = await asyncpg.connect(url)
    await install(connection)
    log = await fill(connection, options.total, options.run, options.each)
    print(
        f"{log.signals:,} signals, {log.long_run:,} in one run; {log.megabytes:,.0f} MB; filled in {log.seconds:.0f} s",
        flush=True,
    )
    await measure_causes(connection, log, options.reps, figures)
    await measure_takes(connection, max(5, options.reps // 10), figures)
    await measure_forks(connection, log, max(5, options.reps // 10), figures)
    await connection.close()
    return {"log": asdict(log)}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.signals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--total", type=int, default=10_000_000, help="signals in the project (default 10,000,000)")
    parser.add_argument(
        "--run", type=int, default=1_000_000, help="of them in one run, and in the player (default 1,000,000)"
    )
    parser.add_argument("--each", type=int, default=1_000, help="of them in each other run (default 1,000)")
    parser.add_argument("--reps", type=int, default=500, help="questions of each kind (default 500)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the measurements in memory (default 5)")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in bench/results/NAME.json")
    options = parser.parse_args()
    figures, started = Figures(), perf_counter()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}", flush=True)
    measure_match(options.rounds, figures)
    measure_playback(options.run, options.rounds, figures)
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings={"max_wal_size": "4GB"}) as server:
            header = asyncio.run(read_header(server.url, 0, options.reps))
            found = asyncio.run(measure_database(server.url, options, figures))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.save is not None:
        measured = {
            "seconds": round(perf_counter() - started),
            "load_before": round(load, 2),
            "load_after": round(os.getloadavg()[0], 2),
        }
        report = {"header": {**header, **measured}, **found, "figures": figures.as_json()}
        (RESULTS / f"{options.save}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(f"missed: {'; '.join(figures.missed)}" if figures.missed else 0)


if __name__ == "__main__":
    main()
