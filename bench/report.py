"""Report the measurements: one table per work and load for people, and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.meter.sample import (
    BACKGROUND,
    CALLER,
    COMMITS,
    CPU,
    FSYNCS,
    FULL_PAGES,
    OTHERS,
    P50,
    P99,
    RATE,
    RESUME_P50,
    RESUME_P99,
    SERVER,
    WAL,
    WORKER,
    Sample,
    Spread,
)  # fmt: skip
from bench.parts import Parts, print_parts
from bench.works import AFTER, BASES, LOADS, PEER, PROTOTYPE, SINGLE, SIXTEEN, TITLES, Contender

WIDTH = 240
# figure: its title and format; a figure in SPREAD is printed with its quartiles
COLUMNS = {
    RATE: ("items/s", ",.0f"), P50: ("p50 ms", ".1f"), P99: ("p99", ".1f"), RESUME_P50: ("resume p50", ".1f"), RESUME_P99: ("p99", ".1f"),
    CPU: ("CPU µs", ",.0f"), SERVER: ("server", ",.0f"), BACKGROUND: ("backgr.", ",.0f"), WORKER: ("worker", ",.0f"),
    CALLER: ("caller", ",.0f"), COMMITS: ("commits", ".2f"), FSYNCS: ("fsyncs", ".2f"), WAL: ("WAL B", ",.0f"),
    FULL_PAGES: ("pages B", ",.0f"), OTHERS: ("others", ".1f"),
}  # fmt: skip
SPREAD = (RATE, P50, CPU)


@dataclass(frozen=True)
class Row:
    """The result of one line under one load: the spread of each figure over the repetitions.

    problem: the error of a repetition. Without a successful repetition there are no figures. relations: bytes of the log per item.
    """

    work: str
    name: str
    kind: str
    load: str
    problem: str = ""
    figures: Mapping[str, Spread] = field(default_factory=dict)
    relations: Mapping[str, float] = field(default_factory=dict)

    def median(self, figure: str) -> float | None:
        spread = self.figures.get(figure)
        return None if spread is None else spread.median


def row_of(line: Contender, load: str, samples: Sequence[Sample], problem: str = "") -> Row:
    """Summarise repetitions in a row. samples: the successful repetitions, with at least one item each."""
    measured = [sample.figures() for sample in samples]
    figures = {name: Spread.of([each[name] for each in measured]) for name in (measured[0] if measured else ())}
    names = samples[0].relations if samples else ()
    relations = {
        name: statistics.median(each.relations.get(name, 0) / each.done.items for each in samples) for name in names
    }
    return Row(line.work, line.name, line.kind, load, problem, figures, relations)


@dataclass(frozen=True, slots=True)
class Ratios:
    """A row's rate in relation to the floor with 16 clients, to the best whole peer and the prototype under the same load; the CPU
    time of all its processes to the CPU time of that floor's server; its p50 to the floor at the pace of that load."""

    floor: float | None
    peer: float | None
    prototype: float | None
    floor_cpu: float | None
    paced_floor: float | None


def ratios(rows: Sequence[Row], lines: Sequence[Contender], work: str) -> dict[tuple[str, str], Ratios]:
    """Return the ratios by line and load. None without a figure to compare with."""
    of_work = {(row.name, row.load): row for row in rows if row.work == work and row.figures}
    whole = {line.name for line in lines if line.work == work and line.kind == PEER and line.is_whole}
    floor, paced = (of_work.get((BASES.get(work, ""), load)) for load in (SIXTEEN, SINGLE))
    found: dict[tuple[str, str], Ratios] = {}
    for (name, load), row in of_work.items():
        peers = [rate for (other, at), each in of_work.items()
                 if other in whole and at == load and (rate := each.median(RATE))]  # fmt: skip
        found[name, load] = Ratios(
            _ratio(row, RATE, floor),
            row.figures[RATE].median / max(peers) if peers else None,
            _ratio(row, RATE, of_work.get((PROTOTYPE, load))),
            _ratio(row, CPU, floor, SERVER),
            _ratio(row, P50, paced) if load == SINGLE else None,
        )
    return found


def _ratio(row: Row, figure: str, base: Row | None, of_base: str | None = None) -> float | None:
    value, to = row.median(figure), base.median(of_base or figure) if base else None
    return value / to if value is not None and to else None


