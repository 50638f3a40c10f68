"""The callbacks of a project that wait to be sent, and the record of their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.ledger.repeated_call import call_repeated
from heliograph.ledger.result_limits import fitting
from heliograph.ledger.undecodable import read_callbacks
from heliograph.outbox_records import Callback
from heliograph.world.seam import World


class CallbackQueue:
    """The functions of the kernel for callbacks (81_callbacks.sql), of one project."""

    def __init__(self, world: World, project: str):
        self._world = world
        self._project = project

    async def take(self, limit: int, hidden_seconds: float) -> list[Callback]:
        """Take callbacks that are due, and hide them from other workers for `hidden_seconds`."""
        rows = await fitting(
            lambda most: self._world.call("take_callbacks", self._project, most, hidden_seconds), limit
        )
        return read_callbacks(rows)

    async def record(self, items: Sequence[dict[str, Any]]) -> None:
        """Record the attempts of callbacks."""
        await call_repeated(self._world, "record_callbacks", self._project, list(items))

    async def redeliver(self, callback_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Schedule callbacks again, delivered or dead ones included."""
        rows: list[dict[str, Any]] = await call_repeated(
            self._world, "redeliver_callbacks", self._project, list(callback_ids)
        )
        return rows

    async def sweep(self, older_seconds: float, limit: int = 100) -> list[str]:
        """End callbacks that no worker has tried to send for `older_seconds`; return their ids."""
        row: dict[str, Any] = await self._world.call("sweep_callbacks", self._project, limit, older_seconds)
        return list(row["abandoned"])
