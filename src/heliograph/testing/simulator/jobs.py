"""Run many seeds on all processors, and create the databases that they need."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from heliograph.testing.database import TestServer
from heliograph.testing.kernel.backend import Backend, PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.mutants.catalog import Mutant
from heliograph.testing.mutants.install import installed
from heliograph.testing.simulator.simulate import Case, simulate

_ALONE_MAX = 40  # seeds that are over before other processes would have started


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of one seed. `line` replays a failure; it is None for a success."""

    seed: int
    line: str | None
    detail: str
    counters: Counter[str]
    calls: int
    turns: int
    virtual_seconds: float


def run_seeds(seeds: range, backend: str, jobs: int, like: Case) -> Iterator[Summary]:
    """Simulate cases `like` this one with all seeds in `jobs` processes; yield the summaries in the order of the seeds."""
    jobs = 1 if len(seeds) <= _ALONE_MAX else jobs
    if jobs == 1:
        with open_backend(backend) as opened:
            yield from (_summarize(seed, opened, like) for seed in seeds)
        return
    context = get_context("spawn")
    with ExitStack() as stack:
        urls = context.Queue()
        for url in stack.enter_context(databases(jobs)) if backend == "postgres" else [""] * jobs:
            urls.put(url)
        pool = stack.enter_context(ProcessPoolExecutor(jobs, context, _open_in_process, (urls,)))
        yield from pool.map(_summarize_in_process, seeds, repeat(like), chunksize=5)


@contextmanager
def open_backend(name: str, mutant: Mutant | None = None) -> Iterator[Backend]:
    """`memory` is the in-memory kernel; `postgres` starts a server that is removed afterwards."""
    if name == "memory":
        yield mutant.in_memory() if mutant else InMemoryKernel()
        return
    with databases(1) as [url]:
        backend = PostgresBackend(url, is_guarded=mutant is None)
        try:
            with installed(mutant, backend) if mutant else nullcontext():
                yield backend
        finally:
            backend.close()


@contextmanager
def open_mutants(name: str) -> Iterator[Callable[[Mutant], AbstractContextManager[Backend]]]:
    """Open backends with one mutant each, one after another. On PostgreSQL they share one database."""
    if name == "memory":
        yield lambda mutant: nullcontext(mutant.in_memory())
        return
    with databases(1) as [url]:
        backend = PostgresBackend(url, is_guarded=False)
        try:
            yield lambda mutant: installed(mutant, backend)
        finally:
            backend.close()


@contextmanager
def databases(count: int) -> Iterator[list[str]]:
    """The URLs of new databases, on an embedded server in a temporary folder or on the server of HELIOGRAPH_TEST_DATABASE_URL."""
    with TemporaryDirectory(prefix="heliograph-sim-", ignore_cleanup_errors=True) as folder:
        server = TestServer(Path(folder), url=os.environ.get("HELIOGRAPH_TEST_DATABASE_URL"))
        urls: list[str] = []
        try:
            urls += [asyncio.run(server.create()) for _ in range(count)]
            yield urls
        finally:
            for url in urls:
                asyncio.run(server.drop(url))
            server.close()


def _summarize(seed: int, backend: Backend, like: Case) -> Summary:
    result = simulate(replace(like, seed=seed, maintenance=isinstance(backend, PostgresBackend)), backend)
    failed = bool(result.violations)
    return Summary(seed, result.line() if failed else None, result.violations[0].detail if failed else "",
                   result.counters, result.calls, result.turns, result.virtual_seconds)  # fmt: skip


_backend: Backend | None = None  # of this process


def _open_in_process(urls: Any) -> None:
    global _backend  # noqa: PLW0603  an initializer cannot return the backend that it opens
    url = urls.get()
    _backend = PostgresBackend(url) if url else InMemoryKernel()


def _summarize_in_process(seed: int, like: Case) -> Summary:
    assert _backend is not None
    return _summarize(seed, _backend, like)
