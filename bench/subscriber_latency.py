"""`python -m bench.subscriber_latency`: measure the time from `ctx.emit` to the handler of a subscriber.

Each turn of an agent emits a signal whose payload is the time; the commit that ends the turn records it. Receivers: a function of the application
in the worker's process; durable subscriptions of another process by the name of the signal, by `*:*:*`, which matches only this signal, and by
`*:*` as well, which matches all others; and a follower of the run in another process. Each is measured alone: with the wire of PostgreSQL and
with NATS, in a project at rest and beside work A of another process. The subscription of all signals is measured at rest only, because beside
work A its latency is the length of its queue. All processes read one clock.

The server is an embedded PostgreSQL of its own, with fsync on. The floor is the commit of one inserted row, measured before each signal. Other work
of the machine changes both, so compare the ratios. `--save NAME` keeps the figures in `bench/results`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import asyncpg

from bench.app import app as work_a
from bench.machine import ROOT, read_header
from bench.nats_server import running_nats
from bench.place import SERVER, Place
from heliograph import Client, Context, Heliograph, Signal
from heliograph.config import Settings
from heliograph.embedded.server import open_embedded
from heliograph.runtime import open_runtime

PULSE, LAST, PROJECT, RUN = "bench:pulse:sent", "bench:done", "default", "pulses"
WARM_UP = 20  # pulses that are not counted
GOAL_MS = 20.0  # of the median, in a project at rest
PATIENCE_SECONDS = 60.0  # for one measurement, beside its pulses
CALLERS = 8  # of work A
WIRES, AT_REST = ("postgres", "nats"), "at rest"
RESULTS = ROOT / "bench" / "results"
# The patterns of a durable subscription in another process, by the name of the receiver.
ALL = "durable, of all signals"
PATTERNS = {"durable, by name": [PULSE], "durable, by *:*:*": ["*:*:*"], ALL: ["*:*", PULSE]}
IN_PROCESS, FOLLOW = "function", "follow"
RECEIVERS = (IN_PROCESS, *PATTERNS, FOLLOW)


class Received:
    """The seconds that pulses took to a receiver: of those that were emitted after the first one arrived, without the first WARM_UP."""

    def __init__(self, pulses: int):
        self._pulses = WARM_UP + pulses
        self._since: float | None = None
        self._seconds: list[float] = []
        self.is_complete = asyncio.Event()

    def add(self, signal: Signal) -> None:
        now, payload = time.monotonic(), signal.payload
        assert isinstance(payload, dict)
        emitted_at = payload["at"]
        assert isinstance(emitted_at, float)
        if self._since is None:
            self._since = now
        if emitted_at > self._since and len(self._seconds) < self._pulses:
            self._seconds.append(now - emitted_at)
        if len(self._seconds) == self._pulses:
            self.is_complete.set()

    @property
    def seconds(self) -> list[float]:
        return self._seconds[WARM_UP:]


def application(
    every_seconds: float, is_over: asyncio.Event, insert: Callable[[], Awaitable[object]], floor: list[float]
) -> Heliograph:
    """An application whose agent emits one pulse in each turn, which activates its next turn. floor: receives the seconds of each `insert`."""
    app = Heliograph("bench-pulses")

    @app.agent(activate_on=["workflow:start", PULSE], emits=[PULSE, LAST], timeout_seconds=600)
    async def pulse(ctx: Context) -> None:
        await asyncio.sleep(every_seconds)
        started = time.monotonic()
        await insert()
        floor.append(time.monotonic() - started)
        if is_over.is_set():
            ctx.emit(LAST)
        else:
            ctx.emit(PULSE, {"at": time.monotonic()})

    return app


async def receive(receiver: str, pulses: int) -> None:
    """The process of a receiver: print the seconds of each pulse."""
    received = Received(pulses)
    async with Client() as client, aclosing(_signals(client, receiver)) as signals:
        async for signal in signals:
            if signal.name == PULSE:
                received.add(signal)
            if received.is_complete.is_set():
                break
    print(json.dumps(received.seconds), flush=True)


def _signals(client: Client, receiver: str) -> Any:
    if receiver == FOLLOW:
        return client.follow(RUN)
    return client.subscribe("receiver", PATTERNS[receiver], since="start")


async def load(seconds: float) -> None:
    """The process of work A."""
    async with open_runtime(
        Settings(os.environ["HELIOGRAPH_DATABASE_URL"], nats_url=os.environ.get("HELIOGRAPH_NATS_URL"))
    ) as runtime:
        worker = runtime.worker(work_a.workflow, concurrency=CALLERS)
        serving, until = asyncio.create_task(worker.run()), time.monotonic() + seconds

        async def call() -> None:
            while time.monotonic() < until:
                run_id, _ = await runtime.start(work_a.workflow, {})
                async for _ in runtime.follow(run_id):
                    pass

        await asyncio.gather(*(call() for _ in range(CALLERS)))
        worker.stop()
        await serving


@asynccontextmanager
async def child(url: str, nats: str | None, *arguments: str) -> AsyncIterator[Process]:
    """A process of this program in the same project, killed at the end of the block."""
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "HELIOGRAPH_PROJECT": PROJECT}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.subscriber_latency", *arguments, stdout=PIPE, cwd=ROOT, limit=1 << 26,
        env=environment | ({"HELIOGRAPH_NATS_URL": nats} if nats else {}),
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(
    url: str, nats: str | None, receiver: str, pulses: int, every_seconds: float
) -> tuple[list[float], list[float]]:
    """Return the seconds of each inserted row, and of each pulse until the receiver had it."""
    floor: list[float] = []
    is_over, received = asyncio.Event(), Received(pulses)
    connection = await asyncpg.connect(url)
    await connection.execute("create table floor (at float8)")
    app = application(every_seconds, is_over, partial(connection.execute, "insert into floor values (1)"), floor)
    if receiver == IN_PROCESS:
        app.on_signal(PULSE, name="receiver")(received.add)
    async with open_runtime(Settings(url, project=PROJECT, nats_url=nats)) as runtime:
        await runtime.start(app.workflow, {}, RUN)
        stopping = asyncio.Event()
        serving = asyncio.create_task(runtime.serve(runtime.worker(app.workflow), stopping))
        if receiver == IN_PROCESS:
            await received.is_complete.wait()
            seconds = received.seconds
        else:
            async with child(url, nats, "--receive", receiver, "--pulses", str(pulses)) as process:
                assert process.stdout is not None
                seconds = json.loads(await process.stdout.readline())
        is_over.set()
        stopping.set()
        await serving
    await connection.close()
    return floor[-pulses:], seconds


def row(seconds: Sequence[float]) -> dict[str, float]:
    parts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50_ms": 1000 * parts[49], "p99_ms": 1000 * parts[98], "max_ms": 1000 * max(seconds)}


async def measure_all(place: Place, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each receiver over each wire, at rest and beside work A, and print a row for each."""
    rows: list[dict[str, Any]] = []
    every, pulses = options.every_ms / 1000, options.pulses
    limit = PATIENCE_SECONDS + 4 * pulses * every
    for wire, kind, receiver in product(options.wire, (AT_REST, "beside work A"), options.receiver):
        if kind != AT_REST and receiver == ALL:
            continue
        async with AsyncExitStack() as stack:
            nats = stack.enter_context(running_nats()) if wire == "nats" else None
            url = await stack.enter_async_context(place.database())
            if kind != AT_REST:
                await stack.enter_async_context(child(url, nats, "--load", str(limit)))
            await stack.enter_async_context(asyncio.timeout(limit))
            floor, took = await measure(url, nats, receiver, pulses, every)
        rows.append({"wire": wire, "load": kind, "receiver": receiver, **row(took), "floor": row(floor)})
        print_row(rows[-1])
    return rows


