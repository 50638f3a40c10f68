"""Measure agents at work (`bench.agent_apps`), durably, and where it applies in memory with pydantic-ai alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from time import monotonic
from typing import Any

from bench.agent_apps import MODEL, PROMPT, add, application
from bench.beside import measure_peer
from bench.full import Runs, opened, worker
from bench.load import SINGLE, STEPS, STREAM, TOKENS, warm_up
from bench.meter.sample import Done, Sample
from bench.peers.catalog import Entry
from bench.place import Place
from bench.provider import providing
from heliograph import Client


async def measure_agents(work: str, place: Place, callers: int, seconds: float) -> Sample:
    """Measure runs of one work, one at a time."""
    async with AsyncExitStack() as stack:
        runs = await _entered(stack, work, place)
        await warm_up(runs, work, callers)
        return await place.measure(lambda: SINGLE[work](runs, callers, seconds))


async def measure_streams(place: Place, streams: int, _: float) -> Sample:
    """Measure the tokens of so many answers at once, from the model in the worker to a follower in this process. The answers have a length, so
    the seconds do not matter."""
    async with AsyncExitStack() as stack:
        runs = await _entered(stack, STREAM, place)
        client = await stack.enter_async_context(Client(runs.url))
        app = application(STREAM)

        async def load() -> Done:
            run_ids = [await runs.start_of(app) for _ in range(streams)]
            latencies = [
                each
                for found in await asyncio.gather(*(_follow(client, run_id) for run_id in run_ids))
                for each in found
            ]
            if len(latencies) != streams * TOKENS:
                raise RuntimeError(f"{len(latencies)} tokens came of {streams * TOKENS}")
            return Done(len(latencies), latencies)

        return await place.measure(load)


async def measure_in_memory(place: Place, callers: int, seconds: float) -> Sample:
    """Measure a prompt agent of pydantic-ai that stores nothing, in this process, with the same model and tool."""
    async with providing():
        runs = _InMemory()
        async with runs.agent:  # closes its connections to the model
            await warm_up(runs, STEPS, callers)
            return await place.measure(lambda: SINGLE[STEPS](runs, callers, seconds))


async def measure_peer_agents(entry: Entry, work: str, place: Place, callers: int, seconds: float) -> Sample:
    async with providing():
        return await measure_peer(entry, work, place, callers, seconds)


async def _entered(stack: AsyncExitStack, work: str, place: Place) -> Runs:
    if work == STEPS:
        await stack.enter_async_context(providing())
    url = await stack.enter_async_context(place.database())
    await stack.enter_async_context(worker(url, work))
    return await stack.enter_async_context(opened(url))


async def _follow(client: Client, run_id: str) -> list[float]:
    """Return the seconds that each token took: it is the time at which it was emitted, and all processes read one clock."""
    found: list[float] = []
    rest = ""
    async for signal in client.follow(run_id):
        if signal.name == "text:delta":
            payload: Any = signal.payload
            *times, rest = (rest + payload["content"]).split(" ")
            found += [monotonic() - float(each) for each in times]
    return found


class _InMemory:
    """pydantic-ai under the load: see `bench.load.Contender`."""

    def __init__(self) -> None:
        from pydantic_ai import Agent

        self.agent: Any = Agent(MODEL, tools=[add])

    async def start_agents(self, _work: str) -> None:
        async with self.agent.iter(PROMPT) as run:
            async for node in run:
                if hasattr(node, "stream"):  # a model call or its tool calls: read as they come, as a worker does
                    async with node.stream(run.ctx) as events:
                        async for _ in events:
                            pass

    async def count_ended(self, keys: Sequence[Any]) -> int:
        return len(keys)
