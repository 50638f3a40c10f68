"""The parts of a work: the server's CPU time of each kernel call, a worker's CPU time with a store that answers at once, and round trips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.kernel_calls import SIZES, Cost, measure_calls
from bench.meter.sample import Spread
from bench.place import Place
from bench.trips import Trips, count_trips, print_trips
from bench.worker_cpu import BASE, measure_in_process
from bench.works import Contender

CALLS, WORKER, TRIPS = "K", "W", "T"
ROUNDS_PER_SECOND, TURNS_PER_SECOND = 10, 3000
LOOPS = ("asyncio", BASE)


@dataclass(frozen=True, slots=True)
class Parts:
    """calls: the costs by kernel function. worker: microseconds of CPU per turn of work A, by event loop. trips: by work, line
    and load."""

    calls: Mapping[str, Cost] = field(default_factory=dict)
    worker: Mapping[str, Spread] = field(default_factory=dict)
    trips: Mapping[tuple[str, str, str], Trips] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        calls = {
            name: {"fixed": each.fixed, "marginal": each.marginal, "per_item": each.per_item}
            for name, each in self.calls.items()
        }
        trips = [
            {"work": work, "name": name, "load": load, **each.as_json()}
            for (work, name, load), each in self.trips.items()
        ]
        return {"calls": calls, "worker": {loop: asdict(each) for loop, each in self.worker.items()}, "trips": trips}


async def measure_parts(place: Place, wanted: str, lines: Sequence[Contender], seconds: float, reps: int) -> Parts:
    """Measure what `wanted` names by letters. lines: whose trips are counted."""
    calls: Mapping[str, Cost] = {}
    if CALLS in wanted:
        calls = await measure_calls(place, rounds=max(1, round(reps * seconds * ROUNDS_PER_SECOND)))
    found: dict[str, list[float]] = {}
    for _ in range(reps if WORKER in wanted else 0):
        for loop in LOOPS:
            turns = round(seconds * TURNS_PER_SECOND)
            found.setdefault(loop, []).append(measure_in_process(loop, turns, endpoint=""))
    trips = await count_trips(place, lines, seconds) if TRIPS in wanted else {}
    return Parts(calls, {loop: Spread.of(each) for loop, each in found.items()}, trips)


def print_parts(console: Console, parts: Parts) -> None:
    if parts.calls:
        console.print("\nKernel calls on one connection: µs of the server's CPU", style="bold")
        table = Table(box=None, pad_edge=False)
        table.add_column("")
        for title in ("fixed per call", "per item", *(f"per item, {size} a call" for size in SIZES)):
            table.add_column(title, justify="right")
        for name, cost in parts.calls.items():
            figures = (cost.fixed, cost.marginal, *cost.per_item.values())
            table.add_row(name, *(f"{each:,.0f}" for each in figures))
        console.print(table)
    if parts.worker:
        console.print(
            "\nThe worker alone, with a store that answers at once: µs of CPU per turn of work A", style="bold"
        )
        for loop, spread in parts.worker.items():
            console.print(f"  {loop}: {spread.text(',.0f')}")
    print_trips(console, parts.trips)
