"""The ledger as one owned turn sees it. The agent loop and the calls of a turn depend on it, and on no lease."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from heliograph.records import BeginResult, Card, EarlierTurn, WriteResult
from heliograph.world.seam import Transaction


class TurnLedger(Protocol):
    """The kernel calls of one owned turn; `heliograph.execution.ownership.OwnedLedger` makes them under its epoch.

    `item` holds the fields of the kernel function, without those that prove the ownership. Each write raises TurnLost when
    another epoch owns the turn, KernelRejected, and StoreUnavailable.
    """

    async def append(self, item: Mapping[str, Any]) -> WriteResult:
        """Log signals before the turn ends."""
        ...

    async def begin_call(self, item: Mapping[str, Any]) -> BeginResult:
        """Record the intent of a step before its effect."""
        ...

    async def begun(self, item: Mapping[str, Any], answer: BeginResult) -> BeginResult:
        """Return the answer to an intent that a result carried."""
        ...

    async def record_call(self, item: Mapping[str, Any]) -> WriteResult:
        """Record the result of a step."""
        ...

    async def record_call_in(self, transaction: Transaction, item: Mapping[str, Any]) -> WriteResult:
        """Record the result of a step in the transaction of its effect, and commit both."""
        ...

    async def suspend(self, item: Mapping[str, Any]) -> WriteResult:
        """Open calls, and release the turn until they have results."""
        ...

    async def defer(self, item: Mapping[str, Any]) -> WriteResult:
        """Release the turn until a later time."""
        ...

    async def finish(self, item: Mapping[str, Any]) -> WriteResult:
        """End the turn with its deliverable and its reaction."""
        ...

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        """The cards of a box, a page at a time."""
        ...

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        """The ended turns of an agent that were activated before a position of the log, the newest first."""
        ...
