"""The commands of `helio sim`. Each prints its result and returns an exit code: 0 for success, 1 for a failure.

They import the simulator when they run, so `--help` stays fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from heliograph.error_text import counted, safe_repr

if TYPE_CHECKING:
    from heliograph.testing.simulator.simulate import Case, Result

_LISTED_MAX = 20
_REACH_SEEDS = 400  # fewer seeds need not reach everything


def run(
    seeds: int, backend: str = "memory", start: int = 0, jobs: int | None = None, *, hooks: bool = False, sessions: bool = False
) -> int:  # fmt: skip
    """Simulate seeds, and print a line for each that fails. hooks, sessions: see `Case`."""
    from heliograph.testing.simulator.coverage import unreached
    from heliograph.testing.simulator.jobs import run_seeds
    from heliograph.testing.simulator.simulate import Case

    like = Case(0, hooks=hooks, sessions=sessions)
    started, counters, failed = time.monotonic(), Counter[str](), 0
    calls, turns, virtual = 0, 0, 0.0
    for summary in run_seeds(range(start, start + seeds), backend, jobs or os.cpu_count() or 1, like):
        counters += summary.counters
        calls, turns, virtual = calls + summary.calls, turns + summary.turns, virtual + summary.virtual_seconds
        if summary.line is not None:
            failed += 1
            if failed <= _LISTED_MAX:
                _print(f"{summary.line}  {safe_repr(summary.detail, 160)}")
    faults = sum(count for name, count in counters.items() if name.startswith("fault "))
    counts = counted(turns, "turn"), counted(calls, "kernel call"), counted(faults, "fault")
    _print(f"{counted(seeds, 'seed')} on {backend}: {failed} failed; {', '.join(counts)}, "
         f"{virtual / 3600:.1f} virtual hours in {time.monotonic() - started:.0f} s")  # fmt: skip
    missing = (
        unreached(counters, maintenance=backend == "postgres", hooks=hooks, sessions=sessions)
        if seeds >= _REACH_SEEDS
        else []
    )
    if missing:
        _print(f"never reached: {', '.join(missing)}")
    return 1 if failed or missing else 0


def replay(case: Case, backend: str = "memory", *, trace: bool = False, mutant: str | None = None) -> int:
    """Simulate one case again; `trace` prints every kernel call and every fault."""
    from heliograph.testing.mutants.catalog import MUTANTS
    from heliograph.testing.simulator.jobs import open_backend
    from heliograph.testing.simulator.simulate import simulate

    rule = MUTANTS[mutant] if mutant else None
    with open_backend(backend, rule) as opened:
        case = rule.applied_to(case) if rule else case
        result = simulate(case, opened, keeps_trace=trace)
    for line in result.log:
        _print(line)
    _print_result(result)
    return 1 if result.violations else 0


def shrink(case: Case, backend: str = "memory", *, mutant: str | None = None) -> int:
    """Print the smallest case that fails like this one, as JSON for `replay --case`."""
    import msgspec

    from heliograph.testing.mutants.catalog import MUTANTS
    from heliograph.testing.simulator.jobs import open_backend
    from heliograph.testing.simulator.shrink import Shrinker
    from heliograph.testing.simulator.simulate import simulate

    rule = MUTANTS[mutant] if mutant else None
    with open_backend(backend, rule) as opened:
        shrinker = Shrinker(lambda case: simulate(case, opened))
        try:
            result = shrinker.shrink(rule.applied_to(case) if rule else case)
        except ValueError as error:
            _print(str(error))
            return 1
    size = result.case.size
    _print_result(result)
    _print(f"{size.runs} runs at most, {size.workers} workers, {size.messages} messages each; faults: "
         f"{', '.join(sorted(result.case.faults or ())) or 'none'}; {len(result.deviations)} deviations; "
         f"{shrinker.runs} simulations")  # fmt: skip
    _print(msgspec.json.encode(result.case, order="deterministic").decode())
    return 0


def diff(seeds: int, start: int = 0) -> int:
    """Compare the in-memory kernel with PostgreSQL: every call, argument, answer and time, and every row at the end."""
    from heliograph.testing.kernel.backend import have_same_rows
    from heliograph.testing.simulator.jobs import open_backend
    from heliograph.testing.simulator.simulate import PROJECT, Case, simulate

    differing = 0
    with open_backend("memory") as memory, open_backend("postgres") as postgres:
        for seed in range(start, start + seeds):
            results = [simulate(Case(seed), backend, keeps_trace=True) for backend in (memory, postgres)]
            found = first_difference(results[0], results[1])
            if found is None and not have_same_rows(memory, postgres, PROJECT):
                found = "the same calls left other rows"
            if found is not None:
                differing += 1
                _print(f"HELIOGRAPH_SEED={seed} backend=both class=difference\n{found}")
    _print(f"{seeds} seeds on memory and postgres: {differing} differ")
    return 1 if differing else 0


def first_difference(left: Result, right: Result) -> str | None:
    """Return the first lines in which two traces differ; None for equal traces."""
    if left.trace_hash == right.trace_hash:
        return None
    for one, other in zip(left.log, right.log, strict=False):
        if one != other:
            return f"  {left.backend}: {one}\n  {right.backend}: {other}"
    return f"one trace has {len(left.log)} lines, the other {len(right.log)}"


def mutants(backend: str = "memory", seeds: int = 300) -> int:
    """Take out each rule in turn; print the seed and the check that detect it, and the time."""
    from heliograph.testing.mutants.catalog import MUTANTS, hunt
    from heliograph.testing.simulator.jobs import open_mutants

    unseen = 0
    with open_mutants(backend) as opens:
        for mutant in MUTANTS.values():
            if not (mutant.has_sql if backend == "postgres" else mutant.has_in_memory):
                continue
            with opens(mutant) as opened:
                started = time.monotonic()
                found = hunt(mutant, opened, range(seeds))
            seconds = time.monotonic() - started
            unseen += found is None
            seen = f"seed {found.case.seed}, {found.kind}" if found else f"not found in {seeds} seeds"
            _print(f"{mutant.name:26} {mutant.rules:8} {seen}, {seconds:.2f} s")
    return 1 if unseen else 0


def _print_result(result: Result) -> None:
    for violation in result.violations[:_LISTED_MAX]:
        _print(f"{violation.kind}: {safe_repr(violation.detail, 400)}")
    if result.violations:
        _print(result.line())
    else:
        _print(f"HELIOGRAPH_SEED={result.case.seed} backend={result.backend} ok: {result.turns} turns, {result.calls} kernel "
             f"calls, {len(result.faults)} faults, trace {result.trace_hash}")  # fmt: skip


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
