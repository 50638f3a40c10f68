"""`helio sim run | replay | shrink | diff | mutants`. Each returns an exit code: 0 for success, 1 for a failure.

Commands import the simulator when they run, so `--help` stays fast.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from heliograph.errors import InvalidInput, safe_repr

if TYPE_CHECKING:
    from heliograph.testing.simulator.simulate import Case, Result

_LISTED_MAX = 20
_REACH_SEEDS = 300  # fewer seeds need not reach everything


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise InvalidInput(message, code="usage", hint=f"{self.prog} --help shows what it takes")


def main(arguments: list[str], kind: type[argparse.ArgumentParser] = _Parser) -> int:
    """Run one command. Raises InvalidInput for invalid arguments. kind: the class of the parser, which formats errors."""
    try:
        options = _parser(kind).parse_args(arguments)
    except SystemExit as end:  # --help has answered
        return int(end.code or 0)
    code: int = options.call(options)
    return code


def run(seeds: int, backend: str = "memory", start: int = 0, jobs: int | None = None) -> int:
    """Simulate seeds; one line for each that fails."""
    from heliograph.testing.simulator.coverage import unreached
    from heliograph.testing.simulator.jobs import run_seeds

    started, counters, failed = time.monotonic(), Counter[str](), 0
    calls, turns, virtual = 0, 0, 0.0
    for summary in run_seeds(range(start, start + seeds), backend, jobs or os.cpu_count() or 1):
        counters += summary.counters
        calls, turns, virtual = calls + summary.calls, turns + summary.turns, virtual + summary.virtual_seconds
        if summary.line is not None:
            failed += 1
            if failed <= _LISTED_MAX:
                _say(f"{summary.line}  {safe_repr(summary.detail, 160)}")
    faults = sum(count for name, count in counters.items() if name.startswith("fault "))
    _say(f"{seeds} seeds on {backend}: {failed} failed; {turns} turns, {calls} kernel calls, {faults} faults, "
         f"{virtual / 3600:.1f} virtual hours in {time.monotonic() - started:.0f} s")  # fmt: skip
    missing = unreached(counters, maintenance=backend == "postgres") if seeds >= _REACH_SEEDS else []
    if missing:
        _say(f"never reached: {', '.join(missing)}")
    return 1 if failed or missing else 0


def replay(case: Case, backend: str = "memory", *, trace: bool = False, mutant: str | None = None) -> int:
    """Simulate one case again; `trace` prints every kernel call and every fault."""
    from heliograph.testing.mutants.catalog import MUTANTS
    from heliograph.testing.simulator.jobs import open_backend
    from heliograph.testing.simulator.simulate import simulate

    rule = MUTANTS[mutant] if mutant else None
    with open_backend(backend, rule) as opened:
        case = replace(case, repeats_once=rule.repeats_once) if rule else case
        result = simulate(case, opened, keeps_trace=trace)
    for line in result.log:
        _say(line)
    _say_result(result)
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
            result = shrinker.shrink(replace(case, repeats_once=rule.repeats_once) if rule else case)
        except ValueError as error:
            _say(str(error))
            return 1
    size = result.case.size
    _say_result(result)
    _say(f"{size.runs} runs at most, {size.workers} workers, {size.messages} messages each; faults: "
         f"{', '.join(sorted(result.case.faults or ())) or 'none'}; {len(result.deviations)} deviations; "
         f"{shrinker.runs} simulations")  # fmt: skip
    _say(msgspec.json.encode(result.case, order="deterministic").decode())
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
                _say(f"HELIOGRAPH_SEED={seed} backend=both class=difference\n{found}")
    _say(f"{seeds} seeds on memory and postgres: {differing} differ")
    return 1 if differing else 0


def first_difference(left: Result, right: Result) -> str | None:
    """The first lines of two traces that differ, or None."""
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
            _say(f"{mutant.name:26} {mutant.rules:8} {seen}, {seconds:.2f} s")
    return 1 if unseen else 0


def _parser(kind: type[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = kind(prog="helio sim", description="Run the runtime under seeded faults.", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)

    def verb(name: str, text: str, call: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(call=call)
        return made

    def add(to: argparse.ArgumentParser, *names: str, seeds: int = 0) -> None:
        if "backend" in names:
            to.add_argument(
                "--backend",
                choices=["memory", "postgres"],
                default="memory",
                help="the kernel: in memory, or PostgreSQL",
            )
        if "seeds" in names:
            to.add_argument("--seeds", type=_count, default=seeds, metavar="N", help=f"how many seeds ({seeds})")
        if "start" in names:
            to.add_argument("--start", type=_seed, default=0, metavar="SEED", help="the first seed (0)")
        if "mutant" in names:
            to.add_argument(
                "--mutant", type=_mutant, metavar="NAME", help="with a rule taken out; helio sim mutants names them"
            )

    many = verb("run", "simulate many seeds", lambda o: run(o.seeds, o.backend, o.start, o.jobs))
    add(many, "seeds", "backend", "start", seeds=200)
    many.add_argument("--jobs", type=_count, metavar="N", help="processes (one for each processor)")
    one = verb(
        "replay", "simulate one seed again", lambda o: replay(_case(o), o.backend, trace=o.trace, mutant=o.mutant)
    )
    one.add_argument("seed", type=_seed, nargs="?", metavar="SEED")
    one.add_argument("--case", metavar="JSON", help="what helio sim shrink printed, instead of a seed")
    one.add_argument("--trace", action="store_true", help="print every kernel call and every fault")
    add(one, "backend", "mutant")
    small = verb("shrink", "make a failing seed small", lambda o: shrink(_case(o), o.backend, mutant=o.mutant))
    small.add_argument("seed", type=_seed, metavar="SEED")
    add(small, "backend", "mutant")
    small.set_defaults(case=None)
    add(
        verb("diff", "compare the in-memory kernel with PostgreSQL", lambda o: diff(o.seeds, o.start)),
        "seeds",
        "start",
        seeds=40,
    )
    add(verb("mutants", "take out each rule, and check that the simulator detects it", lambda o: mutants(o.backend, o.seeds)),
        "seeds", "backend", seeds=300)  # fmt: skip
    return parser


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            f"seed must be an integer, not {safe_repr(text)}", code="invalid_seed", path="seed"
        ) from None


def _mutant(text: str) -> str:
    from heliograph.testing.mutants.catalog import MUTANTS

    if text not in MUTANTS:
        nearest = get_close_matches(text, MUTANTS, n=1)
        meant = f"; did you mean {nearest[0]}?" if nearest else ""
        raise InvalidInput(f"--mutant is one of {', '.join(sorted(MUTANTS))}, not '{safe_repr(text)}'{meant}",
                           code="invalid_enum", path="--mutant")  # fmt: skip
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000_000:
        raise InvalidInput(f"a count is a whole number from 1 to 10000000, not {safe_repr(text)}", code="out_of_range")
    return int(text)


def _case(options: argparse.Namespace) -> Case:
    if (options.seed is None) == (options.case is None):
        raise InvalidInput("helio sim replay takes either a seed or --case", code="usage")
    from heliograph.testing.mutants.catalog import MUTANTS
    from heliograph.testing.simulator.simulate import Case

    is_postgres = options.backend == "postgres"
    if options.case is not None:
        case = read_case(options.case)
    else:
        case = (
            MUTANTS[options.mutant].case(options.seed)
            if options.mutant
            else Case(options.seed, maintenance=is_postgres)
        )
    if case.maintenance and not is_postgres:
        raise InvalidInput("this case prunes and stores boxes: add --backend postgres", code="usage", path="--backend")
    return case


def read_case(text: str) -> Case:
    """A case as `shrink` prints it. Raises InvalidInput."""
    import msgspec

    from heliograph.testing.simulator.simulate import Case

    try:
        return msgspec.json.decode(text, type=Case)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"this is no case of helio sim shrink: {error}", code="not_json", path="--case") from None


def _say_result(result: Result) -> None:
    for violation in result.violations[:_LISTED_MAX]:
        _say(f"{violation.kind}: {safe_repr(violation.detail, 400)}")
    if result.violations:
        _say(result.line())
    else:
        _say(f"HELIOGRAPH_SEED={result.case.seed} backend={result.backend} ok: {result.turns} turns, {result.calls} kernel "
             f"calls, {len(result.faults)} faults, trace {result.trace_hash}")  # fmt: skip


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
