"""The claims that a worker offers to calls of its process, which carry them in one commit (decisions 0126 and 0189)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from heliograph.records import Claimed


class ClaimOffer(NamedTuple):
    """The arguments of a claim, see `Ledger.claim`. limit: the number of turns, if all turns end that the call is to end."""

    targets: Sequence[dict[str, Any]]
    worker: str
    limit: int
    lease_seconds: float


class NextClaims(Protocol):
    """The claims that calls for a worker's process carry (decisions 0126 and 0189)."""

    def offer(self, function: str, items: Sequence[dict[str, Any]]) -> AbstractAsyncContextManager[ClaimOffer | None]:
        """Yield the claim that a call of a function of WITH_CLAIM carries, or None. No other claim of the worker begins before the end."""
        ...

    def start(self, claimed: Sequence[Claimed], limit: int) -> None:
        """Start the claimed turns. limit: that of their claim."""
        ...
