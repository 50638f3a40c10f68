"""Measure a worker and its database. Checks and measurements have a connection each, so that neither delays the other, or a turn."""

from __future__ import annotations

import logging
import time
from typing import Any

from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.ledger.decoding import decode
from heliograph.ledger.install import check, read_state
from heliograph.ledger.pool import Database, explain
from heliograph.status.probe import Probe
from heliograph.status.shared import Shared
from heliograph.telemetry.metrics import VALUES_MAX, Family, Registry
from heliograph.telemetry.metrics_database import STATEMENT, Measured, record_database
from heliograph.telemetry.metrics_names import CLAIMING, LEASES, SLOTS, SLOTS_USED, UPTIME
from heliograph.worker.claim_loop import Worker
from heliograph.worker.outage_log import OutageLog

log = logging.getLogger("heliograph.status")

CHECK_SECONDS = 2.0  # how long a check of the database counts
MEASURE_SECONDS = 5.0  # how long a measurement of the database counts


class Measurements:
    """The measurements of one worker. database_url: of connections of their own, which open when they are needed first."""

    def __init__(self, worker: Worker, registry: Registry, database_url: str, project: str):
        self.worker = worker
        self._registry = registry
        self._projects = [services.project for services in worker.projects][:VALUES_MAX]
        self._started = time.monotonic()
        self._outages = OutageLog()
        self._checks, self._measures = Probe(database_url, project), Probe(database_url, project)
        self._problem = Shared(self._check, CHECK_SECONDS)
        self._measurement = Shared(self._measure_database, MEASURE_SECONDS)

    async def collect(self) -> list[Family]:
        """Return all metrics as they are now; those of the database may be a few seconds old."""
        await self._measurement.get()
        return self.collect_worker()

    def collect_worker(self) -> list[Family]:
        """Return the metrics of the worker as they are now, and the last ones of the database."""
        worker, registry = self.worker, self._registry
        leases = worker.leases
        registry.replace(SLOTS, [((), worker.concurrency)])
        registry.replace(SLOTS_USED, [((), sum(leases.values()))])
        registry.replace(LEASES, [((project,), count) for project, count in leases.items()])
        registry.replace(CLAIMING, [((), float(worker.is_claiming))])
        registry.replace(UPTIME, [((), round(time.monotonic() - self._started, 3))])
        return registry.collect()

    async def database_problem(self) -> str:
        """Return the problem of the database, or an empty text. It names no address, because its readers need no key."""
        return await self._problem.get()

    async def close(self) -> None:
        for shared in (self._problem, self._measurement):
            await shared.close()
        for probe in (self._checks, self._measures):
            await probe.close()

    async def _measure_database(self) -> None:
        record_database(self._registry, await self._measure())

    async def _measure(self) -> Measured | None:
        try:
            rows = await self._measures.ask(self._read)
        except HeliographError as error:
            self._warn("cannot measure the database", error)
            return None
        self._outages.end("cannot measure the database")
        return {row[0]: decode(row[1]) for row in rows}

    async def _check(self) -> str:
        try:
            await self._checks.ask(_check_schema)
        except StoreUnavailable as error:
            self._warn("not ready", error)
            return "the database is not reachable"
        except HeliographError as error:
            self._warn("not ready", error)
            return f"the database rejects this worker ({error.code})"
        self._outages.end("not ready")
        return ""

    async def _read(self, database: Database) -> list[Any]:
        return list(await database.fetch(STATEMENT, self._projects))

    def _warn(self, problem: str, error: HeliographError) -> None:
        if self._outages.is_due(problem, time.monotonic()):
            log.warning("%s: %s", problem, error.message)


async def _check_schema(database: Database) -> None:
    try:
        connection = await database.acquire()
        try:
            check(await read_state(connection))
        finally:
            await database.release(connection)
    except Exception as error:
        raise explain(error, "the schema check") from error
