"""`python -m bench.subscribers`: what subscribers cost those who emit signals.

1. The match of a name against 10,000 subscriptions with wildcards, for a name seen before and for a new one, as a ratio to the look-up of
   a text in a dict of as many. It has to stay under 0.5 µs and 20 µs.
2. Work A, an agent that does nothing: CPU time of all processes per turn, alone and with 100 subscribers that hang in the same process, in
   alternating order. Other work of the machine changes both. The median of the ratios has to be at most 1.02; the interval of the median
   tells whether the rounds can show that. Each subscriber has a name of its own and holds as many runs as it may.
3. The part of `start_runs` that writes to the feed, for a project without and with a subscription, as a ratio to the whole call, in CPU
   time of the server.

The server is an embedded PostgreSQL of its own, with fsync on. Ratios are of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any

import asyncpg

from bench.app import noop
from heliograph import Heliograph
from heliograph.config import Settings
from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install
from heliograph.ledger.signal_feed import SignalFeed
from heliograph.runtime import Runtime, open_runtime
from heliograph.signals.pattern_table import PatternTable
from heliograph.subscriptions.deliveries import RUNS_MAX
from heliograph.subscriptions.serving import serving_subscribers

PATTERNS = 10_000
SUBSCRIBERS = 100
SEEN_US, NEW_US, MOST = 0.5, 20.0, 1.02
SETTLE_SECONDS = 120.0  # in which the subscribers take their runs, and hang


def match_costs(rounds: int) -> tuple[float, float, float]:
    """The best seconds of a look-up in a dict, and of matches among 10,000 wildcard patterns: of a name seen before, and of a new one."""
    table: PatternTable[int] = PatternTable()
    kinds = ("team{n}:*", "team{n}:**", "*:done{n}", "team{n}:*:closed", "**:part{n}")
    for n in range(PATTERNS):
        table.add(kinds[n % len(kinds)].format(n=n), n)
    plain = {f"team{n}:opened": n for n in range(PATTERNS)}
    count, seen = 100_000, "team5:opened"
    new = [f"team{n}:new{n}:closed" for n in range(2_000)]
    floor = min(_seconds(lambda: [plain.get(seen) for _ in range(count)]) for _ in range(rounds)) / count
    known = min(_seconds(lambda: [table.match(seen) for _ in range(count)]) for _ in range(rounds)) / count
    fresh = []
    for _ in range(rounds):
        table._cache.clear()  # each name is new again
        fresh.append(_seconds(lambda: [table.match(name) for name in new]) / len(new))
    return floor, known, min(fresh)


def measure_match(rounds: int) -> bool:
    """Print the best time of a match among 10,000 wildcard patterns; return whether both are in time."""
    floor, known, fresh = match_costs(rounds)
    print(f"{PATTERNS} wildcard subscriptions; a look-up in a dict takes {floor * 1e6:.3f} µs")
    for name, seconds, limit in (("seen before", known, SEEN_US), ("new", fresh, NEW_US)):
        verdict = "ok" if seconds * 1e6 < limit else f"MISSED: {limit} µs"
        print(f"  a name that is {name:<11}  {seconds * 1e6:7.3f} µs  {seconds / floor:7.1f} x the look-up  {verdict}")
    return known * 1e6 < SEEN_US and fresh * 1e6 < NEW_US


def _seconds(work: Any) -> float:
    started = thread_time()  # so that other processes of the machine do not count
    work()
    return thread_time() - started


def application(subscribers: int) -> Heliograph:
    app = Heliograph("bench-subscribers")
    app.agent(activate_on=["workflow:start"])(noop)

    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    for n in range(subscribers):
        app.on_signal("**", name=f"hanging-{n}", timeout_seconds=3600)(hang)
    return app


async def work_a(runtime: Runtime, app: Heliograph, runs: int) -> float:
    """Run turns; return how many per second."""
    workflow = app.workflow
    worker = runtime.worker(workflow, concurrency=32)
    serving = asyncio.create_task(worker.run())
    gate = asyncio.Semaphore(32)

    async def one() -> None:
        async with gate:
            run_id, _ = await runtime.start(workflow, {})
            async for _ in runtime.follow(run_id):
                pass

    started = perf_counter()
    await asyncio.gather(*(one() for _ in range(runs)))
    took = perf_counter() - started
    worker.stop()
    await serving
    return runs / took


async def all_hang(runtime: Runtime) -> None:
    """Wait until each subscriber has as many runs as it may."""
    feed = SignalFeed(runtime.world, runtime.settings.project)
    async with asyncio.timeout(SETTLE_SECONDS):
        while sum(row.taken for row in await feed.subscriptions()) < SUBSCRIBERS * RUNS_MAX:  # noqa: ASYNC110  the database has no event for this
            await asyncio.sleep(0.5)


async def serve_side(url: str, name: str, runs: int) -> None:
    """One process of `measure_work`: run work A once for each line of the input, and print its CPU time and rate."""
    app, hanging = application(0), application(SUBSCRIBERS).workflow
    async with open_runtime(Settings(database_url=url, project=name)) as runtime:
        workflows = [hanging] if name == "beside" else []
        async with serving_subscribers(runtime.world, workflows, {name: None}, close_seconds=0.0):
            await work_a(runtime, app, runs)  # warm, and each subscriber gets all the runs that it may have
            if workflows:
                await all_hang(runtime)
            print("ready", flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                started = process_time()
                rate = await work_a(runtime, app, runs)
                print(process_time() - started, rate, flush=True)


class Side:
    """A process with work A, in a project of its own. It is stopped while the other one is measured."""

    def __init__(self, url: str, name: str, runs: int):
        command = [sys.executable, "-m", "bench.subscribers", "--side", name, "--url", url, "--runs", str(runs)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.process.send_signal(signal.SIGSTOP)

    def measure(self, server: int) -> tuple[float, float]:
        """Return the CPU seconds of this process and of the server, and the turns per second."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGCONT)
        before = _tree_seconds(server)
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        seconds, rate = map(float, self.process.stdout.readline().split())
        spent = seconds + _tree_seconds(server) - before
        self.process.send_signal(signal.SIGSTOP)
        return spent, rate

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def measure_work(url: str, server: int, runs: int, rounds: int) -> bool:
    """Print the CPU time of a turn in a project without subscriptions, and in one with 100 subscribers that hang; return whether it may be in time."""
    sides = [Side(url, name, runs) for name in ("alone", "beside")]
    ratios, rates = [], []
    try:
        for number in range(rounds):
            order = sides if number % 2 else sides[::-1]
            found = {side: side.measure(server) for side in order}
            (alone, fast), (beside, slow) = (found[side] for side in sides)
            ratios.append(beside / alone)
            rates.append(slow / fast)
            print(f"  round {number + 1}: {alone / runs * 1e6:.0f} and {beside / runs * 1e6:.0f} µs of CPU per turn, {fast:.0f} and {slow:.0f} turns/s",
                  flush=True)  # fmt: skip
    finally:
        for side in sides:
            side.close()
    ratio, (low, high) = statistics.median(ratios), interval(ratios)
    verdict = (
        "ok"
        if high <= MOST
        else f"MISSED: {MOST}"
        if low > MOST
        else f"undecided: {MOST} is within the interval; use a quiet machine or more rounds"
    )
    print(f"work A beside {SUBSCRIBERS} hanging subscribers takes {ratio:.3f} of the CPU time of A alone (95 % of the medians: {low:.3f} to {high:.3f}), "
          f"and makes {statistics.median(rates):.3f} of its turns per second  {verdict}")  # fmt: skip
    return low <= MOST


