"""What a subscriber's take costs on a long log, beside a plain read of the same rows."""

from __future__ import annotations

import json
from typing import Any

from bench.figures import Figures
from bench.server_time import Stopwatch, Times

RUNS, SIGNALS = 10, 200  # of one take: runs, and signals of each
SUBSCRIBE = "select heliograph.subscribe('bench', $1, $2::text::jsonb, 'start', '{}', clock_timestamp())"
TAKE = "select heliograph.take_signals('bench', $1, 'bench', $2, 3600, clock_timestamp())"
READ = "select entries from heliograph.signals where project_id = 'bench' and run_id = any ($1::text[]) and seq <= $2 order by run_id, seq"


async def measure_takes(connection: Any, reps: int, figures: Figures) -> None:
    """Take signals of ten runs at a time, all that there are (`**`) or a few, each beside a read of the same rows."""
    watch = await Stopwatch.of(connection)
    for name, pattern, label in (("all", "**", "all signals"), ("some", "draft:ready", "one signal in ten")):
        while "opening" in await connection.fetchval(SUBSCRIBE, name, json.dumps([pattern])):
            pass
        await connection.fetchval(TAKE, name, RUNS)  # enters the runs
        took, floor = Times(), Times()
        for _ in range(reps):
            answer = json.loads(await watch.time(took, connection.fetchval(TAKE, name, RUNS)))
            runs = [each["run_id"] for each in answer["runs"]]
            if not runs:
                break
            await watch.time(floor, connection.fetch(READ, runs, SIGNALS))
        figures.add_times(f"take of {label}, {RUNS} runs", took, floor, "reads of these rows")
