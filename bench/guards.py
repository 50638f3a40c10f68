"""`python -m bench.guards`: measure what breakers and rate limits add to a step, and how fast an open breaker answers.

Turns of one worker make steps that do nothing, one after another: without a guard, behind a closed breaker, within a rate limit, and
behind an open breaker, which has to answer in under 5 ms. Prints percentiles of the time from the call of `ctx.step` to its answer, and
of `begin_call`, in which the kernel admits or rejects a step. A rejection is recorded, so it costs another commit. The server is an embedded PostgreSQL of its own, with fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from contextlib import suppress
from time import perf_counter
from typing import Any

import asyncpg

from bench.own_server import on_own_server
from heliograph import Context, Heliograph, Step
from heliograph.config import Settings
from heliograph.errors import CircuitOpen, RecoverableError, ToolFailed
from heliograph.ledger.install import install
from heliograph.runtime import open_runtime

TARGET_MS = 5.0
OPEN = "open breaker"
BREAKER = {"failure_threshold": 1, "success_threshold": 1, "half_open_max_calls": 1, "timeout_seconds": 86_400}
GUARDS: dict[str, dict[str, Any]] = {
    "no guard": {},
    "closed breaker": {"circuit_breaker": BREAKER},
    "rate limit": {"rate_limit": "1000000000/s"},
    OPEN: {"circuit_breaker": BREAKER},
}
PATIENCE_SECONDS = 300.0


def application(guard: str, steps: int, took: list[float]) -> Heliograph:
    app = Heliograph(guard.replace(" ", "-"))
    target = guard.replace(" ", "_")

    def fail() -> None:
        raise RecoverableError("down")

    def succeed() -> None: ...

    @app.agent(activate_on=["workflow:start"])
    async def caller(ctx: Context) -> None:
        if guard == OPEN:
            with suppress(ToolFailed):
                await ctx.step(Step(target, **GUARDS[guard]), fail)
        for _ in range(steps):
            started = perf_counter()
            try:
                await ctx.step(Step(target, effect="idempotent", **GUARDS[guard]), succeed)
                assert guard != OPEN, "an open breaker admitted a call"
            except CircuitOpen:
                assert guard == OPEN, "a closed breaker rejected a call"
            took.append(perf_counter() - started)

    return app


async def measure(url: str, guard: str, callers: int, steps: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each step, and of each answer of the kernel."""
    took, answers = list[float](), list[float]()
    app = application(guard, steps, took)
    async with open_runtime(Settings(database_url=url, project=f"{app.name}-{callers}")) as runtime:
        call = runtime.world.call

        async def timed(function: str, *args: Any) -> Any:
            started = perf_counter()
            answer = await call(function, *args)
            if function == "begin_call":
                answers.append(perf_counter() - started)
            return answer

        runtime.world.call = timed  # type: ignore[method-assign]
        runs = [(await runtime.start(app.workflow, {}, None))[0] for _ in range(callers)]
        stopping = asyncio.Event()
        serving = asyncio.create_task(runtime.serve(runtime.worker(app.workflow, concurrency=callers), stopping))
        async with asyncio.timeout(PATIENCE_SECONDS):
            for run_id in runs:
                async for _ in runtime.follow(run_id):
                    pass
        stopping.set()
        await serving
    assert len(took) == callers * steps, "a step was not made"
    return took, answers


async def compare(url: str, options: argparse.Namespace) -> bool:
    """Print all rows; return whether the median answer of an open breaker came in time for one caller."""
    connection = await asyncpg.connect(url)
    await install(connection)
    await connection.close()
    is_in_time = True
    for callers in options.callers:
        for guard in GUARDS:
            took, answers = await measure(url, guard, callers, options.steps)
            print(
                f"{callers:>3} callers, {guard + ':':<16}step {_percentiles(took)}; begin_call {_percentiles(answers)}"
            )
            if guard == OPEN and callers == 1:
                is_in_time = statistics.median(answers) * 1000 < TARGET_MS
    return is_in_time


def _percentiles(seconds: list[float]) -> str:
    parts = statistics.quantiles(seconds, n=100)
    return ", ".join(f"p{p} {parts[p - 1] * 1000:.2f} ms" for p in (50, 95))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.guards", description=__doc__)
    parser.add_argument("--callers", nargs="+", type=int, default=[1, 64], help="turns at once (1 64)")
    parser.add_argument("--steps", type=int, default=200, help="of each turn (200)")
    options = parser.parse_args()
    is_in_time = on_own_server("guards", lambda url: compare(url, options))
    if not is_in_time:
        sys.exit(f"an open breaker took over {TARGET_MS:g} ms for one caller")


if __name__ == "__main__":
    main()
