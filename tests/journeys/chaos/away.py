"""Exceptions of asyncpg while the server, or the network path to it, is unavailable; callers retry after them."""

from __future__ import annotations

import asyncpg

# a connection that was cut during a request raises InternalClientError; a TimeoutError is an OSError
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
