"""Forks of a long run at several positions: time and WAL, beside the start of a plain run and one inserted row of the log."""

from __future__ import annotations

import json
import random
import statistics
from typing import Any

from bench.figures import Figure, Figures
from bench.server_time import Stopwatch, Times
from bench.signal_log import PER_COMMIT, SignalLog
from heliograph.ledger.kernel import KERNEL

FORK_MS, FORK_BYTES = 10.0, 4096.0
START = KERNEL["start_runs"].statement()
INSERT = """
insert into bench_floor select project_id, $1, seq, count, entries, agent_turn_id, at from heliograph.signals
 where project_id = 'bench' and run_id = 'long' and seq = 1
"""
TABLE = "create table bench_floor as select project_id, run_id, seq, count, entries, agent_turn_id, at from heliograph.signals limit 0"


def start(run_id: str, fork_at: int | None) -> list[Any]:
    """The parameters of the statement that starts a run with one turn, or forks the long run with one turn in progress."""
    first: dict[str, Any] = {"name": "workflow:start", "payload": {"state": {}}}
    if fork_at is not None:
        first = {"name": "workflow:forked", "parent": f"sig_long_{fork_at}",
                 "payload": {"run_id": "long", "signal": f"sig_long_{fork_at}", "turns": []}}  # fmt: skip
    activation = {
        "agent": "writer",
        "cause": 0,
        "activation": 1,
        "turn_id": f"turn_{run_id}",
        "ttl_seconds": 3600,
        "max_attempts": 3,
    }
    item = {
        "run_id": run_id, "target": "bench", "request_hash": run_id, "agents": ["writer"],
        "signals": [first, {"name": "agent:activated", "agent": "writer", "parent": 0, "payload": {"agent": "writer"}}],
        "reaction": {"state": {}, "memory": {}, "activations": [activation]},
    }  # fmt: skip
    if fork_at is not None:
        item["fork"] = {"run_id": "long", "seq": fork_at, "activations": 0, "turns": []}
    return KERNEL["start_runs"].values(("bench", [item]), json.dumps)


async def measure_forks(connection: Any, log: SignalLog, reps: int, figures: Figures) -> None:
    """Fork at the start, in the middle and near the end, in random order, each beside its floors.

    The WAL is measured without full pages: how many of them a commit writes depends on the time since the last checkpoint.
    """
    await connection.execute("alter system set full_page_writes = off")
    await connection.execute("select pg_reload_conf()")
    places = {
        "after the first commit": PER_COMMIT,
        "in the middle": log.long_run // 2 // PER_COMMIT * PER_COMMIT,
        "before the last commit": log.long_run - PER_COMMIT,
    }
    await connection.execute(TABLE)
    drawn = [place for place in places for _ in range(reps)]
    random.Random(2).shuffle(drawn)
    watch = await Stopwatch.of(connection)
    took = {place: Times() for place in places}
    written: dict[str, list[float]] = {place: [] for place in places}
    inserts, starts = Times(), Times()
    insert_bytes: list[float] = []
    start_bytes: list[float] = []
    for number, place in enumerate(drawn):
        for query, given, times, wal in (
            (INSERT, [f"floor_{number}"], inserts, insert_bytes),
            (START, start(f"plain_{number}", None), starts, start_bytes),
            (START, start(f"fork_{number}", places[place]), took[place], written[place]),
        ):
            before = await connection.fetchval("select pg_current_wal_insert_lsn()")
            answer = await watch.time(times, connection.fetch(query, *given))
            if query == START:
                assert answer[0]["outcome"] == "started", answer
            wal.append(float(await connection.fetchval("select pg_current_wal_insert_lsn() - $1::pg_lsn", before)))
    figures.add_times("start of a run without a fork", starts, inserts, "inserted rows")
    for place in places:
        figures.add_times(f"fork {place}", took[place], inserts, "inserted rows", p50=FORK_MS)
        figures.add(Figure(f"fork {place}, WAL, p50", statistics.median(written[place]), "bytes", statistics.median(insert_bytes),
                           "inserted rows", FORK_BYTES))  # fmt: skip
    figures.add(Figure("start of a run without a fork, WAL, p50", statistics.median(start_bytes), "bytes", statistics.median(insert_bytes),
                       "inserted rows"))  # fmt: skip
