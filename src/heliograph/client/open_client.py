"""The part of the client that opens and closes: a runtime, and telemetry with the first message."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from heliograph.config import read_settings
from heliograph.errors import InvalidInput
from heliograph.runtime import Runtime, open_runtime
from heliograph.telemetry.opening import open_telemetry
from heliograph.telemetry.settings import TelemetrySettings, read_telemetry

if TYPE_CHECKING:
    from heliograph.ports import Tracer


class OpenClient:
    """Access to one project of a database; see `Client`."""

    def __init__(
        self, url: str | None = None, project: str | None = None, *, telemetry: TelemetrySettings | None = None
    ):
        self._url = url
        self._project = project
        self._telemetry = telemetry
        self._tracer: Tracer | None = None
        self._has_own_runtime = True
        self._runtime: Runtime | None = None
        self._stack = AsyncExitStack()

    @classmethod
    def on(cls, runtime: Runtime) -> Self:
        """Return a client of an open runtime. It does not close the runtime."""
        client = cls()
        client._runtime = runtime
        client._has_own_runtime = False
        return client

    async def __aenter__(self) -> Self:
        """Open the database. Raises InvalidInput, SetupError, StoreUnavailable or Rejected, as `open_runtime` does."""
        if self._runtime is None:
            settings = read_settings(os.environ)
            settings = replace(settings, database_url=self._url or settings.database_url,
                               project=self._project or settings.project)  # fmt: skip
            self._runtime = await self._stack.enter_async_context(open_runtime(settings, TelemetrySettings()))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _sender_trace(self) -> Tracer:
        """The tracer of the runtime, or one that this client opens with its first message, because most clients send none.

        Raises InvalidInput and SetupError for the settings of telemetry.
        """
        if not self._has_own_runtime:
            return self._open.tracer
        if self._tracer is None:
            settings = self._telemetry or read_telemetry(os.environ)
            self._tracer = await self._stack.enter_async_context(open_telemetry(settings, self._open.world.now))
        return self._tracer

    @property
    def _open(self) -> Runtime:
        if self._runtime is None:
            raise InvalidInput("the client is not open: write async with Client() as client", code="not_open")
        return self._runtime

    @property
    def _name(self) -> str:
        return self._open.settings.project
