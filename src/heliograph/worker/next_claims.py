"""The claims that endings carry: a commit that ends turns also claims the turns that take their slots (decision 0126)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.claim_offer import ClaimOffer
from heliograph.records import Claimed
from heliograph.worker.leases import RunningTurns


class NextClaims:
    """Implements `heliograph.ledger.claim_offer.NextClaims` for one project of a worker.

    claiming: held during a claim of the worker. offer_of: the claim of the project when this many of its turns have ended, or None.
    has_pending: whether turns wait for a slot. start: starts turns; its last argument is the limit of their claim. Another worker of this process may use the same ledger.
    """

    def __init__(
        self,
        services: ProjectServices,
        running: RunningTurns,
        claiming: asyncio.Lock,
        offer_of: Callable[[ProjectServices, int], ClaimOffer | None],
        has_pending: Callable[[], bool],
        start: Callable[[Sequence[Claimed], ProjectServices, int], None],
    ):
        self._services = services
        self._running = running
        self._claiming = claiming
        self._offer_of = offer_of
        self._has_pending = has_pending
        self._start = start

    @asynccontextmanager
    async def offer(self, items: Sequence[Mapping[str, Any]]) -> AsyncIterator[ClaimOffer | None]:
        """See `heliograph.ledger.claim_offer.NextClaims`. Endings carry a claim if they wake turns of this worker, or if turns wait for a slot.

        Otherwise nothing is known to be pending, and a bell announces new work.
        """
        if self._claiming.locked() or not (self._has_pending() or any(map(self._wakes, items))):
            yield None
            return
        async with self._claiming:
            project = self._services.project
            yield self._offer_of(self._services, sum((project, item["turn_id"]) in self._running for item in items))

    def start(self, claimed: Sequence[Claimed], limit: int) -> None:
        """See `heliograph.ledger.claim_offer.NextClaims`."""
        self._start(claimed, self._services, limit)

    def _wakes(self, item: Mapping[str, Any]) -> bool:
        return any(
            (woken.get("pool") or DEFAULT_POOL) in self._services.pools for woken in item["reaction"]["activations"]
        )
