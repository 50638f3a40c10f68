"""`python -m tests.journeys.chaos [--gate commit|nightly|release] [--mutant NAME | --mutants [NAME ...]] [--seed 1] ..`.

Chaos kills, freezes and disconnects real processes and gives them wrong clocks. Meanwhile it stops and crashes their
PostgreSQL, fills its disk and slows it down. Then it checks every claim, in the database and from outside. It prints one
table. If a claim fails, it exits with 1 and keeps all files. --mutant removes a rule of the kernel first, and exits with 1 if
no check notices; --mutants removes one rule after another: all, or the named ones.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tests.journeys.chaos.faults import TITLES
from tests.journeys.chaos.hunt import hunt, print_mutant
from tests.journeys.chaos.mutants import MUTANTS
from tests.journeys.chaos.options import GATES, Gate, Options
from tests.journeys.chaos.report import lines
from tests.journeys.chaos.run import Report, run_chaos
from tests.journeys.chaos.verdict import Verdict


def main() -> int:
    parser = _parser()
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    signal.signal(
        signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT)
    )  # asyncio takes everything down for it
    is_hunt = arguments.mutant is not None or arguments.mutants is not None
    gate = GATES[arguments.gate or ("mutant" if is_hunt else "commit")]
    changed = {
        name: value for name, value in vars(arguments).items() if name in vars(gate.options) and value is not None
    }
    options = replace(gate.options, **changed)
    if options.limit_seconds <= options.chaos_seconds:
        parser.error(f"--limit-seconds {options.limit_seconds:g} leaves no time after the faults: it counts from the start, "
                     f"so give more than --chaos-seconds {options.chaos_seconds:g}")  # fmt: skip
    if arguments.mutants is not None:
        return hunt(arguments.mutants or list(MUTANTS), options)
    folder = Path(tempfile.mkdtemp(prefix="heliograph-chaos-"))
    mutant = MUTANTS[arguments.mutant] if arguments.mutant else None
    try:
        report = asyncio.run(run_chaos(folder, options, mutant))
    except BaseException:
        print(f"given up; what there is of it: {folder}")
        raise
    if not changed.keys() - {"seed"} and mutant is None:
        report.verdicts.append(_is_enough(report, gate))
    print("\n".join(lines(report)))
    if mutant is not None:
        shutil.rmtree(folder)
        return print_mutant(mutant, report)
    if not report.violations:
        shutil.rmtree(folder)
        return 0
    print(f"kept for inspection: {folder} (logs, timeline, effects, and server-data or server for PostgreSQL)")
    return 1


def _is_enough(report: Report, gate: Gate) -> Verdict:
    """Check that enough faults and turns happened for this run to be a proof."""
    seen = {**report.injected, **report.figures}
    problems = [
        f"{name}: {seen.get(name, 0)}, and the gate requires {least}"
        for name, least in gate.least.items()
        if seen.get(name, 0) < least and TITLES.get(name) not in report.unavailable
    ]
    return Verdict("the gate's least counts were reached", problems)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.journeys.chaos", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--gate", choices=GATES, help="load and faults by name (commit; mutant, where there is one)")
    parser.add_argument("--mutant", choices=MUTANTS, metavar="NAME", help="take this rule out of the kernel first")
    parser.add_argument(
        "--mutants", type=_mutant, nargs="*", metavar="NAME", help="one after another; all, unless named"
    )
    for name, default in vars(Options()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), metavar="N", help=f"({default})")
    return parser


def _mutant(name: str) -> str:
    if name not in MUTANTS:
        raise argparse.ArgumentTypeError(f"there is no mutant {name}; there are {', '.join(MUTANTS)}")
    return name


if __name__ == "__main__":
    sys.exit(main())
