"""The cases in `seeds.txt`: each detects a mutant, or once failed the runtime.

Each line has the name of the mutant, or `runtime`, and a case as `helio sim shrink` prints it. A change of the workload or
the runtime changes the meaning of a seed; `python -m tests.simulator.keep` then finds new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from heliograph.testing.mutants.catalog import MUTANTS
from heliograph.testing.simulator.cli import read_case
from heliograph.testing.simulator.simulate import Case

PATH = Path(__file__).with_name("seeds.txt")


@dataclass(frozen=True, slots=True)
class Kept:
    """mutant: the mutant that fails the case; None for a case that the runtime failed before its repair."""

    mutant: str | None
    case: Case

    def __str__(self) -> str:
        return self.mutant or f"runtime-{self.case.seed}"

    def repaired(self) -> Case:
        """The case without the mutant's change of the runtime."""
        return replace(self.case, repeats_once=False)


def read_kept() -> list[Kept]:
    lines = PATH.read_text(encoding="utf-8").splitlines()
    return [_read(line) for line in lines if line and not line.startswith("#")]


def _read(line: str) -> Kept:
    name, _, what = line.partition(" ")
    case = read_case(what)
    if name == "runtime":
        return Kept(None, case)
    mutant = MUTANTS[name]
    return Kept(name, mutant.applied_to(replace(case, maintenance=mutant.maintenance)))
