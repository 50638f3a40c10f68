"""Measure a piece of work: its time, and what the server and its processes did for it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import asyncpg

from bench.meter.processes import measuring
from bench.meter.sample import Done, Sample
from bench.meter.wal import Log, Position

# until this connection closes
_KEEP_LOG = "select pg_create_physical_replication_slot($1, true, true)"
# the empty message flushes the log, so that pg_waldump finds all of it in the files
_COUNTERS = """
select pg_logical_emit_message(true, '', '') as flushed, pg_snapshot_xmax(pg_current_snapshot())::text::bigint as xid,
       (select sum(fsyncs)::bigint from pg_stat_io where object = 'wal' and context = 'normal') as fsyncs"""
_POSITION = "select lsn::text, pg_walfile_name(lsn + 1) as file from pg_current_wal_flush_lsn() lsn"
_RELATIONS = """
select (select oid from pg_database where datname = current_database()) as database, pg_relation_filenode(oid) as file, relname as name
  from pg_class where relnamespace = 'heliograph'::regnamespace and relkind in ('r', 'i')"""


@dataclass(frozen=True, slots=True)
class Meter:
    """url: a database of the server, for a superuser. bin: the folder of the server's programs."""

    url: str
    bin: Path

    async def measure(
        self, work: Callable[[], Awaitable[Done]], *, caller: int | None = None, relations_of: str | None = None
    ) -> Sample:
        """Run `work` and return its result with the counts. caller: the process that asks for the work, if it is not this one.
        relations_of: the database whose relations the log is divided into.

        The server's processes publish their number of fsyncs once a second, so fsyncs are exact only in a longer measurement.
        """
        connection = await asyncpg.connect(self.url, server_settings={"synchronous_commit": "on"})  # see _COUNTERS
        try:
            log = Log(self.bin, Path(await connection.fetchval("show data_directory")))
            backend = await connection.fetchval("select pg_backend_pid()")
            await connection.fetchval(_KEEP_LOG, f"bench_{backend}")
            before, start = await _count(connection)
            with measuring(backend, caller or os.getpid()) as spent:
                began = perf_counter()
                done = await work()
                seconds = perf_counter() - began
            after, end = await _count(connection)
            wal = await log.size(start, end)
            relations = await log.by_relation(start, end, await _names(relations_of)) if relations_of else {}
        finally:
            await connection.close()
        return Sample(
            done, seconds, after["xid"] - before["xid"] - 1, after["fsyncs"] - before["fsyncs"],
            wal.bytes, wal.full_page_bytes, spent.by_role, spent.others / seconds, relations,
        )  # fmt: skip


async def _count(connection: asyncpg.Connection) -> tuple[asyncpg.Record, Position]:
    """Return the counters, and the position of the log."""
    counters = await connection.fetchrow(_COUNTERS)
    assert counters is not None
    position = await connection.fetchrow(_POSITION)
    assert position is not None
    return counters, Position(position["lsn"], position["file"])


async def _names(url: str) -> dict[tuple[int, int], str]:
    connection = await asyncpg.connect(url)
    try:
        return {(row["database"], row["file"]): row["name"] for row in await connection.fetch(_RELATIONS)}
    finally:
        await connection.close()
