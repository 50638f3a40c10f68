"""Compare Heliograph with itself under several settings: the loop, the table and the command line of such comparisons.

Each round measures all sides on one server, in alternating order, so that a slow minute of the machine affects all of them. One setting
is measured twice in each round: as `off`, to which the others are compared, and as `off again`, whose ratio says how much of a
difference is noise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from bench.compare import CALLERS, HERE, Figures, measure_tree, ratios
from bench.machine import read_header
from bench.place import SERVER, Place
from heliograph.embedded.server import open_embedded

OFF, OFF_AGAIN = "off", "off again"

Measure = Callable[[str], Figures]  # of one side


def measure_in_rounds(names: Sequence[str], rounds: int, measure: Measure) -> dict[str, list[Figures]]:
    """Measure all sides in each round; each round begins with another side, and every second one goes backwards."""
    found: dict[str, list[Figures]] = {name: [] for name in names}
    for number in range(rounds):
        first = number % len(names)
        turned = [*names[first:], *names[:first]]
        for name in turned if number % 2 else reversed(turned):
            found[name].append(measure(name))
    return found


def print_sides(sides: Mapping[str, Sequence[Figures]]) -> None:
    """Print the medians of each side, and the ratios to `off` round by round."""
    off = sides[OFF]
    for key in sides[OFF][0]:
        print(f"  {key:14} off {statistics.median(each[key] for each in off):10,.2f}")
        for name, side in sides.items():
            if side is not off:
                median = statistics.median(each[key] for each in side)
                print(f"  {'':14} {name:9} {median:10,.2f}   {name}/off {ratios(off, side, key)}")
    sys.stdout.flush()


def compare_sides(
    program: str, description: str | None, environments: Mapping[str, Callable[[], Mapping[str, str]]], loads: Iterable[str],
    check: Callable[[str], None] = lambda side: None,
) -> None:  # fmt: skip
    """Run the command line of a comparison.

    environments: the variables of the processes of each side. loads: the default loads. check: called after each measurement of a side;
    raises if the side was not what it should be.
    """
    parser = argparse.ArgumentParser(
        prog=program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="measurements of each side and load (default 12)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    parser.add_argument("--work", default="A", help="A (default), B or both")
    parser.add_argument("--load", nargs="+", choices=CALLERS, default=list(loads), help="the loads")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    options: Any = parser.parse_args()
    found: dict[str, dict[str, list[Figures]]] = {}
    home = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            place = Place(server.url, server.bin)
            header = asyncio.run(read_header(server.url, options.seconds, options.rounds))
            print(json.dumps(header, indent=2, ensure_ascii=False))
            for work, load in product(options.work.upper(), options.load):

                def measure(side: str, work: str = work, load: str = load) -> Figures:
                    figures = measure_tree(HERE, place, work, load, options.seconds, environments[side]())
                    check(side)
                    return figures

                print(f"\n{work}, {load}, {options.rounds} rounds", flush=True)
                found[f"{work}, {load}"] = sides = measure_in_rounds(list(environments), options.rounds, measure)
                print_sides(sides)
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"header": header, "figures": found}, indent=2, ensure_ascii=False), encoding="utf-8"
        )
