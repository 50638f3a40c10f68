"""`python -m bench`: Heliograph beside the floor, in one run on one server, as ratios.

Absolute figures move from machine to machine; the ratios within one run are what
counts. The server is an embedded PostgreSQL 18 of its own, with fsync and
synchronous_commit on, in a temporary folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from bench.floor import floor
from bench.full import low_load, throughput
from bench.kernel import kernel
from bench.place import Place, Sample
from bench.report import Row, as_json, print_report, read_header, row_of
from heliograph.ledger.embedded import open_embedded

RESULTS = Path(__file__).with_name("results")
BASE = "floor, 16 clients"

Measure = Callable[[Place, int, float], Awaitable[Sample]]
ROWS: dict[str, tuple[Measure, int]] = {
    "floor, 1 client": (floor, 1),
    BASE: (floor, 16),
    "kernel, one item per call, 16 lanes": (kernel, 1),
    "kernel, 32 items per call, 16 lanes": (kernel, 32),
    "heliograph, 1 caller": (throughput, 1),
    "heliograph, 16 callers": (throughput, 16),
    "heliograph, 128 callers": (throughput, 128),
    "heliograph, one run at a time": (low_load, 1),
}


async def measure_all(place: Place, names: Sequence[str], seconds: float, reps: int) -> list[Row]:
    """Each row `reps` times. The repetitions go round, so that a slow minute of the machine meets every row."""
    samples: dict[str, list[Sample]] = {name: [] for name in names}
    for _ in range(reps):
        for name in names:
            measure, size = ROWS[name]
            samples[name].append(await measure(place, size, seconds))
    return [row_of(name, of_row) for name, of_row in samples.items()]


def main() -> None:
    options = _read_options()
    names = [name for name in ROWS if not options.only or any(part in name for part in options.only)]
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings={"max_wal_size": "4GB"}) as server:
            place = Place(server.url, server.bin)
            header = asyncio.run(read_header(server.url, options.seconds, options.reps))
            rows = asyncio.run(measure_all(place, names, options.seconds, options.reps))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print_report(header, rows, BASE)
    kept = RESULTS / (
        "reference.json" if options.keep else f"{header['at'][:16].replace(' ', '-').replace(':', '')}.json"
    )
    kept.write_text(json.dumps(as_json(header, rows), indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {kept.relative_to(RESULTS.parent.parent)}")


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each repetition of each row (default 3)")
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each row; medians are shown (default 3)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="rows whose name contains one of these")
    parser.add_argument(
        "--keep", action="store_true", help="write results/reference.json, the one under version control"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
