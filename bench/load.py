"""The works of the benchmark as a load: the same code measures Heliograph and every peer.

Work A, one durable job: it is started, a worker runs a step that does nothing, the result is stored.
Work B, one durable turn with one suspended call: it is started, issues a call and is suspended; an external process
reports the call's result; the turn resumes and finishes.
Agents at work (`bench.agent_apps`): runs of many items, one run after the other.

Imports nothing of Heliograph: the peers' environment runs it, too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Protocol

from bench.meter.sample import Done

STEPS, CHILDREN, RUN_OF_AGENTS, STREAM = "P", "F", "R", "D"
CHILDREN_OF_AN_AGENT, AGENTS = 100, 1000
TOKENS, TOKENS_PER_SECOND = 100, 50  # of a stream
# the items of a run: five calls of a tool and the answer, children, agents
ITEMS = {STEPS: 6, CHILDREN: CHILDREN_OF_AN_AGENT, RUN_OF_AGENTS: AGENTS}
WARM_SECONDS = 0.3
WATCH = {"application_name": "bench watch"}  # the settings of connections that observe results: see `bench.trips`
PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.0005
_COUNT_SECONDS = 0.02
_PAUSE_SECONDS_MAX = 0.02
_CALL_SECONDS = 0.005
_CHUNK = 1000


class Contender(Protocol):
    """A measured system. lane: the number of the concurrent caller, from 0.

    A system that does the work in its caller's process returns from `start` or `report` when all of it is done. Later counts of
    that work return the number of keys.
    """

    async def start(self, lane: int) -> Any:
        """Start a job of work A, and return its key once it is durable."""

    async def start_turn(self, lane: int) -> Any:
        """Start a turn of work B, and return its key once it is durable."""

    async def report(self, lane: int, key: Any) -> None:
        """Report the result of the call for which a turn of work B is suspended."""

    async def count_ended(self, keys: Sequence[Any]) -> int:
        """Count those of these jobs whose stored result is visible from outside."""

    async def count_suspended(self, keys: Sequence[Any]) -> int:
        """Count those of these turns that are visibly suspended."""

    async def count_finished(self, keys: Sequence[Any]) -> int:
        """Count those of these turns whose stored result is visible from outside."""


class AgentsAtWork(Protocol):
    """A measured system, as far as it has agents at work."""

    async def start_agents(self, work: str) -> Any:
        """Start a run of agents, and return its key once it is durable."""

    async def count_ended(self, keys: Sequence[Any]) -> int: ...


Load = Callable[[Any, int, float], Awaitable[Done]]  # of a contender


async def jobs(contender: Contender, callers: int, seconds: float) -> Done:
    """Start jobs with this many callers for `seconds`, and wait for the end of the last job."""
    keys: list[Any] = []

    async def one(lane: int) -> int:
        keys.append(await contender.start(lane))
        return 1

    await in_lanes(callers, seconds, one)
    await _all_are(contender.count_ended, keys)
    return Done(len(keys))


async def turns(contender: Contender, callers: int, seconds: float) -> Done:
    """Suspend all turns, then resume all. The callers start turns for half of `seconds`. When the last of these is
    suspended, they report all results. The load ends with the last turn."""
    keys: list[Any] = []

    async def one(lane: int) -> int:
        keys.append(await contender.start_turn(lane))
        return 1

    await in_lanes(callers, seconds / 2, one)
    await _all_are(contender.count_suspended, keys)
    waiting = iter(keys)

    async def report_all(lane: int) -> None:
        for key in waiting:
            await contender.report(lane, key)

    await asyncio.gather(*(report_all(lane) for lane in range(callers)))
    await _all_are(contender.count_finished, keys)
    return Done(len(keys))


async def single_jobs(contender: Contender, _: int, seconds: float) -> Done:
    """Run one job at a time with random pauses, and time each from its request until its result is visible from outside."""
    latencies: list[float] = []
    until = perf_counter() + seconds
    while not latencies or perf_counter() < until:
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS_MAX))
        started = perf_counter()
        await _is(contender.count_ended, await contender.start(0))
        latencies.append(perf_counter() - started)
    return Done(len(latencies), latencies)


async def single_turns(contender: Contender, _: int, seconds: float) -> Done:
    """Run one turn at a time with random pauses. The duration of the external call does not count."""
    latencies: list[float] = []
    resumes: list[float] = []
    until = perf_counter() + seconds
    while not latencies or perf_counter() < until:
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS_MAX))
        started = perf_counter()
        key = await contender.start_turn(0)
        await _is(contender.count_suspended, key)
        suspended = perf_counter() - started
        await asyncio.sleep(_CALL_SECONDS)
        reported = perf_counter()
        await contender.report(0, key)
        await _is(contender.count_finished, key)
        resumes.append(perf_counter() - reported)
        latencies.append(suspended + resumes[-1])
    return Done(len(latencies), latencies, resumes)


MANY: dict[str, Load] = {"A": jobs, "B": turns}


async def single_runs(work: str, contender: AgentsAtWork, _: int, seconds: float) -> Done:
    """Run agents at work, one run at a time. The latency of an item is that of its run, divided by the items of the run."""
    latencies: list[float] = []
    until = perf_counter() + seconds
    while not latencies or perf_counter() < until:
        started = perf_counter()
        await _is(contender.count_ended, await contender.start_agents(work))
        latencies.append((perf_counter() - started) / ITEMS[work])
    return Done(len(latencies) * ITEMS[work], latencies)


SINGLE: dict[str, Load] = {"A": single_jobs, "B": single_turns, **{work: partial(single_runs, work) for work in ITEMS}}


async def warm_up(contender: Contender | AgentsAtWork, work: str, callers: int) -> None:
    """Open connections and plan statements before the measurement."""
    load = SINGLE if callers == 1 else MANY
    await load[work](contender, callers, WARM_SECONDS)


async def in_lanes(lanes: int, seconds: float, one: Callable[[int], Awaitable[int]]) -> tuple[int, list[float]]:
    """Call `one` repeatedly in this many lanes, at least once in each. It returns a number of items; return their sum and the
    duration of each call."""
    until = perf_counter() + seconds
    durations: list[float] = []
    items = 0

    async def repeat(lane: int) -> None:
        nonlocal items
        is_first = True  # on a loaded machine, a short time may be over before the first call
        while (started := perf_counter()) < until or is_first:
            is_first = False
            done = await one(lane)  # not `items += await one(lane)`: the other lanes add to it meanwhile
            items += done
            durations.append(perf_counter() - started)

    await asyncio.gather(*(repeat(lane) for lane in range(lanes)))
    return items, durations


async def _all_are(count: Callable[[Sequence[Any]], Awaitable[int]], keys: Sequence[Any]) -> None:
    """Wait until all keys are counted, in portions, so the cost of a query does not grow with the finished ones."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for first in range(0, len(keys), _CHUNK):
            chunk = keys[first : first + _CHUNK]
            while await count(chunk) < len(chunk):  # noqa: ASYNC110  an outside poller is what is measured
                await asyncio.sleep(_COUNT_SECONDS)


async def _is(count: Callable[[Sequence[Any]], Awaitable[int]], key: Any) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await count([key]):  # noqa: ASYNC110  the same
            await asyncio.sleep(_LOOK_SECONDS)
