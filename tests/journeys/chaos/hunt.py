"""Run chaos against each mutant of the kernel, and print the check that detected it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.journeys.chaos.mutants import MUTANTS, UNSEEN, Mutant
from tests.journeys.chaos.options import Options
from tests.journeys.chaos.run import Report, run_chaos

WIDTH = 110
SEEDS = 3  # runs with other seeds before a mutant counts as unseen
PATIENCE = 2.0  # times as long as the whole kernel took: then a run that has not ended never does


def hunt(names: Sequence[str], options: Options) -> int:
    """Hunt the mutants and print a row for each. Return 1 if a detectable one stayed undetected, or the intact kernel failed.

    The intact kernel runs first: it must pass, and shows the duration of a run on this machine.
    """
    print(f"{'mutant':<25} {'rule':<14} {'s':>4}  seen by")
    report, seconds = _run(None, replace(options, limit_seconds=4 * options.limit_seconds))
    options = replace(options, limit_seconds=max(options.limit_seconds, PATIENCE * report.seconds))
    print(_row("none", "", seconds, _first(report) or "nothing: the kernel as it is holds"), flush=True)
    missed = ["none"] if report.violations else []
    for name in names:
        seen, seconds = _hunt(MUTANTS[name], options, 1 if name in UNSEEN else SEEDS)
        if seen is None and name not in UNSEEN:
            missed.append(name)
        seen = seen or (f"cannot be: {UNSEEN[name]}" if name in UNSEEN else "NOT SEEN")
        print(_row(name, MUTANTS[name].rule, seconds, seen), flush=True)
    print(
        f"{len(names)} mutants; " + (f"wrong: {', '.join(missed)}" if missed else "each is seen, or is known not to be")
    )
    return 1 if missed else 0


def _hunt(mutant: Mutant, options: Options, seeds: int) -> tuple[str | None, float]:
    """Return the check that detected the mutant, and the seconds that it took. Runs are short, so several are tried."""
    total = 0.0
    for seed in range(options.seed, options.seed + seeds):
        report, seconds = _run(mutant, replace(options, seed=seed))
        total += seconds
        if (seen := _first(report)) is not None:
            return seen, total
    return None, total


def print_mutant(mutant: Mutant, report: Report) -> int:
    if report.violations:
        print(f"mutant {mutant.name} ({mutant.rule}) was caught")
        return 0
    print(f"mutant {mutant.name} ({mutant.rule}) was NOT caught: {UNSEEN.get(mutant.name, 'and should be')}")
    return 0 if mutant.name in UNSEEN else 1


def _run(mutant: Mutant | None, options: Options) -> tuple[Report, float]:
    folder, began = Path(tempfile.mkdtemp(prefix="heliograph-chaos-")), time.monotonic()
    try:
        report = asyncio.run(run_chaos(folder, options, mutant))
    finally:
        shutil.rmtree(folder)
    return report, time.monotonic() - began


def _first(report: Report) -> str | None:
    """Return the first violation with the number of other violated claims, or None."""
    if not report.violations:
        return None
    more = sum(bool(verdict.problems) for verdict in report.verdicts) - 1
    return report.violations[0] + (f" (and {more} more claims)" if more else "")


def _row(name: str, rule: str, seconds: float, seen: str) -> str:
    return f"{name:<25} {rule:<14} {seconds:>4.0f}  {seen[:WIDTH]}"
