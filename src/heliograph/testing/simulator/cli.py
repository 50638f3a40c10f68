"""The arguments of `helio sim run | replay | shrink | diff | mutants`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.testing.simulator.commands import diff, mutants, replay, run, shrink

if TYPE_CHECKING:
    from heliograph.testing.simulator.simulate import Case


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise InvalidInput(message, code="usage", hint=f"{self.prog} --help shows its arguments")


def main(arguments: list[str], kind: type[argparse.ArgumentParser] = _Parser) -> int:
    """Run one command. Raises InvalidInput for invalid arguments. kind: the class of the parser, which formats errors."""
    try:
        options = _parser(kind).parse_args(arguments)
    except SystemExit as end:  # --help has answered
        return int(end.code or 0)
    code: int = options.call(options)
    return code


def _parser(kind: type[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = kind(prog="helio sim", description="Run the runtime under seeded faults.", allow_abbrev=False)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True)

    def verb(name: str, text: str, call: Any) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
        )
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
            to.add_argument("--seeds", type=_count, default=seeds, metavar="N", help=f"the number of seeds ({seeds})")
        if "start" in names:
            to.add_argument("--start", type=_seed, default=0, metavar="SEED", help="the first seed (0)")
        if "hooks" in names:
            to.add_argument("--hooks", action="store_true", help="simulate only the application whose agent has hooks")
            to.add_argument("--sessions", action="store_true", help="simulate only sessions, which their clients close")
        if "mutant" in names:
            to.add_argument(
                "--mutant",
                type=_mutant,
                metavar="NAME",
                help="simulate without this rule; helio sim mutants lists the names",
            )

    many = verb("run", "simulate many seeds", lambda o: run(
        o.seeds, o.backend, o.start, o.jobs, hooks=o.hooks, sessions=o.sessions))  # fmt: skip
    add(many, "seeds", "backend", "start", "hooks", seeds=200)
    many.add_argument("--jobs", type=_count, metavar="N", help="the number of processes (one for each processor)")
    one = verb("replay", "simulate one seed again", lambda o: replay(
        _case(o), o.backend, trace=o.trace, mutant=o.mutant))  # fmt: skip
    one.add_argument("seed", type=_seed, nargs="?", metavar="SEED")
    one.add_argument("--case", metavar="JSON", help="a case that helio sim shrink has printed, in place of a seed")
    one.add_argument("--trace", action="store_true", help="print every kernel call and every fault")
    add(one, "backend", "mutant", "hooks")
    small = verb("shrink", "find the smallest case that fails like a seed", lambda o: shrink(
        _case(o), o.backend, mutant=o.mutant))  # fmt: skip
    small.add_argument("seed", type=_seed, metavar="SEED")
    add(small, "backend", "mutant", "hooks")
    small.set_defaults(case=None)
    add(
        verb("diff", "compare the in-memory kernel with PostgreSQL", lambda o: diff(o.seeds, o.start)),
        "seeds",
        "start",
        seeds=40,
    )
    add(verb("mutants", "remove each rule, and check that the simulator detects it", lambda o: mutants(o.backend, o.seeds)),
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
        raise InvalidInput(f"--mutant must be one of {', '.join(sorted(MUTANTS))}, not '{safe_repr(text)}'{meant}",
                           code="invalid_enum", path="--mutant")  # fmt: skip
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10_000_000:
        raise InvalidInput(
            f"a count must be a whole number from 1 to 10000000, not {safe_repr(text)}", code="out_of_range"
        )
    return int(text)


def _case(options: argparse.Namespace) -> Case:
    if (options.seed is None) == (options.case is None):
        raise InvalidInput("helio sim replay requires either a seed or --case: give one of them", code="usage")
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
        case = replace(case, hooks=case.hooks or options.hooks, sessions=options.sessions)
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
