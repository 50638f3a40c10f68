"""Measure a worker and its database, over a connection of its own, so that no measurement delays a turn."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.ledger.decoding import decode
from heliograph.ledger.install import check, read_state
from heliograph.ledger.pool import Database, explain
from heliograph.telemetry.metrics import VALUES_MAX, Family, Registry
from heliograph.telemetry.metrics_database import STATEMENT, Measured, record_database
from heliograph.telemetry.metrics_names import CLAIMING, LEASES, SLOTS, SLOTS_USED, UPTIME
from heliograph.worker.claim_loop import Worker
from heliograph.worker.outage_log import OutageLog

T = TypeVar("T")

log = logging.getLogger("heliograph.status")

DATABASE_SECONDS = 2.0  # the time of one question to the database
CHECK_SECONDS = 2.0  # how long a check of the database counts
MEASURE_SECONDS = 5.0  # how long a measurement of the database counts


class Measurements:
    """The measurements of one worker. database_url: of a connection of their own, which opens when it is needed first."""

    def __init__(self, worker: Worker, registry: Registry, database_url: str, project: str):
        self.worker = worker
        self._registry = registry
        self._url = database_url
        self._project = project
        self._projects = [services.project for services in worker.projects][:VALUES_MAX]
        self._started = time.monotonic()
        self._outages = OutageLog()
        self._questions: set[asyncio.Task[Any]] = set()
        self._opening = asyncio.Lock()
        self._database: Database | None = None
        self._checking = asyncio.Lock()
        self._checked_until, self._problem = 0.0, ""
        self._measuring = asyncio.Lock()
        self._measured_until = 0.0

    async def collect(self) -> list[Family]:
        """Return all metrics as they are now; those of the database may be a few seconds old."""
        self._measure_worker()
        async with self._measuring:
            if time.monotonic() >= self._measured_until:
                record_database(self._registry, await self._measure_database())
                self._measured_until = time.monotonic() + MEASURE_SECONDS
        return self._registry.collect()

    async def database_problem(self) -> str:
        """Return the problem of the database, or an empty text. It names no address, because its readers need no key."""
        async with self._checking:
            if time.monotonic() >= self._checked_until:
                self._problem = await self._check()
                self._checked_until = time.monotonic() + CHECK_SECONDS
            return self._problem

    async def close(self) -> None:
        if self._database is not None:
            await self._database.close()

    def _measure_worker(self) -> None:
        worker, registry = self.worker, self._registry
        leases = worker.leases
        registry.replace(SLOTS, [((), worker.concurrency)])
        registry.replace(SLOTS_USED, [((), sum(leases.values()))])
        registry.replace(LEASES, [((project,), count) for project, count in leases.items()])
        registry.replace(CLAIMING, [((), float(worker.is_claiming))])
        registry.replace(UPTIME, [((), round(time.monotonic() - self._started, 3))])

    async def _measure_database(self) -> Measured | None:
        try:
            rows = await self._in_time(self._read())
        except HeliographError as error:
            self._warn("cannot measure the database", error)
            return None
        self._outages.end("database")
        return {row[0]: decode(row[1]) for row in rows}

    async def _check(self) -> str:
        try:
            await self._in_time(self._check_schema())
        except StoreUnavailable as error:
            self._warn("not ready", error)
            return "the database is not reachable"
        except HeliographError as error:
            self._warn("not ready", error)
            return f"the database rejects this worker ({error.code})"
        self._outages.end("database")
        return ""

    async def _in_time(self, question: Coroutine[Any, Any, T]) -> T:
        """The answer to a question. Raises StoreUnavailable after some time, and the errors of the question.

        A driver that is cancelled waits for the server. So a question without an answer ends in the background, with its connection.
        """
        asking = asyncio.create_task(question)
        self._questions.add(asking)
        asking.add_done_callback(self._questions.discard)
        try:
            await asyncio.wait({asking}, timeout=DATABASE_SECONDS)
            if asking.done():
                return asking.result()
        finally:
            if not asking.done():
                asking.cancel()
                if self._database is not None:
                    self._database.abandon()
                    self._database = None
        raise StoreUnavailable(f"PostgreSQL did not respond within {DATABASE_SECONDS:g} s")

    async def _read(self) -> list[Any]:
        database = await self._open()
        return list(await database.fetch(STATEMENT, self._projects))

    async def _check_schema(self) -> None:
        database = await self._open()
        try:
            connection = await database.acquire()
            try:
                check(await read_state(connection))
            finally:
                await database.release(connection)
        except Exception as error:
            raise explain(error, "the schema check") from error

    async def _open(self) -> Database:
        async with self._opening:
            if self._database is None:
                self._database = await Database.open(self._url, size=1, project=self._project)
            return self._database

    def _warn(self, problem: str, error: HeliographError) -> None:
        if self._outages.is_due("database", time.monotonic()):
            log.warning("%s: %s", problem, error.message)
