"""`python -m bench.worker_cpu`: the CPU time of a worker per turn of work A, with a store that answers at once.

A real worker claims prepared turns, runs them and finishes them. Requests are encoded and answers decoded as with PostgreSQL, but
nothing is sent. Each round measures a process on asyncio's loop, one on uvloop, and on uvloop one that records a tenth of the traces
and one that records all, in alternating order. These two export over OTLP to a collector of this process. Prints the median and the
quartiles of the rounds, and of the ratios to uvloop without telemetry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from time import process_time
from typing import Any

import msgspec

from bench.app import app
from bench.telemetry import collecting, environment_of
from bench.worker import CONCURRENCY
from heliograph.agent_loop.model_agent_loop import ModelAgentLoop
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.execution.packed_commit import RECORDED, STARTED
from heliograph.execution.project_services import ProjectServices
from heliograph.harness.resolve import Harnesses
from heliograph.ids import signal_id
from heliograph.ledger.client import Ledger
from heliograph.ledger.transactions import Transactions
from heliograph.ports import Tracer
from heliograph.reactive.react import react_to_start
from heliograph.records import Cause, Claimed, InboxRow, RunView
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.telemetry.opening import open_telemetry
from heliograph.telemetry.settings import read_telemetry
from heliograph.worker.claim_loop import Worker
from heliograph.world.event_loop import new_event_loop
from heliograph.world.real import RealWorld

RUN, TURN, AT = "run_@RUN@", "@TURN@", datetime(2030, 1, 1, tzinfo=UTC)  # stand-ins, replaced in the encoded text
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_event_loop}
BASE = "uvloop"
SIDES = {
    "asyncio": ("asyncio", None),
    BASE: ("uvloop", None),
    "uvloop, 10 %": ("uvloop", "0.1"),
    "uvloop, 100 %": ("uvloop", "1"),
}
WARM_TURNS = 1_000
ANSWERS: dict[str, Any] = {"bell_key": "00" * 32, "read_outbox": [], "sweep_bells": [], "sweep_pending_reactions": []}
SWEPT = {"changed": 0, "targets": [], "owners": []}  # a sweep that finds nothing


class InstantStore:
    """Answers the calls of a worker at once: with turns until `turns` were claimed, and with success for each turn that ends."""

    def __init__(self, turns: int, *, is_recorded: bool = False):
        self._left = turns
        self._turn = _turn(is_recorded=is_recorded)
        self._to_end = turns
        self.done = asyncio.Event()

    async def call(self, function: str, *args: Any) -> Any:
        msgspec.json.encode(args[1:])
        if function == "claim":
            return msgspec.json.decode(self._claim(args[3]))
        if function == "finish":
            return msgspec.json.decode(self._finish(args[1]))
        if function == "finish_and_claim":
            finished = msgspec.json.decode(self._finish(args[1]))
            return {"finished": finished, "claimed": msgspec.json.decode(self._claim(args[4]))}
        if function == "renew":
            return [{"turn_id": item["turn_id"], "outcome": "ok"} for item in args[1]]
        return ANSWERS.get(function, SWEPT)

    def _claim(self, limit: int) -> bytes:
        numbers = range(self._left, max(self._left - limit, 0), -1)
        self._left -= len(numbers)
        return b"[%b]" % b",".join(
            self._turn.replace(b"@RUN@", b"%d" % n).replace(TURN.encode(), b"turn_%d" % n) for n in numbers
        )

    def _finish(self, items: list[dict[str, Any]]) -> bytes:
        self._to_end -= len(items)
        if self._to_end <= 0:
            self.done.set()
        return msgspec.json.encode([{"turn_id": item["turn_id"], "outcome": "ok", "targets": []} for item in items])


def _turn(*, is_recorded: bool) -> bytes:
    """A claimed turn of work A, as the kernel returns it, with stand-ins for its ids."""
    start = react_to_start(app.workflow, RUN, {}, AT, lambda _: TURN, {RECORDED: STARTED} if is_recorded else None)
    cause = Cause(signal_id(RUN, 1), "workflow:start", {})
    run = RunView(RUN, "running", 1, {}, start.memory or {}, 1, 0, 1)
    claimed = Claimed(
        f"{RUN}/noop", "noop", RUN, app.workflow.name, TURN, 1, 0, 1, 3, 3600.0, None, f"box_{TURN}", signal_id(RUN, 2), cause,
        [InboxRow("turn", cause.id)], run,
    )  # fmt: skip
    return msgspec.json.encode(claimed)


async def run_turns(turns: int, tracer: Tracer = NULL_TRACER, *, is_recorded: bool = False) -> None:
    """Run this number of turns of work A. tracer: receives their spans. is_recorded: whether the runs are recorded for a replay."""
    store = InstantStore(turns, is_recorded=is_recorded)
    world = RealWorld(store, Transactions(store))  # type: ignore[arg-type]  # no turn of work A opens a transaction
    await world.bells.learn("default")
    services = ProjectServices(world, Ledger(world, "default"), {app.workflow.name: app.workflow}, tracer=tracer)
    worker = Worker([services], "bench", ModelAgentLoop(Harnesses(None)), concurrency=CONCURRENCY)
    serving = asyncio.create_task(worker.run())
    await store.done.wait()
    worker.stop()
    await serving
    await world.close()


async def _run_traced(turns: int) -> None:
    """Run turns with the telemetry that the environment sets, until its spans are exported."""
    async with open_telemetry(read_telemetry(os.environ), lambda: datetime.now(UTC)) as tracer:
        await run_turns(turns, tracer)


def measure(loop: str, turns: int) -> float:
    """The microseconds of CPU time per turn in this process."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(_run_traced(WARM_TURNS))
        with tuned_garbage_collection():
            before = process_time()
            runner.run(_run_traced(turns))
            return 1e6 * (process_time() - before) / turns


def measure_in_process(side: str, turns: int, endpoint: str) -> float:
    loop, share = SIDES[side]
    done = subprocess.run(  # noqa: S603  our own
        [sys.executable, "-m", "bench.worker_cpu", "--turns", str(turns), "--only", loop],
        check=True, capture_output=True, text=True, env={**os.environ, **environment_of(share, endpoint)},
    )  # fmt: skip
    return float(json.loads(done.stdout))


def summary(figures: list[float], form: str) -> str:
    """The median, and the quartiles between which half of the figures lie."""
    low, middle, high = statistics.quantiles(figures, n=4, method="inclusive")
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.worker_cpu", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each side (default 7)")
    parser.add_argument("--turns", type=int, default=10_000, help="turns of each measurement (default 10,000)")
    parser.add_argument(
        "--only", choices=LOOPS, help="measure one loop once, in this process, and print the figure alone"
    )
    options = parser.parse_args()
    if options.only:
        print(measure(options.only, options.turns))
        return
    found: dict[str, list[float]] = {side: [] for side in SIDES}
    with collecting() as collector:
        for number in range(options.rounds):
            for side in SIDES if number % 2 else reversed(SIDES):
                found[side].append(measure_in_process(side, options.turns, collector.endpoint))
    for side, figures in found.items():
        ratios = [figure / base for figure, base in zip(figures, found[BASE], strict=True)]
        print(
            f"{side:15} {summary(figures, '.1f')} µs of CPU per turn, least {min(figures):.1f}; ratio {summary(ratios, '.3f')}"
        )


if __name__ == "__main__":
    main()
