"""Queries of causes on a long log, each beside a look-up of one row of the same table by its primary key."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

from bench.figures import Figures
from bench.server_time import Stopwatch, Times
from bench.signal_log import PER_COMMIT, SignalLog

LOOK_UP = "select entries from heliograph.signals where project_id = 'bench' and run_id = $1 and seq = $2"
FLOOR = "look-ups"
WHY_MS = 50.0  # p99
WHY = "select heliograph.why('bench', $1, $2)"
TREE, GRAPH = "select heliograph.read_tree('bench', $1, 0, $2)", "select heliograph.read_graph('bench', $1, 0, $2)"

Choice: TypeAlias = Callable[[random.Random], str]


async def measure_causes(connection: Any, log: SignalLog, reps: int, figures: Figures) -> None:
    """Run each query `reps` times, for signals at random places."""
    choice, watch = random.Random(1), await Stopwatch.of(connection)

    def somewhere(choice: random.Random) -> str:
        return f"sig_r{choice.randint(1, log.runs)}_{choice.randint(1, log.each)}"

    def in_the_long_run(choice: random.Random) -> str:
        return f"sig_long_{choice.randint(log.long_run // 2, log.long_run)}"

    def newest(_: random.Random) -> str:
        return f"sig_r{choice.randint(1, log.runs)}_{log.each}"

    async def measure(name: str, query: str, subject: Choice, limit: int, p99: float | None = None) -> None:
        took, floor = Times(), Times()
        for _ in range(reps):
            place = PER_COMMIT * choice.randrange(log.long_run // PER_COMMIT) + 1
            await watch.time(took, connection.fetchval(query, subject(choice), limit))
            await watch.time(floor, connection.fetchval(LOOK_UP, "long", place))
        figures.add_times(name, took, floor, FLOOR, p99=p99)

    await measure("why, any signal, 100 causes", WHY, somewhere, 100, WHY_MS)
    await measure("why, a signal of the long run, 100 causes", WHY, in_the_long_run, 100, WHY_MS)
    await measure(f"why, the whole chain of a run of {log.each}", WHY, newest, 1000, WHY_MS)
    await measure("why, a signal of the long run, 1000 causes", WHY, in_the_long_run, 1000)
    await measure("tree of the long run, first page of 1000", TREE, lambda _: "long", 1000)
    await measure("tree of a signal, page of 200", TREE, in_the_long_run, 200)
    await measure("graph of a signal, 100 causes and effects", GRAPH, in_the_long_run, 100)
