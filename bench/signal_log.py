"""A log of many signals in one project, for measurements: one long run, and runs of a thousand signals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

FILL = Path(__file__).with_name("sql") / "signals.sql"
BATCH = 100  # runs filled by one statement
PART = 10_000  # commits of the long run filled by one statement
PER_COMMIT = 10


@dataclass(frozen=True, slots=True)
class SignalLog:
    """What was written. runs: the number of those beside the long one. each: the signals of each."""

    signals: int
    long_run: int
    runs: int
    each: int
    megabytes: float
    seconds: float


async def fill(connection: Any, total: int, long_run: int, each: int) -> SignalLog:
    """Write `total` signals, `long_run` of them in the run `long`, the others in runs of `each`."""
    started = perf_counter()
    # while the log is written; queries and forks have the default
    await connection.execute("set synchronous_commit = off")
    await connection.execute(FILL.read_text(encoding="utf-8"))
    await connection.execute("alter table heliograph.signals disable row level security")
    for first in range(1, long_run // PER_COMMIT + 1, PART):
        await connection.execute(
            "select pg_temp.fill('long', $1, $2)", first, min(first + PART - 1, long_run // PER_COMMIT)
        )
    await connection.execute("select pg_temp.add_run('long', $1)", long_run // PER_COMMIT)
    runs = max(1, (total - long_run) // each)
    for first in range(1, runs + 1, BATCH):
        await connection.execute(
            "select pg_temp.fill('r' || n, 1, $1), pg_temp.add_run('r' || n, $1) from generate_series($2::integer, $3::integer) n",
            each // PER_COMMIT, first, min(first + BATCH - 1, runs),
        )  # fmt: skip
    await connection.execute("alter table heliograph.signals enable row level security")
    await connection.execute("vacuum analyze heliograph.signals, heliograph.runs, heliograph.agent_turns")
    await connection.execute("reset synchronous_commit")
    await connection.execute("checkpoint")
    count = await connection.fetchval("select sum(signal_seq) from heliograph.runs")
    size = await connection.fetchval("select pg_total_relation_size('heliograph.signals')")
    return SignalLog(int(count), long_run, runs, each, size / 1e6, perf_counter() - started)