def print_report(
    header: dict[str, Any], lines: Sequence[Contender], rows: Sequence[Row], parts: Parts | None = None
) -> None:
    parts = parts or Parts()
    console = Console(width=WIDTH, highlight=False, markup=False)
    server = header["postgresql"]
    console.print(
        f"heliograph {header['commit']}, {header['at']}: {header['machine']}, load {header['load_before']} before\n"
        f"Python {header['python']}, asyncpg {header['packages']['asyncpg']}, PostgreSQL {server['server_version']}, "
        f"fsync {server['fsync']}, synchronous_commit {server['synchronous_commit']}; "
        f"medians (and quartiles) of {header['repetitions']} x {header['seconds']:g} s"
    )
    for work, title in TITLES.items():
        of_work = [line for line in lines if line.work == work]
        for load in LOADS:
            if names := [line.name for line in of_work if any(_is(row, work, line.name, load) for row in rows)]:
                console.print(f"\n{work}, {title}: {load}", style="bold")
                console.print(_table(work, load, names, rows, ratios(rows, lines, work)))
        for line in of_work:
            if line.absent:
                console.print(f"{line.name}: {line.absent}")
    for row in rows:
        if row.relations:
            console.print(_relations(row))
    print_parts(console, parts)
    _print_notes(console, header, lines, rows)


def _table(
    work: str, load: str, names: Sequence[str], rows: Sequence[Row], compared: Mapping[tuple[str, str], Ratios]
) -> Table:
    measured = [row for name in names for row in rows if _is(row, work, name, load)]
    listed = [figure for figure in COLUMNS if any(figure in row.figures for row in measured)]
    if load == SINGLE:
        listed.remove(RATE)
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for figure in listed:
        table.add_column(COLUMNS[figure][0], justify="right", no_wrap=True)
        if figure == RATE:
            for title in ("of floor", "of peer", "of proto"):
                table.add_column(title, justify="right", no_wrap=True)
        if figure == P50:
            table.add_column("of floor", justify="right", no_wrap=True)
        if figure == CPU:
            table.add_column("of floor", justify="right", no_wrap=True)
    for row in measured:
        cells = _cells(row, listed, compared.get((row.name, load))) if row.figures else ["failed"]
        table.add_row(row.name, *cells)
    return table


def _cells(row: Row, listed: Sequence[str], ratio: Ratios | None) -> Iterator[str]:
    for figure in listed:
        spread, form = row.figures.get(figure), COLUMNS[figure][1]
        yield "-" if spread is None else spread.text(form) if figure in SPREAD else format(spread.median, form)
        if figure == RATE:
            yield from (
                _number(each) for each in ((ratio.floor, ratio.peer, ratio.prototype) if ratio else (None,) * 3)
            )
        if figure == P50:
            yield _number(ratio.paced_floor if ratio else None)
        if figure == CPU:
            yield _number(ratio.floor_cpu if ratio else None)


def _relations(row: Row) -> Table:
    table = Table(
        box=None, pad_edge=False, title=f"\nWAL by relation, {row.work}, {row.name}, {row.load}", title_justify="left"
    )
    table.add_column("bytes per item", justify="right")
    table.add_column("relation, or kind of the record")
    for name, size in row.relations.items():
        if size >= 1:
            table.add_row(f"{size:,.0f}", name)
    return table


def _print_notes(console: Console, header: dict[str, Any], lines: Sequence[Contender], rows: Sequence[Row]) -> None:
    console.print(
        "\nAll but rates, latencies and `others` is per item. of floor: the rate to that of the floor with 16 clients; the p50 to that of the\n"
        "paced floor; all CPU to the CPU of the floor's server. of peer: to the best of those that keep results. WAL is without full pages\n"
        "(pages B). fsyncs are counted once a second. others: processors that the rest of the machine used."
    )
    for name, setting in {line.name: line.setting for line in lines if line.setting and not line.absent}.items():
        console.print(f"  {name}: {setting}")
    if header["peers"]:
        console.print("  " + ", ".join(f"{name} {number}" for name, number in header["peers"].items()))
    for row in rows:
        name, is_after, _ = row.name.partition(AFTER)
        base = next((each for each in rows if is_after and _is(each, row.work, name, row.load)), None)
        if base is not None:
            found = (
                f"{figure} x {_number(_ratio(row, figure, base))}"
                for figure in (RATE, CPU, P50)
                if figure in row.figures
            )
            console.print(
                f"  {row.work}, {row.name}, {row.load}: {', '.join(found)} of an empty database (target: within 10 %)"
            )
        if row.problem:
            console.print(f"  failed: {row.work}, {row.name}, {row.load}: {row.problem}", style="bold")


def as_json(header: dict[str, Any], rows: Sequence[Row], parts: Parts) -> dict[str, Any]:
    return {"header": header, "rows": [asdict(row) for row in rows], "parts": parts.as_json()}


def _is(row: Row, work: str, name: str, load: str) -> bool:
    return (row.work, row.name, row.load) == (work, name, load)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
