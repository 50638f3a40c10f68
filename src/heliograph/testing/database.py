"""Databases for tests: one embedded server for all test processes, a fresh database from a template for each test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from heliograph.embedded.server import open_embedded
from heliograph.ledger.install import install, whole_sql

# Tests need no durability.
_SETTINGS: Mapping[str, str] = {
    "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200",
    "max_wal_size": "2GB", "checkpoint_timeout": "30min",
}  # fmt: skip
_TEMPLATE_LOCK = 0x74656D70


@cache
def _template() -> str:
    """The template's name: it contains a hash of the schema, because a server may outlive its tests."""
    return f"heliograph_template_{sha256(whole_sql().encode()).hexdigest()[:12]}"


class TestServer:
    """A server whose databases live as long as a test does.

    home, version: an embedded server under that folder. url: an existing server instead, with a login that may create
    databases.
    """

    __test__ = False  # its name begins as pytest's own do

    def __init__(self, home: Path, version: int = 18, url: str | None = None):
        self.version = version
        self._embedded = None if url else open_embedded(home, version=version, settings=_SETTINGS)
        self._admin_url = url or (self._embedded.url if self._embedded else "")
        self._made = 0

    def url(self, database: str) -> str:
        return urlunsplit(urlsplit(self._admin_url)._replace(path=f"/{database}"))

    async def create(self) -> str:
        """The URL of a new database with the schema installed."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        connection = await asyncpg.connect(self._admin_url)
        try:
            await self._make_template(connection)
            await connection.execute(f'create database "{name}" template {_template()} strategy file_copy')
        finally:
            await connection.close()
        return self.url(name)

    async def drop(self, url: str) -> None:
        """Remove a database that `create` made, and close its connections."""
        name = urlsplit(url).path.lstrip("/")
        connection = await asyncpg.connect(self._admin_url)
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
            if await connection.fetchval("select true from pg_database where datname = $1", _template()):
                return
            await connection.execute(f"create database {_template()}")
            inside = await asyncpg.connect(self.url(_template()))
            try:
                await install(inside)
            finally:
                await inside.close()
        finally:
            await connection.execute(f"select pg_advisory_unlock({_TEMPLATE_LOCK})")
