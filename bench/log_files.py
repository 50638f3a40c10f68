"""`python -m bench.log_files`: work A on two embedded folders, with files of the write-ahead log of 1 MB and of 16 MB, in alternation.

Prints for each figure of `make bench` the medians of both, and the ratio of the first to the second: its median and its range.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from bench.compare import HERE, Figures, measure_tree
from bench.place import Place
from bench.works import SIXTEEN
from heliograph.embedded import cluster
from heliograph.embedded.server import open_embedded

SETTINGS = {1: cluster.LOG_SETTINGS, 16: {}}  # those that differ from PostgreSQL's, by the size of a file


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.log_files", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, metavar="N", help="measurements of each folder (8)")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="N", help="of each measurement (3)")
    options = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    found: dict[int, list[Figures]] = {size: [] for size in SETTINGS}
    with ExitStack() as stack:
        places = {size: open_place(stack, size) for size in SETTINGS}
        for round_ in range(options.rounds):
            for size in sorted(places, reverse=bool(round_ % 2)):
                found[size].append(measure_tree(HERE, places[size], "A", SIXTEEN, options.seconds))
    for name in found[16][0]:
        ratios = [
            one[name] / sixteen[name] for one, sixteen in zip(found[1], found[16], strict=True) if sixteen.get(name)
        ]
        if ratios:
            medians = [statistics.median(each[name] for each in found[size]) for size in SETTINGS]
            print(f"{name:<14} {medians[0]:10.1f} {medians[1]:10.1f}  ratio {statistics.median(ratios):.2f} "
                  f"({min(ratios):.2f} to {max(ratios):.2f})")  # fmt: skip
    return 0


def open_place(stack: ExitStack, size: int) -> Place:
    """Open a new folder whose log has files of so many MB, until the stack ends."""
    home = Path(tempfile.mkdtemp(prefix=f"heliograph-log-{size}-"))
    stack.callback(shutil.rmtree, home, ignore_errors=True)
    with patch.object(cluster, "LOG_FILE_MB", size), patch.object(cluster, "LOG_SETTINGS", SETTINGS[size]):
        server = open_embedded(home)
    stack.callback(server.wait_stopped, 60)
    stack.callback(server.close)
    return Place(server.url, server.bin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
