"""The database for commands that look, report or stop: they never make one.

Without a URL the embedded database lies under a folder that is named relative to the current one. A new and empty
one, made because somebody looked from the wrong folder, would read as if all runs were lost.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from heliograph.cli.errors import NothingYet
from heliograph.config import Settings, read_settings
from heliograph.errors import NotFound
from heliograph.ledger.reader import Reader
from heliograph.runtime import open_reader

if TYPE_CHECKING:
    from heliograph.client.client import Client

_DATA = re.compile(r"pg([0-9]+)")  # the data folder of a cluster, and what else begins so has a dot in it


@asynccontextmanager
async def open_existing(wanted: str | None = None) -> AsyncIterator[Reader]:
    """What `open_reader` opens, if it exists.

    wanted: what the command was asked for, such as `run first`; None when it lists what there is.
    Raises NothingYet, or NotFound (`no_data`) where something is wanted; and what `open_reader` raises.
    """
    settings = read_settings(os.environ)
    lacking = missing_database(settings)
    if lacking is not None and wanted is None:
        raise NothingYet(lacking, code="no_data")
    if lacking is not None:
        raise NotFound(f"no {wanted}: {lacking}", code="no_data")
    async with open_reader(settings) as reader:
        yield reader


@asynccontextmanager
async def open_client(wanted: str) -> AsyncIterator[Client]:
    """A client of the database, if that exists. Raises NotFound (`no_data`), and what `open_runtime` raises."""
    from heliograph.client.client import Client  # slow: what only reads does without

    lacking = missing_database(read_settings(os.environ))
    if lacking is not None:
        raise NotFound(f"no {wanted}: {lacking}", code="no_data")
    async with Client() as client:
        yield client


def missing_database(settings: Settings) -> str | None:
    """Where there is no database yet, in words and with what to do; None when there is one, or a URL for it.

    Raises what `find_binaries` raises: without the wheel there can be none.
    """
    if settings.database_url is not None:
        return None
    from heliograph.embedded.cluster import find_binaries  # nobody with a URL needs it

    find_binaries(settings.postgres_version)
    try:
        versions = [int(found[1]) for name in os.listdir(settings.home) if (found := _DATA.fullmatch(name))]
    except FileNotFoundError:
        versions = []
    except OSError:
        return None  # opening it tells what is wrong with the folder
    if settings.postgres_version in versions:
        return None
    home = Path(os.path.abspath(settings.home))
    if versions:
        return (f"the database in {home} is one of PostgreSQL {versions[0]}, not {settings.postgres_version}; "
                f"set HELIOGRAPH_POSTGRES_VERSION={versions[0]}")  # fmt: skip
    return (f"there is no database in {home} yet; helio run FILE.py:app makes one, "
            "and HELIOGRAPH_HOME names another folder")  # fmt: skip
