"""The kernel as the simulator calls it: a synchronous protocol, and PostgreSQL behind it.

Each call runs whole between two scheduling points, so the simulator decides the
order, and one call runs at a time. A thread with its own event loop drives
PostgreSQL through asyncpg. The time is an argument, so no answer depends on when
or where it is computed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from heliograph.ledger.install import install
from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.pool import Database, explain
from heliograph.testing.kernel.jsonb import decode
from heliograph.testing.kernel.row_guard import guard_rows
from heliograph.testing.kernel.tables import Row, microseconds
from heliograph.testing.kernel.transition_guard import guard_transitions

T = TypeVar("T")

TABLES = {  # each with its primary key, which orders the rows of a dump
    "runs": "run_id", "agent_state_head": "agent_id", "agent_turns": "agent_turn_id",
    "agent_inbox": "agent_turn_id, inbox_id", "cards": "card_id",
    "blobs": "blob_id", "boxes": "box_id", "leases": "agent_id, turn_epoch",
    "turn_waiting_tools": "agent_turn_id, tool_call_id", "outbox": "key", "signals": "run_id, seq",
    "project_limits": "project_id", "project_wires": "wire", "pruned": "id", "budgets": "turn_id, kind", "callbacks": "callback_id",
    "circuit_breakers": "type, target", "circuit_calls": "type, target, generation, position",
    "rate_buckets": "kind, name",
}  # fmt: skip


class Backend(Protocol):
    """A kernel with synchronous calls: `InMemoryKernel` or `PostgresBackend`."""

    @property
    def name(self) -> str: ...

    def reset(self) -> None:
        """Delete everything; identities start from 1."""
        ...

    def call(self, function: str, args: tuple[Any, ...], now: datetime | None = None) -> Any:
        """Call one function of `heliograph.ledger.kernel`. Raises KernelRejected."""
        ...

    def heads(self, project: str) -> list[Row]:
        """The rows of agent_state_head by agent id, with at least the columns that the oracles read."""
        ...

    def dump(self, project: str) -> dict[str, list[Row]]:
        """The rows of each table by primary key, without project_id; times in microseconds.

        PostgreSQL returns those of TABLES, the in-memory kernel those that it has.
        """
        ...

    def rows(self, project: str, table: str) -> Iterable[Row]:
        """The rows of one table, for readers that change nothing."""
        ...

    def newest_signals(self, project: str, run_id: str) -> Iterator[Row]:
        """The rows of the log of a run, without those that it shares, the newest first."""
        ...

    def doctor(self, project: str, is_quiescent: bool) -> list[Row]:
        """Return the doctor's findings as {check, subject}; `is_quiescent` adds the checks that hold only when all work is done."""
        ...

    def close(self) -> None: ...


def have_same_rows(in_memory: Backend, postgres: Backend, project: str) -> bool:
    """Compare the tables that the in-memory kernel has."""
    rows = postgres.dump(project)
    return all(kept == rows[table] for table, kept in in_memory.dump(project).items())


class PostgresBackend:
    """A real kernel. `reset` EMPTIES the database, so nothing else may use it.

    The database rejects rows that the kernel does not write. is_guarded: it also rejects head transitions that the kernel does not
    define; mutants run without this guard.
    """

    name = "postgres"

    def __init__(self, url: str, *, is_guarded: bool = True):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="simulator database", daemon=True)
        self._thread.start()
        self._database: Database = self._wait(Database.open(url, size=1))
        self._connection = self._wait(self._database.acquire())
        self._wait(self._install(is_guarded))

    def reset(self) -> None:
        tables = ", ".join(f"heliograph.{table}" for table in (*TABLES, "memories", "run_checkpoints"))
        self._wait(self._connection.execute(f"truncate {tables} restart identity"))

    def call(self, function: str, args: tuple[Any, ...], now: datetime | None = None) -> Any:
        definition = KERNEL[function]
        values = definition.values(args, msgspec.json.encode)
        statement = definition.statement(f"${len(values) + 1}::timestamptz")
        if definition.takes_now:
            values.append(now)
        try:
            rows = self._wait(self._connection.fetch(statement, *values))
        except Exception as error:
            raise explain(error, f"heliograph.{function}") from error
        return definition.read(rows, decode)

    def heads(self, project: str) -> list[Row]:
        rows = self.fetch(
            "select agent_id, status, active_agent_turn_id, turn_epoch, priority, ready_at, due_at, target, pool"
            " from heliograph.agent_state_head where project_id = $1 order by agent_id", project,
        )  # fmt: skip
        return [_timed(dict(row)) for row in rows]

    def dump(self, project: str) -> dict[str, list[Row]]:
        return {table: self.rows(project, table) for table in TABLES}

    def rows(self, project: str, table: str) -> list[Row]:
        query = f"select * from heliograph.{table} where project_id = $1 order by {TABLES[table]}"  # noqa: S608  own names
        return [_timed(dict(row)) for row in self.fetch(query, project)]

    def newest_signals(self, project: str, run_id: str) -> Iterator[Row]:
        return reversed([row for row in self.rows(project, "signals") if row["run_id"] == run_id])

    def doctor(self, project: str, is_quiescent: bool) -> list[Row]:
        found: list[Row] = self.call("doctor", (project, is_quiescent))
        return found

    def close(self) -> None:
        self._wait(self._database.release(self._connection))
        self._wait(self._database.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def fetch(self, query: str, *args: object) -> list[Any]:
        return list(self._wait(self._connection.fetch(query, *args)))

    def run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Await `work` with the connection, which it may use until it returns."""
        return self._wait(work(self._connection))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _install(self, is_guarded: bool) -> None:
        await install(self._connection)
        await self._connection.execute("set jit = off; set timezone = 'UTC'")
        await guard_rows(self._connection)
        if is_guarded:
            await guard_transitions(self._connection)


def _timed(row: Row) -> Row:
    """A row as the in-memory kernel keeps it: times in microseconds, JSON decoded, no project_id."""
    row.pop("project_id", None)
    for column, value in row.items():
        if isinstance(value, datetime):
            row[column] = microseconds(value)
        elif isinstance(value, timedelta):
            row[column] = value // timedelta(microseconds=1)
        elif isinstance(value, bytes):
            row[column] = value.hex() if column == "token_hash" else decode(value)
    return row