def print_row(took: dict[str, Any]) -> None:
    floor = took["floor"]
    verdict = "" if took["load"] != AT_REST else "ok" if took["p50_ms"] <= GOAL_MS else f"MISSED: {GOAL_MS:g} ms"
    print(f"{took['wire']:9} {took['load']:14} {took['receiver']:24} p50 {took['p50_ms']:6.1f} ms, p99 {took['p99_ms']:7.1f}, "
          f"most {took['max_ms']:7.1f}; a row: p50 {floor['p50_ms']:5.1f}, p99 {floor['p99_ms']:6.1f}, "
          f"ratio of p50 {took['p50_ms'] / floor['p50_ms']:5.1f}  {verdict}",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.subscriber_latency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pulses", type=int, default=200, help="signals of each measurement (200)")
    parser.add_argument("--every-ms", type=float, default=25.0, help="between two signals (25)")
    parser.add_argument("--wire", nargs="+", choices=WIRES, default=list(WIRES), help="default: both")
    parser.add_argument("--receiver", nargs="+", choices=RECEIVERS, default=list(RECEIVERS), help="default: all")
    parser.add_argument("--save", metavar="NAME", help="keep the figures in bench/results/NAME.json")
    parser.add_argument("--receive", choices=RECEIVERS, help=argparse.SUPPRESS)
    parser.add_argument("--load", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        return asyncio.run(receive(options.receive, options.pulses))
    if options.load:
        return asyncio.run(load(options.load))
    home = Path(tempfile.mkdtemp(prefix="heliograph-latency-"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, a signal every {options.every_ms:g} ms", flush=True)
    try:
        with open_embedded(home, version=18, settings=SERVER) as server:
            header = asyncio.run(read_header(server.url, 0, options.pulses))
            rows = asyncio.run(measure_all(Place(server.url, server.bin), options))
        server.wait_stopped(30)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.save:
        report = {"header": {**header, "load_after": round(os.getloadavg()[0], 2)}, "rows": rows}
        (RESULTS / f"{options.save}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    missed = [
        f"{each['wire']}, {each['receiver']}" for each in rows if each["load"] == AT_REST and each["p50_ms"] > GOAL_MS
    ]
    raise SystemExit(f"missed: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main()