def interval(values: list[float]) -> tuple[float, float]:
    """The order statistics between which the median is with at least 95 %, for any distribution; the extremes for few values."""
    ordered, n = sorted(values), len(values)
    chance, cut = 0.5**n, 0
    while chance + math.comb(n, cut + 1) * 0.5**n <= 0.025:
        cut += 1
        chance += math.comb(n, cut) * 0.5**n
    return ordered[cut], ordered[n - 1 - cut]


def _tree_seconds(parent: int) -> float:
    """The CPU time of the server: of its first process, of the children that have ended, and of those that live."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended; its parent has its time
            continue
        if int(path.parent.name) == parent:
            total += sum(map(int, fields[11:15]))
        elif int(fields[1]) == parent:
            total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


async def measure_start(url: str, rounds: int) -> None:
    """Print what the feed adds to `start_runs`: CPU time of the server in loops that are rolled back, each the best of some."""
    connection = await asyncpg.connect(url)
    backend = await connection.fetchval("select pg_backend_pid()")
    feed = "select count(heliograph._feed_runs($1, array['run_' || n])) from generate_series(1, 500) n"
    start = (
        "select count(*) from generate_series(1, 500) n cross join lateral heliograph.start_runs($1, array['run_' || n], '{t}', '{h}',"
        " array[jsonb_build_array('a')], '{null}', '{null}', array['[{\"name\": \"workflow:start\"}]'::jsonb],"
        " array['{\"state\": {}, \"memory\": {}, \"activations\": []}'::jsonb], '{null}', '{null}', clock_timestamp())"
    )
    for name, what in (("alone", "without a subscription"), ("beside", "with subscriptions")):
        took: dict[str, list[float]] = {feed: [], start: []}
        for _ in range(rounds):
            for query, seconds in took.items():
                transaction = connection.transaction()
                await transaction.start()
                await connection.execute("select set_config('heliograph.project', $1, true)", name)
                started = _cpu_seconds(backend)
                await connection.fetchval(query, name)
                seconds.append((_cpu_seconds(backend) - started) / 500)
                await transaction.rollback()
        part, whole = min(took[feed]), min(took[start])
        print(f"a project {what}: the feed takes {part * 1e6:.1f} of {whole * 1e6:.0f} µs of CPU of start_runs, "
              f"{100 * part / whole:.1f} %")  # fmt: skip
    await connection.close()


def _cpu_seconds(process: int) -> float:
    """The CPU time of a process on Linux."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


async def prepare(url: str) -> int:
    """Install the kernel; return the first process of the server."""
    connection = await asyncpg.connect(url)
    await install(connection)
    first: int = await connection.fetchval("select split_part(pg_read_file('postmaster.pid'), e'\\n', 1)::integer")
    await connection.close()
    return first


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.subscribers", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="turns of each measurement of work A (1000)")
    parser.add_argument("--rounds", type=int, default=20, help="measurements of work A of each kind (20)")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        asyncio.run(serve_side(options.url, options.side, options.runs))
        return
    home = Path(tempfile.mkdtemp(prefix="heliograph-subscribers-"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    is_in_time = measure_match(5)
    try:
        with open_embedded(home, version=18) as server:
            first = asyncio.run(prepare(server.url))
            is_in_time &= measure_work(server.url, first, options.runs, options.rounds)
            asyncio.run(measure_start(server.url, 9))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if not is_in_time:
        sys.exit("a figure is missed")


if __name__ == "__main__":
    main()
