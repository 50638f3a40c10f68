"""Our prototype of the kernel: works A and B with calls of many items, and nothing that makes a product.

It is the least work with which a worker process in Python can serve a queue in PostgreSQL: callers' requests are sent together while a call is on
its way, and a worker finishes what it has done and claims the next in one call. It has no leases that run out, no retries, no
idempotency, no log, no authorisation, no payloads. `python -m bench.prototype WORK` is its worker.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from bench.load import MANY, SINGLE, WATCH, warm_up
from bench.meter.sample import Sample
from bench.place import SQL, Place

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = ("floor.sql", "floor_turn.sql", "prototype.sql")
PUMPS, WORKERS, BATCH, AGENTS = 2, 2, 32, 64_000
SWEEP_SECONDS = 1.0
REQUEST, RESULT, SUSPENDED, FINISHED = 0, 1, 2, 3


class Coalesced:
    """A call with many items: `PUMPS` connections send what gathered while the calls before were on their way."""

    def __init__(self, statement: str, *constants: object):
        self._statement, self._constants = statement, constants
        self._waiting: list[tuple[Any, asyncio.Future[Any]]] = []
        self._some = asyncio.Event()

    async def open(self, url: str) -> None:
        self._connections = [await asyncpg.connect(url) for _ in range(PUMPS)]
        self._pumps = [asyncio.create_task(self._pump(each)) for each in self._connections]

    async def close(self) -> None:
        for pump in self._pumps:
            pump.cancel()
        for connection in self._connections:
            await connection.close()

    def __call__(self, item: object) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, answer))
        self._some.set()
        return answer

    async def _pump(self, connection: asyncpg.Connection) -> None:
        call = await connection.prepare(self._statement)
        while True:
            await self._some.wait()
            sent, self._waiting = self._waiting, []
            self._some.clear()
            if sent:
                answers = await call.fetchval([item for item, _ in sent], *self._constants)
                for (_, future), answer in zip(sent, answers, strict=True):
                    future.set_result(answer)


class Prototype:
    """The prototype under the load: see `bench.load.Contender`. The key of a turn is its agent, which has one turn only."""

    def __init__(self, url: str):
        self._url = url
        self._agents = itertools.count()
        self._jobs = Coalesced("select put_jobs($1)")
        self._requests = Coalesced("select put_messages($1, $2, $3)", REQUEST, '{"op": "ask"}')
        self._results = Coalesced("select put_messages($1, $2, $3)", RESULT, '{"r": 1}')

    async def open(self) -> None:
        self._watch = await asyncpg.connect(self._url, server_settings=WATCH)
        for each in (self._jobs, self._requests, self._results):
            await each.open(self._url)

    async def close(self) -> None:
        for each in (self._jobs, self._requests, self._results):
            await each.close()
        await self._watch.close()

    async def start(self, lane: int) -> int:
        return int(await self._jobs('{"op": "noop", "n": 1}'))

    async def start_turn(self, lane: int) -> int:
        agent = next(self._agents)
        if agent >= AGENTS:
            raise RuntimeError(f"the prototype has {AGENTS} agents: measure fewer seconds")
        await self._requests(agent)
        return agent

    async def report(self, lane: int, key: int) -> None:
        await self._results(key)

    async def count_ended(self, keys: Sequence[int]) -> int:
        return int(await self._watch.fetchval("select count(*) from job where id = any($1) and state = 2", keys))

    async def count_suspended(self, keys: Sequence[int]) -> int:
        return await self._count_turns(keys, SUSPENDED)

    async def count_finished(self, keys: Sequence[int]) -> int:
        return await self._count_turns(keys, FINISHED)

    async def _count_turns(self, keys: Sequence[int], state: int) -> int:
        query = "select count(*) from turn where agent_id = any($1) and state = $2"
        return int(await self._watch.fetchval(query, keys, state))


async def measure_prototype(
    work: str, place: Place, callers: int, seconds: float, *, is_single: bool = False
) -> Sample:
    load = (SINGLE if is_single else MANY)[work]
    schema = "\n".join((SQL / name).read_text(encoding="utf-8") for name in SCHEMA)
    async with place.database(sql=schema) as url, _worker(url, work):
        prototype = Prototype(url)
        await prototype.open()
        try:
            await warm_up(prototype, work, callers)
            return await place.measure(lambda: load(prototype, callers, seconds))
        finally:
            await prototype.close()


@asynccontextmanager
async def _worker(url: str, work: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.prototype",
        work,
        cwd=ROOT,
        env={**os.environ, "BENCH_URL": url},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"READY\n":
            raise RuntimeError(f"the worker of the prototype ended with {await process.wait()}")
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _serve(work: str, url: str) -> None:
    bell = asyncio.Event()
    listener = await asyncpg.connect(url)
    await listener.add_listener("work", lambda *_: bell.set())
    serve = {"A": _serve_jobs, "B": _serve_turns}[work]
    connections = [await asyncpg.connect(url) for _ in range(WORKERS)]
    print("READY", flush=True)
    await asyncio.gather(*(serve(number, each, bell) for number, each in enumerate(connections)))


async def _serve_jobs(number: int, connection: asyncpg.Connection, bell: asyncio.Event) -> None:
    cycle = await connection.prepare("select * from cycle_jobs($1, $2, $3)")
    ended: list[int] = []
    while True:
        bell.clear()
        claimed = [row[0] for row in await cycle.fetch(number, ended, BATCH)]
        ended = claimed  # the job does nothing
        if not claimed:
            await _wait_for(bell)


async def _serve_turns(number: int, connection: asyncpg.Connection, bell: asyncio.Event) -> None:
    claim = await connection.prepare("select * from claim_turns($1)")
    end = await connection.prepare("select end_steps($1, $2, $3, $4)")
    while True:
        bell.clear()
        if rows := await claim.fetch(BATCH):
            kinds, agents, turns, epochs = zip(*rows, strict=True)
            await end.fetchval(agents, turns, epochs, [SUSPENDED if kind == REQUEST else FINISHED for kind in kinds])
        else:
            await _wait_for(bell)


async def _wait_for(bell: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(bell.wait(), SWEEP_SECONDS)
    except TimeoutError:
        return  # look again, in case a bell was lost


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], os.environ["BENCH_URL"]))
