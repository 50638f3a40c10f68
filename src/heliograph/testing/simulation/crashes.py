"""Kill the worker of a scenario at each await of its turns in turn, and expect the same result and the same effects each time."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, CoroutineType, FrameType
from typing import Any, TypeVar, cast

import heliograph
from heliograph.error_text import format_exception, safe_repr
from heliograph.errors import InvalidInput
from heliograph.ledger.coalescer import Coalescer
from heliograph.testing.simulation.scenario_run import CALM, Scenario, ScenarioRun, run_scenario
from heliograph.testing.simulator.event_loop import Process
from heliograph.testing.simulator.world import SimWorld
from heliograph.world import user_code

T = TypeVar("T")

_OWN = str(Path(heliograph.__file__).parent) + os.sep
_LIBRARY = str(Path(asyncio.__file__).parent.parent) + os.sep
_KERNEL_CALL: CodeType = SimWorld.call.__code__
_JOINED_CALL: CodeType = Coalescer.call.__code__
_WITHIN: str = user_code.__file__
_VALUE_WIDTH = 300


@dataclass(slots=True)
class CrashReport:
    """The result of all crashes. awaits: how many awaits the turns of the scenario have; each was a crash, except with `every`.

    places: how often the worker died at each place.
    """

    awaits: int
    crashes: int = 0
    places: Counter[str] = field(default_factory=Counter)


def crash_at_every_await(scenario: Scenario[Any], *, first: int = 1, every: int = 1) -> CrashReport:
    """Run a scenario once for each await of its turns, and kill the worker at that await; another one continues.

    Each time, the scenario must return an equal value and have the same effects (see `Simulation.effect`) as without a crash. The first
    await at which it does not raises AssertionError, with the place and what differed. Stubs must be made inside the scenario.
    first, every: run only the awaits first, first + every, and so on, for long scenarios.
    Raises what the scenario raises without a crash, and InvalidInput for numbers below 1.
    """
    __tracebackhide__ = True
    for name, number in (("first", first), ("every", every)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidInput(f"{name} must be a whole number from 1, not {safe_repr(number)}", code="out_of_range")
    counted, calm = _calm(scenario)
    report = CrashReport(counted.count)
    for number in range(first, counted.count + 1, every):
        crash, _ = _crash(scenario, number, counted.count, calm)
        report.crashes += 1
        report.places[crash.place] += 1
    return report


def crash_at(scenario: Scenario[T], number: int) -> T:
    """Run a scenario, kill its worker at this await, and return its value: to repeat one failure of `crash_at_every_await`.

    Raises InvalidInput if its turns have fewer awaits.
    """
    __tracebackhide__ = True
    counted, calm = _calm(scenario)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= counted.count:
        raise InvalidInput(
            f"this scenario has the awaits 1 to {counted.count}, not {safe_repr(number)}", code="out_of_range"
        )
    return _crash(scenario, number, counted.count, calm)[1]


class _Await:
    """Counts the awaits of the turns, and kills their process at one of them."""

    def __init__(self, kill_at: int | None = None):
        self.count = 0
        self.place = ""
        self._kill_at = kill_at

    def __call__(self, process: Process, task: asyncio.Task[Any]) -> None:
        if not _is_of_turn(process, task):
            return
        self.count += 1
        if self.count == self._kill_at:
            self.place = _place_of(task)
            process.is_dead = True
            if not process.ended.done():
                process.ended.set_result(None)


def _calm(scenario: Scenario[T]) -> tuple[_Await, ScenarioRun[T]]:
    __tracebackhide__ = True
    counted = _Await()
    calm = run_scenario(scenario, CALM, dies=True, after_step=counted)
    if calm.error is not None:
        raise calm.error
    if counted.count == 0:
        raise InvalidInput("the scenario runs no turn, so there is nothing to crash", code="required_field")
    return counted, calm


def _crash(scenario: Scenario[T], number: int, count: int, calm: ScenarioRun[T]) -> tuple[_Await, T]:
    __tracebackhide__ = True
    crash = _Await(number)
    done = run_scenario(scenario, CALM, dies=True, after_step=crash)
    lines = list(_differences(done, calm))
    if lines:
        lines = [f"killed at await {number} of {count}, {lines[0]}", *(f"  and {line}" for line in lines[1:]),
                 f"  the await is {crash.place}", f"  to repeat it: crash_at({_name_of(scenario)}, {number})"]  # fmt: skip
        raise AssertionError("\n".join(lines)) from done.error
    return crash, cast(T, done.value)


def _differences(done: ScenarioRun[T], calm: ScenarioRun[T]) -> Iterator[str]:
    for name in sorted(done.effects | calm.effects):
        times, expected = done.effects[name], calm.effects[name]
        if times > expected or (times < expected and done.error is None):
            yield f"the effect {name!r} happened {_times(times)} instead of {_times(expected)}"
    if done.error is not None:
        yield f"the scenario failed: {format_exception(done.error)}"
    elif done.value != calm.value:
        yield f"the result differs: {safe_repr(done.value, _VALUE_WIDTH)} instead of {safe_repr(calm.value, _VALUE_WIDTH)}"


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _is_of_turn(process: Process, task: asyncio.Task[Any]) -> bool:
    """Whether a task belongs to a turn of a worker: its own, one that its agent made, a kernel call, or its signals."""
    name, is_worker = task.get_name(), "." in process.name
    return is_worker and name != process.name and not any(word in name for word in ("watchdog", "leases"))


def _place_of(task: asyncio.Task[Any]) -> str:
    """Describe where a task waits: the call of the kernel, and the innermost line of the user's code; or else a function of Heliograph."""
    frames = list(_frames(task))
    places = []
    for frame in frames:
        if frame.f_code is _KERNEL_CALL:
            places = [
                f"{'after' if 'answer' in frame.f_locals else 'before'} the commit of {frame.f_locals['function']}"
            ]
        elif frame.f_code is _JOINED_CALL:
            places = [f"before the commit of {frame.f_locals['self'].name}"]
    users = [frame for frame in frames if not frame.f_code.co_filename.startswith((_OWN, _LIBRARY, "<"))]
    if users:
        places.append(f"{Path(users[-1].f_code.co_filename).name}:{users[-1].f_lineno} in {users[-1].f_code.co_name}")
    return ", at ".join(places) or frames[-1].f_code.co_qualname


def _frames(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """The frames of what a task awaits, the outermost first."""
    waits: Any = task.get_coro()
    while waits is not None:
        inner = None
        for prefix, delegate in (("cr", "await"), ("gi", "yieldfrom"), ("ag", "await")):
            frame: FrameType | None = getattr(waits, f"{prefix}_frame", None)
            if frame is not None:
                yield frame
                # `within` sends the first wait of its work itself, and has a wrapper around it later
                work = frame.f_locals.get("work") if frame.f_code.co_filename == _WITHIN else None
                inner = work if isinstance(work, CoroutineType) else getattr(waits, f"{prefix}_{delegate}", None)
        waits = inner


def _name_of(scenario: object) -> str:
    return str(getattr(scenario, "__name__", "scenario"))
