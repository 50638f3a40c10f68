"""Logins with service roles, created like an operator does, to test the rights of services."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from heliograph.ledger.roles import grant
from tests.kernel.kit import convert_json

PASSWORD = "of no use to anybody"
SERVICES = ("worker", "api")

_logins = itertools.count(1)


def name_of(url: str) -> str:
    """The login that a URL from here is for."""
    return urlsplit(url).username or ""


def of(url: str, login: str) -> str:
    """The URL of the same database for another login."""
    parts = urlsplit(url)
    where = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{quote(login)}:{quote(PASSWORD)}@{where}"))


@asynccontextmanager
async def login(url: str, *projects: str, services: tuple[str, ...] = SERVICES) -> AsyncIterator[str]:
    """The URL of a new login with these services, bound to these projects; gone afterwards."""
    name = f"login_{os.getpid()}_{next(_logins)}"
    operator = await asyncpg.connect(url)
    await operator.execute(f"create role {name} login password '{PASSWORD}'")
    try:
        await grant(operator, name, services, projects)
        yield of(url, name)
    finally:
        await operator.execute("select pg_terminate_backend(pid) from pg_stat_activity where usename = $1", name)
        await operator.execute("delete from heliograph.project_grants where role_name = $1", name)
        await operator.execute(f"drop owned by {name}; drop role {name}")
        await operator.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that converts jsonb with `json`."""
    connection = await asyncpg.connect(url)
    await convert_json(connection)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)
