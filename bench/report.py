"""What was measured, on what, as a table for people and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from bench.place import Sample

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Row:
    """One line of the table. Rates and latencies are medians of the repetitions; `rates` has them all, ascending."""

    name: str
    items_per_second: float
    rates: list[float]
    p50_ms: float | None
    p99_ms: float | None
    transactions_per_item: float
    wal_bytes_per_item: float


def row_of(name: str, samples: Sequence[Sample]) -> Row:
    """`samples`: the repetitions, at least one item in each."""
    latencies = [sample.latencies for sample in samples if sample.latencies]
    return Row(
        name=name,
        items_per_second=round(statistics.median(s.items_per_second for s in samples), 1),
        rates=sorted(round(s.items_per_second, 1) for s in samples),
        p50_ms=_milliseconds(latencies, 0.50),
        p99_ms=_milliseconds(latencies, 0.99),
        transactions_per_item=round(statistics.median(s.transactions / s.items for s in samples), 2),
        wal_bytes_per_item=round(statistics.median(s.wal_bytes / s.items for s in samples)),
    )


def _milliseconds(repetitions: Sequence[Sequence[float]], share: float) -> float | None:
    """The median over the repetitions of this quantile of each."""
    if not repetitions:
        return None
    quantiles = [sorted(one)[min(len(one) - 1, int(share * len(one)))] for one in repetitions]
    return round(statistics.median(quantiles) * 1000, 2)


async def read_header(url: str, seconds: float, reps: int) -> dict[str, Any]:
    """The machine's class, the commit, the versions, and what makes figures comparable."""
    connection = await asyncpg.connect(url)
    try:
        server = {name: await connection.fetchval(f"show {name}")
                  for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers")}  # fmt: skip
    finally:
        await connection.close()
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain") else ""),
        "machine": f"{os.cpu_count()} cores, {_memory_gib()} GiB, {_processor()}, {platform.system()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("heliograph", "asyncpg", "msgspec")},
        "postgresql": server,
        "seconds": seconds,
        "repetitions": reps,
    }


def print_report(header: dict[str, Any], rows: Sequence[Row], base: str) -> None:
    """`base`: the row that the ratios are of; without it there are none."""
    console = Console(width=120)
    server = header["postgresql"]
    console.print(
        f"heliograph {header['commit']}, {header['at']}: {header['machine']}, load {header['load_before']} before\n"
        f"Python {header['python']}, asyncpg {header['packages']['asyncpg']}, PostgreSQL {server['server_version']}, "
        f"fsync {server['fsync']}, synchronous_commit {server['synchronous_commit']}\n"
        f"Work A, one durable job: medians of {header['repetitions']} x {header['seconds']:g} s"
    )
    floors = {row.name: row.items_per_second for row in rows}
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("items/s", f"ratio to {base}", "p50 ms", "p99 ms", "write tx/item", "WAL bytes/item"):
        table.add_column(title, justify="right")
    for row in rows:
        ratio = f"{row.items_per_second / floors[base]:.2f}" if base in floors else "-"
        table.add_row(row.name, f"{row.items_per_second:,.0f}", ratio, _shown(row.p50_ms), _shown(row.p99_ms),
                      f"{row.transactions_per_item:.2f}", f"{row.wal_bytes_per_item:,.0f}")  # fmt: skip
    console.print(table)


def as_json(header: dict[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    return {"header": header, "rows": [asdict(row) for row in rows]}


def _shown(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:.2f}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
