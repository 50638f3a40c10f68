"""`python -m bench.compare CHECKOUT`: compare Heliograph with itself at another commit, and with a peer, in one run.

    git worktree add ../before 88b396b
    python -m bench.compare ../before --peer DBOS

Each round measures all of them on one server, in alternating order, so that a slow minute of the machine affects both sides of
a ratio. Prints for each load the median over the rounds of each figure of `make bench`, and the ratio of this checkout to the
other: its median, and the quartiles between which half of the rounds lie. A peer needs `make bench-peers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bench.meter.sample import RATE, Spread
from bench.place import SERVER, Place
from bench.works import MANY, PEER, SINGLE, SIXTEEN, Contender, contenders
from heliograph.embedded.server import open_embedded

HERE = Path(__file__).resolve().parent.parent
CALLERS = {SIXTEEN: 16, MANY: 128, SINGLE: 1}
CHILD_SECONDS = 300.0
Figures = dict[str, float]


def measure_tree(
    tree: Path, place: Place, work: str, load: str, seconds: float, environment: Mapping[str, str] | None = None
) -> Figures:
    """Measure one load with the code of a checkout. environment: further variables.

    Raises RuntimeError with the last lines of its stderr.
    """
    cell = {
        "url": place.url, "bin": str(place.bin), "work": work, "callers": CALLERS[load], "seconds": seconds,
        "is_single": load == SINGLE,
    }  # fmt: skip
    done = subprocess.run(  # noqa: S603  our own
        [sys.executable, "-P", str(HERE / "bench" / "measure_tree.py")],
        input=json.dumps(cell) + "\n", capture_output=True, text=True, check=False,
        cwd=tree, env={**os.environ, "PYTHONPATH": f"{tree / 'src'}:{tree}", **(environment or {})}, timeout=CHILD_SECONDS, start_new_session=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the measurement of {tree} failed: {done.stderr[-800:]}")
    figures: Figures = json.loads(done.stdout)
    return figures


async def rate_of(peer: Contender, load: str, place: Place, seconds: float) -> float:
    measure, callers = peer.loads[load]
    return (await measure(place, callers, seconds)).figures()[RATE]


def ratios(before: Sequence[Figures], after: Sequence[Figures], key: str) -> str:
    """The median and the quartiles of after / before, round by round; nothing if a round has zero before."""
    if not all(each[key] for each in before):
        return "-"
    found = [b[key] / a[key] for a, b in zip(before, after, strict=True)]
    return f"{found[0]:.3f}" if len(found) < 2 else Spread.of(found).text(".3f")


def print_cell(before: Sequence[Figures], after: Sequence[Figures], peers: Mapping[str, Sequence[float]]) -> None:
    for key in before[0]:
        old, new = (statistics.median(each[key] for each in side) for side in (before, after))
        print(f"  {key:14} before {old:10,.2f}   now {new:10,.2f}   now/before {ratios(before, after, key)}")
    now = statistics.median(each[RATE] for each in after)
    for name, rates in peers.items():
        rate = statistics.median(rates)
        print(f"  items/s of {name} {rate:,.1f}   now/peer {now / rate:.2f}")
    sys.stdout.flush()


def run(place: Place, other: Path, options: argparse.Namespace) -> None:
    for work, load in product(options.work.upper(), options.load):
        peers = [
            line for line in contenders()
            if line.kind == PEER and line.work == work and load in line.loads and options.peer and options.peer in line.name
        ]  # fmt: skip
        sides: dict[Path, list[Figures]] = {other: [], HERE: []}
        rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
        print(f"\n{work}, {load}, {options.rounds} rounds", flush=True)
        for number in range(options.rounds):
            for tree in (other, HERE) if number % 2 else (HERE, other):
                sides[tree].append(measure_tree(tree, place, work, load, options.seconds))
            for peer in peers:
                rates[peer.name].append(asyncio.run(rate_of(peer, load, place, options.seconds)))
        print_cell(sides[other], sides[HERE], rates)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a folder with another commit of Heliograph")
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each side and load (default 9)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    parser.add_argument("--work", default="AB", help="A, B or both (default)")
    parser.add_argument("--load", nargs="+", choices=CALLERS, default=list(CALLERS), help="the loads (default: all)")
    parser.add_argument("--peer", metavar="TEXT", help="also measure the peers whose name contains this")
    options: Any = parser.parse_args()
    other = options.checkout.resolve()
    if not (other / "bench" / "full.py").is_file():
        parser.error(f"{options.checkout} is no checkout of Heliograph: it has no bench/full.py")
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            run(Place(server.url, server.bin), other, options)
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
