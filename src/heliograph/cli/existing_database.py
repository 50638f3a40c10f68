"""Open the database for commands that do not create one.

Without a URL, the embedded database lies in a folder relative to the current one. A command started in the wrong folder
would otherwise create an empty database, and all runs would seem lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heliograph.cli.errors import NothingYet
from heliograph.config import Settings, read_settings
from heliograph.errors import NotFound
from heliograph.ledger.reader import Reader
from heliograph.open_database import open_database, open_reader

if TYPE_CHECKING:
    from heliograph.client.client import Client
    from heliograph.runtime import Runtime

_DATA = re.compile(r"pg([0-9]+)")  # the data folder of a cluster; other names with this prefix contain a dot


@asynccontextmanager
async def open_existing(wanted: str | None = None, *, reads_only: bool = False) -> AsyncIterator[Reader]:
    """Open a reader if the database exists.

    wanted: the object that the command looks for, like `run first`; None for a list. reads_only: see `open_reader`.
    Raises NotFound (`no_data`), or NothingYet for a list, and the errors of `open_reader`.
    """
    settings = read_settings(os.environ)
    _check_exists(settings, wanted)
    async with open_reader(settings, reads_only=reads_only) as reader:
        yield reader


@asynccontextmanager
async def open_list(run_id: str | None) -> AsyncIterator[Reader]:
    """Open a reader for a list of all runs, or of one. Raises NotFound for an unknown run, and the errors of `open_existing`."""
    async with open_existing(None if run_id is None else f"run {run_id}") as reader:
        if run_id is not None:
            await reader.run(run_id)
        yield reader


@asynccontextmanager
async def open_client(wanted: str | None) -> AsyncIterator[Client]:
    """Open a client if the database exists. wanted: as for `open_existing`.

    Raises NotFound (`no_data`), or NothingYet for a list, and the errors of `open_runtime`.
    """
    from heliograph.client.client import Client  # slow to import; readers do without it

    _check_exists(read_settings(os.environ), wanted)
    async with Client() as client:
        yield client


@asynccontextmanager
async def open_existing_runtime(wanted: str) -> AsyncIterator[Runtime]:
    """Open the runtime, without telemetry, if the database exists. Raises NotFound (`no_data`), and the errors of `open_runtime`."""
    from heliograph.runtime import open_runtime  # slow to import; readers do without it
    from heliograph.telemetry.settings import TelemetrySettings

    settings = read_settings(os.environ)
    _check_exists(settings, wanted)
    async with open_runtime(settings, TelemetrySettings()) as runtime:
        yield runtime


@asynccontextmanager
async def open_connection() -> AsyncIterator[tuple[Any, str]]:
    """Open a connection if the database exists and has this program's schema; yield it with the project.

    Raises NotFound (`no_data`), and what `open_database` and `check` raise.
    """
    from heliograph.ledger.install import check, read_state

    settings = read_settings(os.environ)
    if (lacking := missing_database(settings)) is not None:
        raise NotFound(lacking, code="no_data")
    async with open_database(settings) as database:
        connection = await database.acquire()
        try:
            check(await read_state(connection))
            yield connection, settings.project
        finally:
            await database.release(connection)


def _check_exists(settings: Settings, wanted: str | None) -> None:
    lacking = missing_database(settings)
    if lacking is not None and wanted is None:
        raise NothingYet(lacking, code="no_data")
    if lacking is not None:
        raise NotFound(f"no {wanted}: {lacking}", code="no_data")


def missing_database(settings: Settings) -> str | None:
    """The message that there is no database yet, with the next step; None when there is one, or a URL.

    Raises the errors of `find_binaries`.
    """
    if settings.database_url is not None:
        return None
    from heliograph.embedded.cluster import find_binaries  # late: not needed with a URL

    find_binaries(settings.postgres_version)
    try:
        versions = [int(found[1]) for name in os.listdir(settings.home) if (found := _DATA.fullmatch(name))]
    except FileNotFoundError:
        versions = []
    except OSError:
        return None  # opening the database raises the reason
    if settings.postgres_version in versions:
        return None
    home = Path(os.path.abspath(settings.home))
    if versions:
        return (f"the database in {home} is one of PostgreSQL {versions[0]}, not {settings.postgres_version}; "
                f"set HELIOGRAPH_POSTGRES_VERSION={versions[0]}")  # fmt: skip
    return (f"there is no database in {home} yet; helio run FILE.py:app creates one, "
            "and HELIOGRAPH_HOME selects another folder")  # fmt: skip
