"""Keep the leases of the turns that a worker runs, and return turns that it cannot finish.

A lease is the right to run a turn. It ends when nobody renews it; a sweep then gives the turn to another worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.execution.ownership import owner_fields
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.runner import TurnRunner
from heliograph.records import WriteResult

log = logging.getLogger("heliograph.worker")

STUBBORN_SECONDS = 5.0  # in which cancelled work has to end before its slot goes to another turn
_LAST_LEASE_SECONDS = 0.1  # how long a lease still lasts that the worker ends
_END_LEASE_AGAIN_SECONDS = 1.0

RunningTurns = dict[tuple[str, str], TurnRunner]  # by project and turn


class Leases:
    """The leases of one project's turns on one worker.

    running: the worker's turns, of all projects. drop: removes a turn from them and offers its slot again.
    """

    def __init__(
        self,
        services: ProjectServices,
        running: RunningTurns,
        drop: Callable[[TurnRunner], None],
        worker: str,
        lease_seconds: float,
    ):
        self.services = services
        self._running = running
        self._drop = drop
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._renewing = asyncio.Lock()  # held during a renewal
        self._is_closed = False

    def runners(self) -> list[TurnRunner]:
        """The running turns of the project."""
        return [runner for runner in self._running.values() if runner.services.project == self.services.project]

    async def keep(self) -> None:
        """Renew all leases three times per lease, and at once when a bell announces a stop. Runs until cancelled.

        Each project renews its own: a locked row in one project must not cost the others their leases.
        """
        subscription = self.services.world.subscribe(self.services.bell_keys(f"stop:{self._worker}"))
        try:
            while True:
                subscription.clear()
                async with self._renewing:
                    if self._is_closed:
                        return
                    runners = self.runners()
                    if runners and await self._renew(runners):
                        subscription.found()
                await subscription.wait(self._lease_seconds / 3)
        finally:
            subscription.close()

    def close(self) -> None:
        """Stop renewing leases: a renewal would extend a lease that `release` ends."""
        self._is_closed = True

    async def release(self, runners: Sequence[TurnRunner]) -> None:
        """Return these turns to the kernel; call it after `close`, with their work cancelled.

        The lease of a turn that may not run twice ends instead: the turn counts as lost and its call is in doubt.
        If the store rejects the release, the leases run out.
        """
        returned = [runner for runner in runners if runner.may_be_released]
        ended = [runner for runner in runners if not runner.may_be_released]
        try:
            async with self._renewing:
                if returned:
                    await self.services.ledger.release([owner_fields(runner.claimed) for runner in returned])
                if ended:
                    await self.services.ledger.renew([_lease(runner) for runner in ended], _LAST_LEASE_SECONDS)
        except HeliographError as error:
            log.warning("turns of project %s are left to their leases: %s", self.services.project, error.message)

    async def end(self, runner: TurnRunner) -> None:
        """End the lease of an abandoned turn, so that another worker claims it soon. Waits for a store that is away."""
        world = self.services.world
        until = world.monotonic() + self._lease_seconds  # by then the lease has run out
        async with self._renewing:
            pass  # a renewal that has started still includes the turn, and would extend the lease again
        while world.monotonic() < until:
            try:
                await self.services.ledger.renew([_lease(runner)], _LAST_LEASE_SECONDS)
            except StoreUnavailable:
                await world.sleep(_END_LEASE_AGAIN_SECONDS)
            except HeliographError as error:
                log.warning("%s is left to its lease: %s", runner.claimed.turn_id, error.message)
                return
            else:
                return

    def _is_running(self, runner: TurnRunner) -> bool:
        return self._running.get((self.services.project, runner.claimed.turn_id)) is runner

    async def _renew(self, runners: Sequence[TurnRunner]) -> bool:
        """Renew these leases; stop turns that have a stop order or another owner (K7). Return whether any was new."""
        try:
            answers = await self.services.ledger.renew([_lease(runner) for runner in runners], self._lease_seconds)
        except HeliographError as error:
            log.warning("cannot renew: %s", error.message)
            return False
        is_new = [self._apply(runner, result) for runner, result in zip(runners, answers, strict=True)]
        return any(is_new)

    def _apply(self, runner: TurnRunner, result: WriteResult) -> bool:
        """Apply the answer for one turn; return whether it contains a stop or a loss that was not known before."""
        if not self._is_running(runner):
            return False
        if result.outcome == "stale":
            is_new = runner.lost_at is None
            self._abandon(runner)
            return is_new
        if result.stop is None:
            return False
        is_new = runner.owned.cancel_flag.reason is None
        reason = result.stop.reason or "stopped"
        log.info("stopping %s: %s", runner.claimed.turn_id, reason)
        runner.stop(reason)
        return is_new

    def _abandon(self, runner: TurnRunner) -> None:
        """Cancel the work of a turn that another worker owns. Work that swallows its cancellation loses its slot."""
        turn_id, now = runner.claimed.turn_id, self.services.world.monotonic()
        if runner.lost_at is None:
            log.info("%s was taken from this worker; stopping it here", turn_id)
            runner.lost_at = now
        runner.abandon()
        if now - runner.lost_at >= STUBBORN_SECONDS:
            log.error("turn %s is over, but the work of agent %s does not end: PostgreSQL is away, or the agent or one of its "
                      "tools swallows asyncio.CancelledError; let it propagate", turn_id, runner.claimed.agent)  # fmt: skip
            self._drop(runner)


def _lease(runner: TurnRunner) -> dict[str, object]:
    return {**owner_fields(runner.claimed), "phase": runner.phase}
