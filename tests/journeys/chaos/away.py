"""What asyncpg raises when the server, or the way to it, is away: for whoever asks again."""

from __future__ import annotations

import asyncpg

# an InternalClientError is what a connection says that was cut in the middle; a TimeoutError is an OSError
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
