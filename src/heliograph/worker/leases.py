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
from heliograph.execution.runner import Drive
from heliograph.records import WriteResult

log = logging.getLogger("heliograph.worker")

STUBBORN_SECONDS = 5.0  # in which cancelled work has to end before its slot goes to another turn
_LAST_LEASE_SECONDS = 0.1  # how long a lease still lasts that the worker ends
_END_LEASE_AGAIN_SECONDS = 1.0

RunningTurns = dict[tuple[str, str], Drive]  # by project and turn


class Leases:
    """The leases of one project's turns on one worker.

    running: the worker's turns, of all projects. drop: removes a turn from them and offers its slot again.
    """

    def __init__(
        self,
        services: ProjectServices,
        running: RunningTurns,
        drop: Callable[[Drive], None],
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

    def drives(self) -> list[Drive]:
        """The running turns of the project."""
        return [drive for drive in self._running.values() if drive.services is self.services]

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
                    drives = self.drives()
                    if drives and await self._renew(drives):
                        subscription.found()
                await subscription.wait(self._lease_seconds / 3)
        finally:
            subscription.close()

    def close(self) -> None:
        """Renew no more: a renewal would extend a lease that `release` ends."""
        self._is_closed = True

    async def release(self, drives: Sequence[Drive]) -> None:
        """Return these turns to the kernel; call it after `close`, with their work cancelled.

        The lease of a turn that may not run twice ends instead: the turn counts as lost and its call is in doubt (K14).
        If the store rejects the release, the leases run out.
        """
        returned = [drive for drive in drives if drive.may_be_released]
        ended = [drive for drive in drives if not drive.may_be_released]
        try:
            async with self._renewing:
                if returned:
                    await self.services.ledger.release([owner_fields(drive.claimed) for drive in returned])
                if ended:
                    await self.services.ledger.renew([_lease(drive) for drive in ended], _LAST_LEASE_SECONDS)
        except HeliographError as error:
            log.warning("turns of project %s are left to their leases: %s", self.services.project, error.message)

    async def end(self, drive: Drive) -> None:
        """End the lease of an abandoned turn, so that another worker claims it soon. Waits for a store that is away."""
        world = self.services.world
        until = world.monotonic() + self._lease_seconds  # by then the lease has run out
        async with self._renewing:
            pass  # a renewal that has started still includes the turn, and would extend the lease again
        while world.monotonic() < until:
            try:
                await self.services.ledger.renew([_lease(drive)], _LAST_LEASE_SECONDS)
            except StoreUnavailable:
                await world.sleep(_END_LEASE_AGAIN_SECONDS)
            except HeliographError as error:
                log.warning("%s is left to its lease: %s", drive.claimed.turn_id, error.message)
                return
            else:
                return

    def _is_running(self, drive: Drive) -> bool:
        return self._running.get((self.services.project, drive.claimed.turn_id)) is drive

    async def _renew(self, drives: Sequence[Drive]) -> bool:
        """Renew these leases; stop turns that have a stop order or another owner (K7). Return whether any was new."""
        try:
            answers = await self.services.ledger.renew([_lease(drive) for drive in drives], self._lease_seconds)
        except HeliographError as error:
            log.warning("cannot renew: %s", error.message)
            return False
        is_new = [self._apply(drive, result) for drive, result in zip(drives, answers, strict=True)]
        return any(is_new)

    def _apply(self, drive: Drive, result: WriteResult) -> bool:
        """Apply the answer for one turn; return whether it contains a stop or a loss that was not known before."""
        if not self._is_running(drive):
            return False
        if result.outcome == "stale":
            is_new = drive.lost_at is None
            self._abandon(drive)
            return is_new
        if result.stop is None:
            return False
        is_new = drive.owned.cancel_flag.reason is None
        reason = result.stop.reason or "stopped"
        log.info("stopping %s: %s", drive.claimed.turn_id, reason)
        drive.stop(reason)
        return is_new

    def _abandon(self, drive: Drive) -> None:
        """Cancel the work of a turn that another worker owns. Work that swallows its cancellation loses its slot."""
        turn_id, now = drive.claimed.turn_id, self.services.world.monotonic()
        if drive.lost_at is None:
            log.info("%s was taken from this worker; stopping it here", turn_id)
            drive.lost_at = now
        drive.abandon()
        if now - drive.lost_at >= STUBBORN_SECONDS:
            log.error("turn %s is over, but the work of agent %s does not end: the agent or one of its tools swallows "
                      "asyncio.CancelledError; let it propagate", turn_id, drive.claimed.agent)  # fmt: skip
            self._drop(drive)


def _lease(drive: Drive) -> dict[str, object]:
    return {**owner_fields(drive.claimed), "phase": drive.phase}
