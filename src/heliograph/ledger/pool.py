"""Connect to PostgreSQL: one pool of connections, JSON in and out, driver errors converted to Heliograph errors."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec

from heliograph.config import CLOSE_SECONDS
from heliograph.errors import HeliographError, InvalidInput, KernelRejected, NotFound, SetupError, StoreUnavailable
from heliograph.ledger.kept_connections import KeptConnections
from heliograph.ledger.kernel import KERNEL, statement_of
from heliograph.ledger.sqlstates import REJECTIONS
from heliograph.redaction import is_clean, keep_url_out, redacted

_JSONB_VERSION = b"\x01"
SESSION_NAME = "heliograph runtime"  # before migration 0015: "heliograph", which _enter rejects
# SQLSTATEs and their classes after which the same call may succeed (docs/internals/kernel.md)
_RETRYABLE = ("08", "40001", "40P01", "53", "55P03", "57P0", "57014")
_JSON_CODES = ("json_too_deep", "json_too_large", "number_too_large")  # of _check_json in 06_json.sql
_COMMAND_TIMEOUT_SECONDS = 10.0  # calls take milliseconds; detects a lost connection


class _Connection(asyncpg.Connection):  # type: ignore[misc, type-arg, unused-ignore]
    def get_reset_query(self) -> str:
        # saves a round trip: no code on these connections uses SET, LISTEN or session locks
        return ""


class Database:
    """A pool of connections. `call` runs kernel functions, `fetch` runs queries on views."""

    def __init__(
        self, pool: asyncpg.Pool[Any], url: str, settings: dict[str, str] | None = None, *, reads_only: bool = False
    ):
        self._pool = pool
        self._kept = KeptConnections(pool)
        self._runs: Any = _ReadOnly(pool) if reads_only else self._kept
        self.url = url
        self.settings = settings or {}  # session settings of every connection
        self._closing_seconds = 0.0

    @classmethod
    async def open(
        cls, url: str, *, size: int = 8, project: str | None = None, ensure_running: Callable[[], None] | None = None,
        reads_only: bool = False,
    ) -> Database:  # fmt: skip
        """Open a pool of at most `size` connections.

        project: the project that the views show; kernel calls contain theirs. ensure_running: a function that starts the server; it
        is called in a thread if the server does not respond. reads_only: the server rejects every write of these connections.
        Raises StoreUnavailable or SetupError with host and user, never the password; InvalidInput for a malformed URL.
        """
        keep_url_out(url)
        named = {} if project is None else {"heliograph.project": project}
        if reads_only:
            named["default_transaction_read_only"] = "on"
        try:
            try:
                pool = await _connect(url, size, named, ensure_running)
            except asyncpg.ProtocolViolationError:  # a connection pooler that rejects the setting
                named = {}
                pool = await _connect(url, size, named, ensure_running)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError, OverflowError) as error:
            raise explain_connect(error, url) from error
        return cls(pool, url, named, reads_only=reads_only)

    async def call(self, function: str, *args: object) -> Any:
        """Call one kernel function in a transaction of its own. args: see `kernel.KERNEL`. Raises the errors of `explain`."""
        definition = KERNEL[function]
        try:
            rows = await self._runs.fetch(statement_of(function), *definition.values(args, encoded))
        except Exception as error:
            raise explain(error, f"heliograph.{function}") from error
        return definition.read(rows)

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        """Run a query and return its rows. Raises the errors of `explain`."""
        try:
            return list(await self._runs.fetch(query, *args))
        except Exception as error:
            raise explain(error, "a query") from error

    async def acquire(self) -> Any:
        """Take a connection of the driver; return it with `release`."""
        return await self._kept.acquire()

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection)

    def abandon(self) -> None:
        """Close all connections at once, without a word to a server that may not respond."""
        self._pool.terminate()

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Close all connections; terminate those that do not respond within `seconds`, less the time that `closing` has measured."""
        await close_pool(self._pool, max(seconds - self._closing_seconds, 0.0), self._kept)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Measure the close of other connections to this server, so that the whole end takes no longer than one close may."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._closing_seconds += time.monotonic() - began


class _ReadOnly:
    """Runs each statement of a pool in a read-only transaction: a connection pooler may drop the settings of a session."""

    def __init__(self, pool: asyncpg.Pool[Any]):
        self._pool = pool

    async def fetch(self, query: str, *args: object) -> list[asyncpg.Record]:
        async with self._pool.acquire() as connection, connection.transaction(readonly=True):
            return list(await connection.fetch(query, *args))


