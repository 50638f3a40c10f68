"""Run the checks on a surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from heliograph.errors import NotFound
from heliograph.testing.blackbox.check import Check, Outcome, Result, is_satisfied
from heliograph.testing.blackbox.checks import CHECKS
from heliograph.testing.blackbox.scenario_run import run_scenario
from heliograph.testing.blackbox.scenarios import SCENARIOS
from heliograph.testing.blackbox.surface import Surface

HERE = Path(__file__).resolve().parent
OWN_SURFACE = HERE / "heliograph.toml"


def chosen(ids: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks with these ids or of these families, like SIG; all of them without any. Raises NotFound."""
    known = {each.id for each in CHECKS} | {each.id.partition("-")[0] for each in CHECKS}
    if unknown := [each for each in ids if each not in known]:
        raise NotFound(f"there is no check {unknown[0]}", code="unknown_check",
                       hint="helio conformance --list lists them")  # fmt: skip
    return tuple(each for each in CHECKS if not ids or {each.id, each.id.partition("-")[0]} & set(ids))


def run(surface: Surface, checks: Sequence[Check], folder: Path, show: Callable[[str], None]) -> list[Result]:
    """Run each scenario that the checks need, once, in a folder; return the results in the order of the checks.

    A check of a command that the surface lacks is not observable. show: receives the name of each scenario before it starts. Raises
    InvalidInput for a command that cannot run.
    """
    observable = [each for each in checks if each.needs in surface.commands]
    evidence = {}
    for name, scenario in SCENARIOS.items():
        if any(each.scenario == name for each in observable):
            show(name)
            evidence[name] = run_scenario(surface, scenario, folder / name)

    def outcome(check: Check) -> Outcome:
        if check not in observable:
            return "not observable"
        return "passed" if is_satisfied(check, evidence[check.scenario]) else "failed"

    return [Result(each, outcome(each)) for each in checks]
