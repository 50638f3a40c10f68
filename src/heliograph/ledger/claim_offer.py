"""The claims that a worker offers to the endings of its turns, which carry them in one commit (decision 0126)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from heliograph.records import Claimed


class ClaimOffer(NamedTuple):
    """The arguments of a claim, see `Ledger.claim`. limit: the number of turns if all turns of the call end."""

    targets: Sequence[dict[str, Any]]
    worker: str
    limit: int
    lease_seconds: float


class NextClaims(Protocol):
    """The claims that the endings of a worker's turns carry (decision 0126)."""

    def offer(self, items: Sequence[dict[str, Any]]) -> AbstractAsyncContextManager[ClaimOffer | None]:
        """Yield the claim that these endings carry, or None. No other claim of the worker begins before the end."""
        ...

    def start(self, claimed: Sequence[Claimed], limit: int) -> None:
        """Start the claimed turns. limit: that of their claim."""
        ...