async def close_pool(pool: asyncpg.Pool[Any], seconds: float, kept: KeptConnections | None = None) -> None:
    """Close the connections of a pool, after the return of those that are kept; terminate those that do not respond within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            if kept is not None:
                await kept.close()  # the pool closes a connection that has run many statements as it returns
            await pool.close()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
        pool.terminate()


def encoded(value: object) -> bytes:
    """Encode JSON for the kernel, with secrets redacted. All arguments of kernel calls pass through this function."""
    data = msgspec.json.encode(value)
    return data if is_clean(data) else msgspec.json.encode(redacted(value))


async def _connect(
    url: str, size: int, settings: dict[str, str], ensure_running: Callable[[], None] | None
) -> asyncpg.Pool[Any]:
    return await asyncpg.create_pool(
        url, min_size=1, max_size=size, connection_class=_Connection, init=_prepare,
        connect=None if ensure_running is None else _restarting(ensure_running),
        command_timeout=_COMMAND_TIMEOUT_SECONDS, server_settings={"application_name": SESSION_NAME, **settings},
    )  # fmt: skip


def _restarting(ensure_running: Callable[[], None]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a connect function for a pool that starts the server if it does not respond."""
    starting = asyncio.Lock()

    async def connect(*args: Any, **options: Any) -> Any:
        try:
            return await asyncpg.connect(*args, **options)
        except (ConnectionError, FileNotFoundError, asyncpg.CannotConnectNowError):
            async with starting:
                try:
                    await asyncio.to_thread(ensure_running)
                except HeliographError as error:
                    raise ConnectionError(error.message) from error
            return await asyncpg.connect(*args, **options)

    return connect


async def _prepare(connection: Any) -> None:
    # jsonb stays bytes, so that callers decode it directly into their types
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", format="binary",
        encoder=lambda value: _JSONB_VERSION + value, decoder=lambda value: bytes(value[1:]),
    )  # fmt: skip


def explain(error: Exception, what: str) -> Exception:
    """Convert a driver's error to a Heliograph error; return any other error unchanged. what: the call, for the message."""
    if isinstance(error, HeliographError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state.startswith(_RETRYABLE):
            return StoreUnavailable(f"{what} failed: {_first_line(error)} ({state}); try again",
                                    code="store_full" if state == "53100" else None)  # fmt: skip
        if state in ("3F000", "42P01", "42883"):
            return SetupError(f"{what} is missing in the database: run helio db install", code="schema_missing")
        if state == "42501" and _first_line(error).startswith("not_found: "):
            return NotFound(
                f"{_first_line(error).removeprefix('not_found: ')} for this login; helio db roles lists its projects"
            )
        if state == "42501":
            return SetupError(f"this login has no right to {what} ({_first_line(error)}); an operator can grant it: "
                              "helio db grant LOGIN --role worker --role api", code="no_right")  # fmt: skip
        if state == "54001":  # PostgreSQL's parser raises it, before the function runs
            return KernelRejected(
                f"{what} rejected the call: its JSON is nested too deeply ({state})", code="json_too_deep"
            )
        code, _, rejected = _first_line(error).partition(": ")
        if state == "22023" and code in _JSON_CODES:
            return KernelRejected(f"{what} rejected the call: {rejected}", code=code)
        code, _ = REJECTIONS.get(state, (KernelRejected.default_code, ""))
        return KernelRejected(f"{what} rejected the call: {_first_line(error)} ({state})", code=code)
    if isinstance(error, asyncpg.DataError):
        code, _ = REJECTIONS["22P02"]
        return KernelRejected(f"{what} was not called: {_first_line(error)} (22P02)", code=code)
    # asyncpg raises InternalClientError for a connection that was lost while idle and is not closed yet
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError | OSError | TimeoutError):
        return StoreUnavailable(
            f"{what} failed: the connection to PostgreSQL is lost ({_first_line(error)}); try again"
        )
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return KernelRejected(f"{what} was not called: its arguments are not valid JSON ({_first_line(error)})")
    return error


def explain_connect(error: Exception, url: str) -> HeliographError:
    """Explain why a connection failed, without the password."""
    if isinstance(error, ValueError | OverflowError):  # the latter for a port above 65535
        return InvalidInput(
            "HELIOGRAPH_DATABASE_URL is malformed; write it as postgresql://user:password@host:5432/database",
            code="invalid_url",
        )
    parts = urlsplit(url)
    where = f"{parts.username or 'the current user'} at {parts.hostname or 'the local socket'}"
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return SetupError(f"authentication failed for {where}; check the user and password of HELIOGRAPH_DATABASE_URL",
                          code="authentication_failed")  # fmt: skip
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return SetupError(f"the database {parts.path.lstrip('/') or '(none)'} does not exist for {where}; create it, or "
                          "name another one in HELIOGRAPH_DATABASE_URL", code="no_database")  # fmt: skip
    if isinstance(error, socket.gaierror):
        return StoreUnavailable(
            f"no connection to PostgreSQL as {where}: {_first_line(error)}; check the host of HELIOGRAPH_DATABASE_URL"
        )
    if isinstance(error, OSError) and parts.hostname:  # not the embedded server, which has no host
        return StoreUnavailable(
            f"no connection to PostgreSQL as {where}: {_first_line(error)}; check that the server runs, and the host and "
            "port of HELIOGRAPH_DATABASE_URL"
        )
    return StoreUnavailable(f"no connection to PostgreSQL as {where}: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
