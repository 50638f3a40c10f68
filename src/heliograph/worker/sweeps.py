"""The sweeps: find turns that are stuck, and move or end them. Any number of workers may sweep at once."""

from __future__ import annotations

import logging
from typing import Any

from heliograph.errors import KernelRejected
from heliograph.execution.project_services import ProjectServices
from heliograph.records import SweepResult
from heliograph.worker.pending_reactions import PendingReactions

log = logging.getLogger("heliograph.worker")

# Each sweep finds one way to be stuck. In this order the end of a turn reaches its parent and children in one round.
SWEEPS = ("leases", "expired", "waits", "stops", "reports", "queued")
_CASCADE = ("stops", "reports")
_ROUNDS_MAX = 20  # as deep as delegations go


class Sweeper:
    """Sweeps any number of projects. `recovered`: the turns that it took from dead workers."""

    def __init__(self, reactions: PendingReactions) -> None:
        self.recovered: list[str] = []
        self._reactions = reactions
        self._after: dict[str, str] = {}  # by project: where sweep_stuck continues
        self._logged: set[tuple[str, ...]] = set()

    async def sweep(self, services: ProjectServices) -> None:
        """Run every sweep of one project once, then commit its pending reactions. Raises StoreUnavailable."""
        for name in SWEEPS:
            await self._run(services, name)
        stuck = await self._run(services, "stuck", self._after.get(services.project, ""))
        if stuck is not None:
            self._after[services.project] = stuck.after or ""
        # before the cascade, which always finds something to move where much is delegated
        await self._reactions.react(services)
        await self.cascade(services)

    async def cascade(self, services: ProjectServices) -> bool:
        """Pass stops down to children and ends up to parents, one level a round; return whether anything moved.

        Then commits the reactions that this caused, because the kernel rings no bell for turns that it ends itself.
        """
        has_moved = False
        for _ in range(_ROUNDS_MAX):
            results = [await self._run(services, name) for name in _CASCADE]
            if not any(result is not None and result.has_moved for result in results):
                break
            has_moved = True
        if has_moved:
            await self._reactions.react(services)
        return has_moved

    async def _run(self, services: ProjectServices, name: str, *more: str) -> SweepResult | None:
        """Run one sweep; return None if the kernel rejects it, because that must not end the others."""
        try:
            result = await services.ledger.sweep(name, *more)
        except KernelRejected as error:
            self._log_once(
                (services.project, name), "sweep of %s in project %s: %s", name, services.project, error.message
            )
            return None
        for turn_id in result.recovered:
            log.info("recovered %s: the lease of its worker ran out", turn_id)
            self.recovered.append(turn_id)
        for failure in result.failed:
            ended = ", which is ended as failed" if failure.ended else ""
            self._log_once((services.project, name, failure.turn_id, failure.code, ended),
                            "sweep of %s failed on %s%s: %s", name, failure.turn_id, ended, failure.message)  # fmt: skip
        return result

    def _log_once(self, key: tuple[str, ...], message: str, *args: Any) -> None:
        """Log an error that every round meets again, once."""
        if key not in self._logged:
            self._logged.add(key)
            log.error(message, *args)
