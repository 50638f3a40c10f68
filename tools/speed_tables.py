"""The tables of docs/internals/proof.md that come from the kept run of `make bench`: rates, latencies, calls, and each target."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).resolve().parent.parent / "bench" / "results" / "reference.json"
NAMES = {
    "floor, three calls": "floor",
    "floor, five calls": "floor",
    "prototype": "our prototype",
    "heliograph": "Heliograph",
    "heliograph, own worker": "Heliograph, own worker",
    "DBOS, direct": "DBOS, direct",
    "LangGraph, sync": "LangGraph",
    "Absurd, 20 ms poll": "Absurd",
}
FLOORS = {"A": "floor, three calls", "B": "floor, five calls"}
SIXTEEN, MANY, SINGLE, STEADY = "16 callers", "128 callers", "one at a time", "1 caller"
# The least rate, of the floor at 16 callers, of the best peer that keeps results, and of our prototype in percent.
RATES = {
    ("A", SIXTEEN): (1.2, 8, 30),
    ("B", SIXTEEN): (0.9, 7, 30),
    ("A", MANY): (1.5, 9, 13),
    ("B", MANY): (1.2, 8, 13),
}
CALL_US_MAX = 400.0


class Target(NamedTuple):
    """A target of a figure: at least `least`, at most `most`, or less than `below`."""

    name: str
    load: str
    value: float
    least: float | None = None
    most: float | None = None
    below: float | None = None
    unit: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the figure, before it is rounded, reaches the target."""
        return not (
            (self.least is not None and self.value < self.least)
            or (self.most is not None and self.value > self.most)
            or (self.below is not None and self.value >= self.below)
        )

    def line(self) -> str:
        """The target as a row: name, load, figure, bound, verdict."""
        if self.least is not None:
            bound = f"at least {_number(self.least)}"
        elif self.most is not None:
            bound = f"at most {_number(self.most)}"
        else:
            bound = f"less than {_number(self.below or 0)}"
        verdict = "met" if self.is_met else "**missed**"
        return f"| {self.name} | {self.load} | {_number(self.value)}{self.unit} | {bound}{self.unit} | {verdict} |\n"


class Kept:
    """The kept run: medians and quartiles by work, line, load and figure."""

    def __init__(self) -> None:
        self.run: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
        self._rows = {(row["work"], row["name"], row["load"]): row for row in self.run["rows"]}

    def figure(self, work: str, name: str, load: str, figure: str) -> float:
        """The median of a figure."""
        median: float = self._rows[work, name, load]["figures"][figure]["median"]
        return median

    def spread(self, work: str, name: str, load: str, figure: str, digits: int = 0) -> str:
        """The median of a figure with its quartiles: `4,776 (4,583 to 4,832)`."""
        values = self._rows[work, name, load]["figures"][figure]
        return "{} ({} to {})".format(*(f"{values[key]:,.{digits}f}" for key in ("median", "low", "high")))

    def ratio(self, work: str, figure: str, line: tuple[str, str], of: tuple[str, str]) -> float:
        """The ratio of a figure of two lines, each a name and a load."""
        return self.figure(work, *line, figure) / self.figure(work, *of, figure)

    def floor_server(self, work: str) -> float:
        """The CPU time of the floor's server per item at 16 callers, in µs."""
        at = (work, FLOORS[work], SIXTEEN)
        return self.figure(*at, "server µs") + self.figure(*at, "background µs")

    def peers(self, work: str, load: str) -> list[str]:
        """The systems that keep results, by name."""
        return [row["name"] for row in self.run["rows"]
                if (row["work"], row["load"], row["kind"]) == (work, load, "peer") and "keeps no result" not in row["name"]]  # fmt: skip

    def lines(self, load: str) -> Iterator[tuple[str, str]]:
        """The work and the name of each line that was measured under a load and that the tables list."""
        for work in FLOORS:
            yield from ((work, name) for name in NAMES if (work, name, load) in self._rows)


def render_rates() -> str:
    """Rates and costs at 16 and 128 callers."""
    kept = Kept()
    text = (
        "| at 16 / 128 callers | items/s | of floor, 16 | CPU µs per item | of the floor's server | server + worker + caller"
        " | commits / fsyncs | WAL bytes |\n|---|---|---|---|---|---|---|---|\n"
    )
    for load in (SIXTEEN, MANY):
        for work, name in kept.lines(load):
            at = (work, name, load)
            one = {figure: kept.figure(*at, figure) for figure in ("CPU µs", "commits", "fsyncs", "WAL B")}
            parts = " + ".join(f"{kept.figure(*at, f'{side} µs'):,.0f}" for side in ("server", "worker", "caller"))
            text += (
                f"| {work}, {load.split()[0]}: {NAMES[name]} | {kept.spread(*at, 'items/s')}"
                f" | {kept.ratio(work, 'items/s', (name, load), (FLOORS[work], SIXTEEN)):.2f} | {kept.spread(*at, 'CPU µs')}"
                f" | {one['CPU µs'] / kept.floor_server(work):.2f} | {parts} | {one['commits']:.2f} / {one['fsyncs']:.2f}"
                f" | {one['WAL B']:,.0f} |\n"
            )
    return text


def render_latencies() -> str:
    """Latencies of one item at a time."""
    kept = Kept()
    text = "| one at a time | p50 ms | p99 ms | of the paced floor | CPU µs per item |\n|---|---|---|---|---|\n"
    for work, name in kept.lines(SINGLE):
        at = (work, name, SINGLE)
        text += (
            f"| {work}: {NAMES[name].replace('floor', 'paced floor')} | {kept.spread(*at, 'p50 ms', 1)}"
            f" | {kept.figure(*at, 'p99 ms'):.1f} | {kept.ratio(work, 'p50 ms', at[1:], (FLOORS[work], SINGLE)):.2f}"
            f" | {kept.figure(*at, 'CPU µs'):,.0f} |\n"
        )
    return text


