"""Report the measurements as a table for people and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.place import Sample
from bench.works import BASES, LOADS, MANY, ONE, PEER, SINGLE, SIXTEEN, TITLES, Contender

WIDTH = 140


@dataclass(frozen=True)
class Row:
    """The result of one line under one load. Rates and latencies are medians of the repetitions; `rates` has all, ascending.

    problem: the error of a repetition. Without a successful repetition there are no figures.
    """

    work: str
    name: str
    kind: str
    load: str
    problem: str = ""
    items_per_second: float | None = None
    rates: Sequence[float] = ()
    p50_ms: float | None = None
    p99_ms: float | None = None
    resume_p50_ms: float | None = None
    resume_p99_ms: float | None = None
    transactions_per_item: float | None = None
    wal_bytes_per_item: float | None = None


def row_of(line: Contender, load: str, samples: Sequence[Sample], problem: str = "") -> Row:
    """Summarise repetitions in a row. samples: the successful repetitions, with at least one item each."""
    if not samples:
        return Row(line.work, line.name, line.kind, load, problem)
    latencies = [sample.latencies for sample in samples if sample.latencies]
    resumes = [sample.resumes for sample in samples if sample.resumes]
    return Row(
        *(line.work, line.name, line.kind, load, problem),
        items_per_second=round(statistics.median(s.items_per_second for s in samples), 1),
        rates=sorted(round(s.items_per_second, 1) for s in samples),
        p50_ms=_milliseconds(latencies, 0.50),
        p99_ms=_milliseconds(latencies, 0.99),
        resume_p50_ms=_milliseconds(resumes, 0.50),
        resume_p99_ms=_milliseconds(resumes, 0.99),
        transactions_per_item=round(statistics.median(s.transactions / s.items for s in samples), 2),
        wal_bytes_per_item=round(statistics.median(s.wal_bytes / s.items for s in samples)),
    )


def _milliseconds(repetitions: Sequence[Sequence[float]], share: float) -> float | None:
    """Return the median, over the repetitions, of this quantile in milliseconds."""
    if not repetitions:
        return None
    quantiles = [sorted(one)[min(len(one) - 1, int(share * len(one)))] for one in repetitions]
    return round(statistics.median(quantiles) * 1000, 2)


def ratios(
    rows: Sequence[Row], lines: Sequence[Contender], work: str
) -> dict[tuple[str, str], tuple[float | None, ...]]:
    """Return the ratios by line and load: to the floor's rate with 16 clients, and to the best whole peer's under the
    same load. None without a rate to compare with."""
    of_work = [row for row in rows if row.work == work and row.items_per_second]
    whole = {line.name for line in lines if line.work == work and line.kind == PEER and line.is_whole}
    floor = next((row.items_per_second for row in of_work if (row.name, row.load) == (BASES[work], SIXTEEN)), None)
    found: dict[tuple[str, str], tuple[float | None, ...]] = {}
    for row in of_work:
        rate = row.items_per_second or 0.0
        best = max(
            (each.items_per_second or 0.0 for each in of_work if each.name in whole and each.load == row.load),
            default=0.0,
        )
        found[row.name, row.load] = (rate / floor if floor else None, rate / best if best else None)
    return found


def print_report(header: dict[str, Any], lines: Sequence[Contender], rows: Sequence[Row]) -> None:
    console = Console(width=WIDTH, highlight=False, markup=False)
    server = header["postgresql"]
    console.print(
        f"heliograph {header['commit']}, {header['at']}: {header['machine']}, load {header['load_before']} before\n"
        f"Python {header['python']}, asyncpg {header['packages']['asyncpg']}, PostgreSQL {server['server_version']}, "
        f"fsync {server['fsync']}, synchronous_commit {server['synchronous_commit']}; "
        f"medians of {header['repetitions']} x {header['seconds']:g} s"
    )
    for work, title in TITLES.items():
        of_work = [line for line in lines if line.work == work]
        if of_work:
            console.print(f"\nWork {work}, {title}", style="bold")
            console.print(_table(work, of_work, rows))
            for line in of_work:
                if line.absent:
                    console.print(f"{line.name}: {line.absent}")
    _print_notes(console, header, lines, rows)


def _table(work: str, lines: Sequence[Contender], rows: Sequence[Row]) -> Table:
    titles = ["items/s by\n1", "callers\n16", "\n128", "of the floor\n16 / 128", "of best peer\n16 / 128"]
    titles += ["one at a time\np50 / p99, ms", *(["resume\np50 / p99, ms"] if work == "B" else [])]
    titles += ["writing\ntx/item", "WAL\nB/item"]
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    cells = {(row.name, row.load): row for row in rows if row.work == work}
    compared = ratios(rows, lines, work)
    for line in lines:
        if by_load := {load: cells[line.name, load] for load in LOADS if (line.name, load) in cells}:
            of_line = {load: compared.get((line.name, load), (None, None)) for load in LOADS}
            table.add_row(line.name, *_figures(work, by_load, of_line))
    return table


def _figures(work: str, by_load: Mapping[str, Row], compared: Mapping[str, tuple[float | None, ...]]) -> Iterator[str]:
    """Format the figures of one line."""
    for load in (ONE, SIXTEEN, MANY):
        row = by_load.get(load)
        yield "-" if row is None else "failed" if row.items_per_second is None else f"{row.items_per_second:,.0f}"
    for which in (0, 1):
        yield _pair(compared[SIXTEEN][which], compared[MANY][which], digits=2)
    single = by_load.get(SINGLE)
    yield _pair(single.p50_ms, single.p99_ms) if single else "-"
    if work == "B":
        yield _pair(single.resume_p50_ms, single.resume_p99_ms) if single else "-"
    counted = by_load.get(SIXTEEN) or next(iter(by_load.values()))
    yield _number(counted.transactions_per_item, ".2f")
    yield _number(counted.wal_bytes_per_item, ",.0f")


def _print_notes(console: Console, header: dict[str, Any], lines: Sequence[Contender], rows: Sequence[Row]) -> None:
    console.print(
        "\nratios: to the floor with 16 clients; to the best peer, of those that keep results, under the same load"
    )
    for name, setting in {line.name: line.setting for line in lines if line.setting and not line.absent}.items():
        console.print(f"  {name}: {setting}")
    if header["peers"]:
        console.print("  " + ", ".join(f"{name} {number}" for name, number in header["peers"].items()))
    for row in rows:
        if row.problem:
            console.print(f"  failed: work {row.work}, {row.name}, {row.load}: {row.problem}", style="bold")


def as_json(header: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return {"header": header, "rows": [asdict(row) for row in rows]}


def _pair(first: float | None, second: float | None, digits: int = 1) -> str:
    if first is None and second is None:
        return "-"
    return f"{_number(first, f'.{digits}f')} / {_number(second, f'.{digits}f')}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
