"""Proof that a worker owns a turn, in each of the turn's kernel calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from heliograph.ledger.client import Ledger
from heliograph.records import BeginResult, Card, Claimed, EarlierTurn, WriteResult
from heliograph.turn.interruptions import TurnLost
from heliograph.world.seam import Transaction

T = TypeVar("T", BeginResult, WriteResult)


def owner_fields(claimed: Claimed) -> dict[str, Any]:
    """The fields by which a kernel function checks the owner."""
    return {"agent_id": claimed.agent_id, "turn_id": claimed.turn_id, "epoch": claimed.epoch}


class OwnedLedger:
    """The kernel calls of one owned turn: see `heliograph.execution.turn_ledger.TurnLedger`."""

    def __init__(self, ledger: Ledger, claimed: Claimed):
        self._ledger = ledger
        self._owner = owner_fields(claimed)

    async def append(self, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.append({**self._owner, **item}))

    async def begin_call(self, item: Mapping[str, Any]) -> BeginResult:
        return self._checked(await self._ledger.begin_call({**self._owner, **item}))

    async def begun(self, item: Mapping[str, Any], answer: BeginResult) -> BeginResult:
        return answer

    async def record_call(self, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.record_call({**self._owner, **item}))

    async def record_call_in(self, transaction: Transaction, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.record_call_in(transaction, {**self._owner, **item}))

    async def suspend(self, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.suspend({**self._owner, **item}))

    async def defer(self, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.defer({**self._owner, **item}))

    async def finish(self, item: Mapping[str, Any]) -> WriteResult:
        return self._checked(await self._ledger.finish({**self._owner, **item}))

    def pages_of_box(self, box_id: str) -> AsyncIterator[list[Card]]:
        return self._ledger.pages_of_box(box_id)

    async def earlier_turns(self, run_id: str, agent: str, before: int, limit: int) -> list[EarlierTurn]:
        return await self._ledger.earlier_turns(run_id, agent, before, limit)

    def _checked(self, result: T) -> T:
        """Return `result`. Raises TurnLost if its outcome is `stale`."""
        if result.outcome == "stale":
            raise TurnLost(
                f"{self._owner['turn_id']} is no longer this worker's; another worker owns it or it has ended"
            )
        return result
