"""Delete runs that ended long ago, and end callbacks that no worker can sign. Both run once a minute."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from heliograph.errors import KernelRejected, SetupError
from heliograph.execution.project_services import ProjectServices
from heliograph.policy.callbacks import AWAY_SECONDS, ONLOOKER_SECONDS, UNTRIED_SECONDS_MAX

log = logging.getLogger("heliograph.worker")

INTERVAL_SECONDS = 60.0
_PRUNE_BATCHES = 2  # a round is short, because the sweeps wait for it
_PRUNE_ROWS = 500  # of each kind in one transaction


class Retention:
    """Prunes and ends callbacks for any number of projects. Several workers may do so at once."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], float] = {}  # by project and task: when it is due
        self._up_since: dict[str, tuple[datetime, datetime]] = {}  # by project: start of the uptime, last observation
        self._not_pruned: set[str] = set()  # projects whose failure is logged

    async def run(self, services: ProjectServices) -> None:
        """Run the tasks of one project that are due. Raises StoreUnavailable."""
        await self._end_callbacks(services)
        await self._prune(services)

    async def _prune(self, services: ProjectServices) -> None:
        """Where the settings require it, delete some of the runs that ended long ago."""
        if services.prune_after_seconds is None or not self._is_due(services, "prune"):
            return
        before = services.world.now() - timedelta(seconds=services.prune_after_seconds)
        for _ in range(_PRUNE_BATCHES):
            try:
                answer = await services.ledger.prune(before, _PRUNE_ROWS)
            except (KernelRejected, SetupError) as error:  # a login without operator rights
                if services.project not in self._not_pruned:
                    self._not_pruned.add(services.project)
                    log.error("project %s is not pruned: %s", services.project, error.message)
                return
            if not answer["more"]:
                return

    async def _end_callbacks(self, services: ProjectServices) -> None:
        """End callbacks that no worker sent within the time of all attempts; their runs could never be pruned."""
        if services.callbacks is not None:  # this worker can sign, so it sends them
            return
        if not self._is_up_long_enough(services) or not self._is_due(services, "callbacks"):
            return
        for callback_id in await services.ledger.callbacks.sweep(UNTRIED_SECONDS_MAX):
            log.warning(
                "callback %s is a dead letter: no worker had HELIOGRAPH_WEBHOOK_SECRETS to sign it", callback_id
            )

    def _is_up_long_enough(self, services: ProjectServices) -> bool:
        """Whether this worker and the database were up together for so long that a worker that can sign had its chance.

        Uses the wall clock, which goes on while a machine sleeps.
        """
        now = services.world.now()
        since, last = self._up_since.get(services.project, (now, now))
        if not 0 <= (now - last).total_seconds() < AWAY_SECONDS:
            since = now
        self._up_since[services.project] = since, now
        return (now - since).total_seconds() >= ONLOOKER_SECONDS

    def _is_due(self, services: ProjectServices, task: str) -> bool:
        """Whether `task` is due; if so, it is due again after the interval."""
        now = services.world.monotonic()
        if now < self._next.get((services.project, task), 0.0):
            return False
        self._next[services.project, task] = now + INTERVAL_SECONDS
        return True
