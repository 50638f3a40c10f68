"""`python -m bench.long_forks`: measure forks of a long run at random signals, end to end, beside starts of a plain run.

Two agents write a run of `--signals` signals, each with `--per-turn` signals in a turn. Then the run is forked at random positions, in
alternation with starts of a run that shares nothing. Printed are the time of the client's call, the CPU time of the server's processes and of
the client in it, which other work on the machine hardly changes, the WAL that it wrote, and the size of the checkpoints. The server is
an embedded PostgreSQL of its own, with fsync on.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import asyncpg

from bench.own_server import on_own_server
from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.ledger.install import install
from heliograph.run_fork import fork_run
from heliograph.runtime import Runtime, open_runtime

RUN = "long"
TARGET_MS, TARGET_BYTES = 10.0, 4096
CHECKPOINTS = "select count(*), coalesce(sum(pg_column_size(c.*)), 0) from heliograph.run_checkpoints c"
BACKENDS = "select pid from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
WAL = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


def application(signals: int, per_turn: int) -> Heliograph:
    turns = signals // (per_turn + 5)
    app = Heliograph(
        "bench-long-forks", max_activations=turns + 10, end_when=lambda state: state.get("turns", 0) >= turns
    )

    def add(name: str, *causes: str) -> None:
        @app.agent(activate_on=causes, emits=[f"{name}:done", "note:taken"], updates="turns", name=name)
        async def agent(ctx: Context) -> int:
            for number in range(per_turn):
                ctx.emit("note:taken", {"number": number, "text": "a note of some words"})
            ctx.emit(f"{name}:done")
            return int(ctx.state.get("turns", 0)) + 1

    add("ping", "workflow:start", "pong:done")
    add("pong", "ping:done")
    return app


@dataclass(frozen=True)
class Sample:
    """One call: the milliseconds that its caller waited, those of CPU time, and the bytes of WAL."""

    waited: float
    server: float
    client: float
    wal: int


def server_milliseconds(backends: Sequence[int]) -> float:
    return sum(int(Path(f"/proc/{backend}/schedstat").read_text().split()[0]) for backend in backends) / 1e6


async def timed(connection: asyncpg.Connection, work: Callable[[], Awaitable[object]]) -> Sample:
    backends = [row["pid"] for row in await connection.fetch(BACKENDS)]
    wal, server = await connection.fetchval(WAL), server_milliseconds(backends)
    client, started = process_time(), perf_counter()
    await work()
    waited, client = 1000 * (perf_counter() - started), 1000 * (process_time() - client)
    server = server_milliseconds(backends) - server
    return Sample(waited, server, client, await connection.fetchval(WAL) - wal)


async def measure(url: str, options: argparse.Namespace) -> bool:
    app = application(options.signals, options.per_turn)
    connection = await asyncpg.connect(url)
    await install(connection)
    async with open_runtime(Settings(database_url=url, project="bench")) as runtime:
        started = perf_counter()
        result = await runtime.run(app.workflow, run_id=RUN)
        last = result.signals[-1].seq
        count, size = tuple(await connection.fetchrow(CHECKPOINTS) or ())
        log_size = await connection.fetchval("select sum(pg_column_size(s.*)) from heliograph.signals s")
        took = perf_counter() - started
        print(f"{last:,} signals in {took:.0f} s; {count} checkpoints, {size / log_size:.2%} of the log")
        await connection.execute("vacuum analyze")
        return await _fork(runtime, connection, app, last, options.reps)


async def _fork(runtime: Runtime, connection: asyncpg.Connection, app: Heliograph, last: int, reps: int) -> bool:
    drawn = random.Random(1)
    forks, starts = list[Sample](), list[Sample]()
    for number in range(-5, reps):
        at = drawn.randrange(1, last - 500)
        fork = await timed(connection, partial(fork_run, runtime, app.workflow, RUN, at, None, f"fork_{number}"))
        start = await timed(connection, partial(runtime.start, app.workflow, {}, f"plain_{number}"))
        if number >= 0:  # the first ones fill caches
            forks.append(fork)
            starts.append(start)
    await connection.close()
    for label, samples in (("fork at a random signal", forks), ("start of a plain run", starts)):
        times, sizes = sorted(each.waited for each in samples), sorted(each.wal for each in samples)
        server, client = (median(getattr(each, name) for each in samples) for name in ("server", "client"))
        print(f"{label:<24} p50 {median(times):6.2f} ms, p95 {times[len(times) * 95 // 100]:6.2f} ms, longest {times[-1]:6.2f} ms; "
              f"CPU p50 {server:.2f} ms server, {client:.2f} ms client; WAL p50 {sizes[len(sizes) // 2]:,} bytes, p90 {sizes[len(sizes) * 9 // 10]:,}")  # fmt: skip
    return median(each.waited for each in forks) < TARGET_MS and median(each.wal for each in forks) < TARGET_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.long_forks", description=__doc__)
    parser.add_argument("--signals", type=int, default=50_000)
    parser.add_argument("--per-turn", type=int, default=20)
    parser.add_argument("--reps", type=int, default=200)
    options = parser.parse_args()
    is_met = on_own_server("long-forks", lambda url: measure(url, options))
    if not is_met:
        sys.exit(f"a fork took over {TARGET_MS:g} ms, or wrote over {TARGET_BYTES} bytes")


if __name__ == "__main__":
    main()
