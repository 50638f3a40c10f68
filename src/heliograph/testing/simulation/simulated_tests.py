"""Decorators that turn a scenario into a test: in virtual time, or under many seeds of faults and schedules."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput
from heliograph.testing.simulation.scenario_run import CALM, Case, Scenario, ScenarioRun, run_scenario
from heliograph.testing.simulator.shrink import minimize

T = TypeVar("T")

CASE_VARIABLE = "HELIOGRAPH_CASE"
WORKERS = 2
_SHRINKS = 60
_LINE_WIDTH = 160


def virtual_time(scenario: Callable[..., Any]) -> Callable[..., Any]:
    """Run an async test in a simulation without faults: a pause of a day and the deadline of an approval take milliseconds.

    The test receives a `Simulation` as its first argument, and fixtures as the others. It becomes a plain function, which returns what
    the scenario returns.
    """

    def run(bound: Scenario[Any]) -> Any:
        __tracebackhide__ = True
        done = run_scenario(bound, CALM)
        if done.error is not None:
            raise done.error
        return done.value

    return _as_test(scenario, run)


def simulate(*, seeds: Iterable[int] | int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run an async test under the simulator, once for each seed: workers crash, freeze and lose their connections, and tasks run in other orders.

    seeds: the seeds, or their number. The scenario must hold under each of them, and must have each effect (see `Simulation.effect`) as
    often as without faults; the rules of the kernel are checked too. A failure names the seed, the smallest schedule that still fails,
    and the command that repeats it. The same seed gives the same run as long as the code of the agents is deterministic; the
    module `random` is seeded. Stubs must be made inside the scenario. Raises InvalidInput for other seeds.
    """
    chosen = _checked(range(seeds) if isinstance(seeds, int) and not isinstance(seeds, bool) else seeds)

    def decorate(scenario: Callable[..., Any]) -> Callable[..., Any]:
        def run(bound: Scenario[Any]) -> None:
            __tracebackhide__ = True
            calm = run_scenario(bound, CALM, workers=WORKERS, dies=True)
            if calm.error is not None:
                calm.error.add_note("the test fails without any fault")
                raise calm.error
            for case in _cases(chosen):
                failed = _judged(run_scenario(bound, case, workers=WORKERS, dies=True), calm)
                if failed.error is not None:
                    _report(
                        failed, lambda smaller: _judged(run_scenario(bound, smaller, workers=WORKERS, dies=True), calm)
                    )

        return _as_test(scenario, run)

    return decorate


def _as_test(scenario: Callable[..., Any], run: Callable[[Scenario[Any]], Any]) -> Callable[..., Any]:
    """A plain function with the parameters of the scenario but the first, which pytest would take for a fixture."""
    if not inspect.iscoroutinefunction(scenario):
        raise InvalidInput(f"{safe_repr(getattr(scenario, '__name__', scenario))} must be an async function whose first argument is the simulation",
                           code="wrong_type")  # fmt: skip

    @functools.wraps(scenario)
    def test(*args: Any, **fixtures: Any) -> Any:
        __tracebackhide__ = True
        # a method receives its object first
        return run(lambda simulation: scenario(*args, simulation, **fixtures))

    signature = inspect.signature(scenario)
    names = list(signature.parameters)
    place = 1 if names[:1] == ["self"] else 0
    if len(names) <= place:
        raise InvalidInput(f"{scenario.__name__} must take the simulation as its first argument", code="required_field")
    kept = [parameter for n, parameter in enumerate(signature.parameters.values()) if n != place]
    test.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    del test.__wrapped__  # pytest would look through it
    return test


def _checked(seeds: object) -> list[int]:
    found = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else []
    if not found or not all(isinstance(seed, int) and not isinstance(seed, bool) for seed in found):
        raise InvalidInput(
            f"seeds must be a positive number or whole numbers, such as range(50), not {safe_repr(seeds)}",
            code="wrong_type",
        )
    return found


def _cases(seeds: Sequence[int]) -> list[Case]:
    """The cases of these seeds, or the one of HELIOGRAPH_CASE. Raises InvalidInput (`not_json`)."""
    given = os.environ.get(CASE_VARIABLE)
    if not given:
        return [Case(seed) for seed in seeds]
    try:
        return [msgspec.json.decode(given, type=Case)]
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"{CASE_VARIABLE} must be a case that a failed test has printed: {error}", code="not_json"
        ) from None


def _judged(done: ScenarioRun[Any], calm: ScenarioRun[Any]) -> ScenarioRun[Any]:
    """A run whose effects differ from those without faults has failed, too. An effect may be missing after an error only."""
    if done.error is None and done.effects != calm.effects:
        names = sorted(name for name in done.effects | calm.effects if done.effects[name] != calm.effects[name])
        done.error = AssertionError("\n".join(
            f"the effect {name!r} happened {counted(done.effects[name], 'time')}, and {counted(calm.effects[name], 'time')} without faults"
            for name in names))  # fmt: skip
    return done


def _report(failed: ScenarioRun[Any], again: Callable[[Case], ScenarioRun[Any]]) -> None:
    """Raise the error of the smallest case that fails in the same way, with notes about it."""
    __tracebackhide__ = True
    smallest, runs = _shrunk(failed, again)
    assert smallest.error is not None
    case = msgspec.json.encode(smallest.case, order="deterministic").decode()
    faults = "\n".join(f"    {fault}" for fault in sorted(smallest.case.faults or ()))
    trace = "\n".join(f"    {safe_repr(line, _LINE_WIDTH)}" for line in smallest.events)
    smallest.error.add_note(
        f"seed {failed.case.seed} fails; {runs} simulations made its schedule smaller: {len(smallest.case.faults or ())} faults, "
        f"{len(smallest.case.deviations or ())} tasks out of order\n"
        + (f"  the faults, each at its place:\n{faults}\n" if faults else "")
        + f"  the calls around the last fault, in virtual seconds:\n{trace}\n"
        f"  to repeat it: {CASE_VARIABLE}='{case}' python -m pytest '{_test_id()}'"
    )
    raise smallest.error


def _shrunk(failed: ScenarioRun[Any], again: Callable[[Case], ScenarioRun[Any]]) -> tuple[ScenarioRun[Any], int]:
    kind, runs = _kind(failed), 0

    def fails(case: Case) -> bool:
        nonlocal runs
        runs += 1
        return _kind(again(case)) == kind

    whole = replace(failed.case, faults=frozenset(failed.faults), deviations=frozenset(failed.deviations))
    faults = minimize(failed.faults, lambda kept: fails(replace(whole, faults=frozenset(kept))), _SHRINKS)
    whole = replace(whole, faults=frozenset(faults))
    deviations = minimize(failed.deviations, lambda kept: fails(replace(whole, deviations=frozenset(kept))), _SHRINKS)
    smallest = again(replace(whole, deviations=frozenset(deviations)))
    # every case along the way failed, but its own run may have had no reason to
    return (smallest if smallest.error is not None else failed), runs + 1


def _kind(done: ScenarioRun[Any]) -> tuple[str, int] | None:
    """The class of a failure: the type of the error, and the line where the test raised it."""
    error = done.error
    if error is None:
        return None
    place, line = error.__traceback__, 0
    while place is not None:
        if "/heliograph/testing/" not in place.tb_frame.f_code.co_filename.replace(os.sep, "/"):
            line = place.tb_lineno
            break
        place = place.tb_next
    return type(error).__name__, line


def _test_id() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0] or "the test"
