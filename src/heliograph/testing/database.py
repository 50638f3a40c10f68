"""Databases for tests: one embedded server for all test processes, and fresh databases from a template."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from heliograph.embedded.cluster import NoDatabase
from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install, whole_sql

# Tests need no durability. A test that measures the log keeps it with a slot, which a log without replicas has not.
_SETTINGS: Mapping[str, str] = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200",
    "max_wal_size": "2GB", "checkpoint_timeout": "30min", "wal_level": "replica", "max_wal_senders": "10",
}  # fmt: skip
_TEMPLATE_LOCK = 0x74656D70
# Not our tables: an empty one that was never vacuumed has the plans of a table that will be filled.
_CATALOGS = """
    select string_agg(c.oid::regclass::text, ', ' order by c.oid) from pg_class c
     where c.relkind = 'r' and c.relnamespace = 'pg_catalog'::regnamespace and not c.relisshared
"""


@contextmanager
def open_test_server(shared: Path, version: int = 18) -> Iterator[TestServer]:
    """Open the server at HELIOGRAPH_TEST_DATABASE_URL, or else the embedded one. shared: a folder of all processes of a test run.

    Raises NoDatabase if neither is there.
    """
    try:
        server = TestServer(shared / "heliograph-home", version, os.environ.get("HELIOGRAPH_TEST_DATABASE_URL"))
    except NoDatabase:
        raise NoDatabase("the tests have no PostgreSQL: install an embedded one with pip install 'heliograph[test]', or set "
                         "HELIOGRAPH_TEST_DATABASE_URL to the URL of a server whose login may create databases") from None  # fmt: skip
    try:
        yield server
    finally:
        server.close()


@cache
def template_name() -> str:
    """The name of the template of all test databases: it contains a hash of the schema, because a server may outlive its tests."""
    return f"heliograph_template_{sha256(whole_sql().encode()).hexdigest()[:12]}"


class TestServer:
    """A server whose databases live as long as a test does.

    home, version: an embedded server under that folder. url: an existing server instead, with a login that may create
    databases. `admin_url` is the URL of a database of the server that belongs to no test.
    """

    __test__ = False  # its name begins as pytest's own do

    def __init__(self, home: Path, version: int = 18, url: str | None = None):
        self.version = version
        self._embedded = None if url else open_embedded(home, version=version, settings=_SETTINGS)
        self.admin_url = url or (self._embedded.url if self._embedded else "")
        # containers that share a server have processes of the same number
        self._names = (f"test_{os.getpid()}_{secrets.token_hex(4)}_{number}" for number in count(1))
        self._has_template = False

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self.admin_url)._replace(path=f"/{database}"))

    async def prepare(self) -> None:
        """Make the template of the databases, unless there is one."""
        if self._has_template:
            return
        connection = await asyncpg.connect(self.admin_url)
        try:
            await self._make_template(connection)
            self._has_template = True
        finally:
            await connection.close()

    async def create(self) -> str:
        """The URL of a new database with the schema installed."""
        name = next(self._names)
        await self.prepare()
        connection = await asyncpg.connect(self.admin_url)
        try:
            await connection.execute(f'create database "{name}" template {template_name()} strategy file_copy')
        finally:
            await connection.close()
        return self.url(name)

    async def drop(self, url: str) -> None:
        """Remove a database that `create` made, and close its connections."""
        name = urlsplit(url).path.lstrip("/")
        connection = await asyncpg.connect(self.admin_url)
        try:
            await connection.execute(f'drop database if exists "{name}" with (force)')
        finally:
            await connection.close()

    def close(self) -> None:
        if self._embedded is not None:
            self._embedded.close()

    async def _make_template(self, connection: Any) -> None:
        await connection.execute(f"select pg_advisory_lock({_TEMPLATE_LOCK})")  # test processes share the server
        try:
            if await connection.fetchval("select true from pg_database where datname = $1", template_name()):
                return
            unfinished = f"{template_name()}_unfinished"  # of a process that was killed meanwhile, too
            await connection.execute(f"drop database if exists {unfinished} with (force)")
            await connection.execute(f"create database {unfinished}")
            inside = await asyncpg.connect(self.url(unfinished))
            try:
                await install(inside)
                # a copy takes as long as its bytes, and an installation leaves dead rows in the catalogs
                await inside.execute(f"vacuum full {await inside.fetchval(_CATALOGS)}")
            finally:
                await inside.close()
            await connection.execute(f"alter database {unfinished} rename to {template_name()}")
        finally:
            await connection.execute(f"select pg_advisory_unlock({_TEMPLATE_LOCK})")