def render_budget() -> str:
    """The CPU time of an item of ours by side, and how much of it the target of the rate allows on the cores of the machine."""
    kept = Kept()
    cores = int(kept.run["header"]["machine"].split()[0])
    text = "| CPU µs per item | server | worker | caller | all processes | all that the rate's bound allows |\n|---|---|---|---|---|---|\n"
    for load in (SIXTEEN, MANY, STEADY, SINGLE):
        for work, floor in FLOORS.items():
            one = [
                kept.figure(work, "heliograph", load, f"{side} µs") for side in ("server", "worker", "caller", "CPU")
            ]
            allowed = "-"
            if (work, load) in RATES:
                allowed = f"{cores * 1e6 / (RATES[work, load][0] * kept.figure(work, floor, SIXTEEN, 'items/s')):,.0f}"
            text += f"| {work}, {load} | {' | '.join(f'{spent:,.0f}' for spent in one)} | {allowed} |\n"
    return text


def render_calls() -> str:
    """The server's CPU time of each call of the kernel."""
    text = "| call | fixed per call | per further item | per item, 1 / 8 / 32 / 64 a call |\n|---|---|---|---|\n"
    for name, call in Kept().run["parts"]["calls"].items():
        items = " / ".join(f"{call['per_item'][count]:,.0f}" for count in ("1", "8", "32", "64"))
        text += f"| `{name}` | {call['fixed']:,.0f} | {call['marginal']:,.0f} | {items} |\n"
    return text


def render_targets() -> str:
    """Every target of the kept run, with its verdict."""
    kept = Kept()
    run = kept.run["header"]
    text = "| target | load | kept run | bound | verdict |\n|---|---|---|---|---|\n"
    text += f"| (the run) | | {run['commit']}, {run['at']}, load {run['load_before']} before | | |\n"
    return text + "".join(target.line() for targets in _TARGETS for target in targets(kept))


def _rates(kept: Kept) -> Iterator[Target]:
    for (work, load), (floor, peer, prototype) in RATES.items():
        ours, where = ("heliograph", load), f"{work}, {load}"
        best = max(kept.figure(work, name, load, "items/s") for name in kept.peers(work, load))
        yield Target(
            "rate, of the floor at 16 callers", where, kept.ratio(work, "items/s", ours, (FLOORS[work], SIXTEEN)), floor
        )
        yield Target(
            "rate, of the best peer that keeps results", where, kept.figure(work, *ours, "items/s") / best, peer
        )
        yield Target(
            "rate, of our prototype",
            where,
            100 * kept.ratio(work, "items/s", ours, ("prototype", load)),
            prototype,
            unit=" %",
        )


def _latencies(kept: Kept) -> Iterator[Target]:
    for work, most in (("A", 3), ("B", 6)):
        best = min(kept.figure(work, name, SINGLE, "p50 ms") for name in kept.peers(work, SINGLE))
        for name in ("heliograph", "heliograph, own worker"):
            p50 = kept.figure(work, name, SINGLE, "p50 ms")
            where = f"{work}, {SINGLE}" + (", own worker" if "own" in name else "")
            yield Target(
                "p50, of the paced floor", where, p50 / kept.figure(work, FLOORS[work], SINGLE, "p50 ms"), most=most
            )
            yield Target("p50, of the fastest peer", where, p50 / best, below=1)
    yield Target(
        "p99 of a resumed turn",
        f"B, {SINGLE}",
        kept.figure("B", "heliograph", SINGLE, "resume p99 ms"),
        most=10,
        unit=" ms",
    )
    prompt, memory = (kept.figure("P", name, SINGLE, "p50 ms") for name in ("heliograph", "pydantic-ai, in memory"))
    yield Target("p50 of a step of a prompt agent, over in memory", SINGLE, prompt - memory, most=5, unit=" ms")


def _costs(kept: Kept) -> Iterator[Target]:
    spent = kept.figure("A", "heliograph", MANY, "CPU µs")
    yield Target(
        "CPU of all processes per item, of the floor's server", f"A, {MANY}", spent / kept.floor_server("A"), most=1.3
    )
    yield Target(
        "log of an item", f"A, {SIXTEEN}", kept.figure("A", "heliograph", SIXTEEN, "WAL B"), most=6500, unit=" B"
    )
    yield Target(
        "log of an item", f"B, {SIXTEEN}", kept.figure("B", "heliograph", SIXTEEN, "WAL B"), most=13000, unit=" B"
    )
    yield Target("fsyncs per item", f"A, {MANY}", kept.figure("A", "heliograph", MANY, "fsyncs"), most=0.1)
    yield Target(
        "CPU of a worker per turn, with an instant store",
        "A",
        kept.run["parts"]["worker"]["asyncio"]["median"],
        most=130,
        unit=" µs",
    )
    fixed = [call["fixed"] for call in kept.run["parts"]["calls"].values()]
    yield Target("fixed CPU of a kernel call, the least", "one item", min(fixed), most=CALL_US_MAX, unit=" µs")
    yield Target("fixed CPU of a kernel call, the most", "one item", max(fixed), most=CALL_US_MAX, unit=" µs")


_TARGETS: tuple[Callable[[Kept], Iterator[Target]], ...] = (_rates, _latencies, _costs)


def _number(value: float) -> str:
    """Three decimals below 0.1, two below 10, else a whole number: `0.048`, `0.60`, `3.53`, `13`, `6,356`."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.{3 if value < 0.1 else 2}f}"
