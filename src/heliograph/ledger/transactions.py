"""Transactions for transactional steps and tools: the effect and the record of its result commit together.

They use connections of their own, opened at the first use, because a slow effect must not delay kernel calls. These connections use
the driver's own types, and reset session settings after each use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from heliograph.config import CLOSE_SECONDS
from heliograph.errors import KernelRejected, StoreUnavailable
from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.pool import Database, close_pool, encoded, explain, explain_connect

_SIZE = 8
_XID = "pg_catalog.pg_current_xact_id()::text"
_SECONDS_MAX = 10.0  # for the kernel call, which takes milliseconds
_GONE = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Transactions:
    """Opens the transactions of one process."""

    def __init__(self, database: Database):
        self._database = database
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[OpenTransaction]:
        """Open a transaction, and roll it back at the end unless it was committed. Raises StoreUnavailable, SetupError."""
        pool = await self._opened()
        try:
            connection = await pool.acquire()
        except Exception as error:
            raise explain(error, "a transaction") from error
        try:
            begun = connection.transaction()
            try:
                await begun.start()
                xid = await connection.fetchval(f"select {_XID}")
            except Exception as error:
                raise explain(error, "a transaction") from error
            transaction = OpenTransaction(connection, begun, xid, self._database)
            try:
                yield transaction
            finally:
                await transaction.undo()
        finally:
            with suppress(*_GONE):  # a lost connection has released its locks
                await pool.release(connection)

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close the connections. Those of transactions that a frozen server keeps busy are terminated after `seconds`."""
        if self._pool is not None:
            with self._database.closing():
                await close_pool(self._pool, seconds)

    async def _opened(self) -> asyncpg.Pool[Any]:
        async with self._opening:
            if self._pool is None:
                database = self._database
                try:
                    self._pool = await asyncpg.create_pool(
                        database.url, min_size=0, max_size=_SIZE,
                        server_settings={"application_name": "heliograph transactions", **database.settings},
                    )  # fmt: skip
                except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                    raise explain_connect(error, database.url) from error
            return self._pool


class OpenTransaction:
    """An open transaction, which implements `heliograph.world.seam.Transaction`."""

    def __init__(self, connection: Any, is_begun: Any, xid: str, database: Database):
        self.connection = connection
        self._is_begun = is_begun
        self._xid = xid
        self._database = database
        self._is_open = True

    async def commit(self, function: str, *args: object) -> Any:
        if not self._is_open:
            raise StoreUnavailable(f"heliograph.{function} failed: its transaction has ended")
        definition = KERNEL[function]
        try:
            # the application's function may have ended this transaction and started another one
            if not self.connection.is_in_transaction() or await self.connection.fetchval(f"select {_XID}") != self._xid:
                raise KernelRejected("the function ended the transaction of its connection; remove the commit or rollback, because "
                                     "the runtime commits")  # fmt: skip
            values = definition.values(args, _encoded_text)
            answer = definition.read(await self.connection.fetch(definition.statement(), *values, timeout=_SECONDS_MAX))
            if answer[0]["outcome"] == "ok":
                await self._is_begun.commit()
                self._is_open = False
        except Exception as error:
            explained = explain(error, f"heliograph.{function}")
            if isinstance(explained, StoreUnavailable):
                self._is_open = False
                with suppress(*_GONE):
                    self.connection.terminate()  # the server then releases its locks
            raise explained from error
        finally:
            await self.undo()  # at once, because other calls may wait for its locks
        return answer

    async def was_committed(self) -> bool:
        await self.undo()
        [row] = await self._database.fetch("select pg_catalog.pg_xact_status($1::text::xid8) as status", self._xid)
        return bool(row["status"] == "committed")

    async def undo(self) -> None:
        """Roll back unless the transaction is committed. The server rolls back a lost connection. A second call does nothing."""
        if self._is_open:
            self._is_open = False
            with suppress(*_GONE):
                await self._is_begun.rollback()


def _encoded_text(value: object) -> str:
    return encoded(value).decode()  # these connections use the driver's own type for JSON
