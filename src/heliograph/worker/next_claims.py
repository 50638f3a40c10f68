"""The claims that calls of a worker's process carry: a commit also claims the turns that it wakes, or that take the slots of ended ones (decisions 0126 and 0189)."""

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

_CLAIM_MAX = 1000  # turns in one claim, by the rule of the kernel


class NextClaims:
    """Implements `heliograph.ledger.claim_offer.NextClaims` for one project of a worker.

    claiming: held during a claim of the worker. offer_of: the claim of the project when this many of its turns have ended, or None.
    has_pending: whether turns wait for a slot. start: starts turns; its last argument is the limit of their claim. end: called when no claim is under way
    any more. Another worker of this process may use the same ledger.
    """

    def __init__(
        self,
        services: ProjectServices,
        running: RunningTurns,
        claiming: asyncio.Lock,
        offer_of: Callable[[ProjectServices, int], ClaimOffer | None],
        has_pending: Callable[[], bool],
        start: Callable[[Sequence[Claimed], ProjectServices, int], None],
        end: Callable[[], None],
    ):
        self._services = services
        self._running = running
        self._claiming = claiming
        self._offer_of = offer_of
        self._has_pending = has_pending
        self._start = start
        self._end = end

    @asynccontextmanager
    async def offer(self, function: str, items: Sequence[Mapping[str, Any]]) -> AsyncIterator[ClaimOffer | None]:
        """See `heliograph.ledger.claim_offer.NextClaims`.

        Yields None during another claim of the worker, without a free slot, and if the call wakes no turn for it. A bell announces
        other work.
        """
        most = 0 if self._claiming.locked() else self._turns_after(function, items)
        if most == 0:
            yield None
            return
        async with self._claiming:
            project = self._services.project
            ending = sum((project, item["turn_id"]) in self._running for item in items) if function == "finish" else 0
            offer = self._offer_of(self._services, ending)
            yield None if offer is None else offer._replace(limit=min(offer.limit, most))
        self._end()

    def start(self, claimed: Sequence[Claimed], limit: int) -> None:
        """See `heliograph.ledger.claim_offer.NextClaims`."""
        self._start(claimed, self._services, limit)

    def _turns_after(self, function: str, items: Sequence[Mapping[str, Any]]) -> int:
        """At most how many turns this worker finds after a call; 0 if it probably finds none."""
        if function == "report":
            return len(items)  # each may resume a turn
        if function == "start_runs":
            return sum(map(self._woken, filter(self._runs, items)))
        return _CLAIM_MAX if self._has_pending() or any(map(self._woken, items)) else 0

    def _runs(self, item: Mapping[str, Any]) -> bool:
        """Whether this worker runs the turns of a run that starts."""
        return item["target"] in self._services.workflows and self._services.run_id in (None, item["run_id"])

    def _woken(self, item: Mapping[str, Any]) -> int:
        """How many turns in the worker's pools an item wakes."""
        return sum(
            (woken.get("pool") or DEFAULT_POOL) in self._services.pools for woken in item["reaction"]["activations"]
        )
