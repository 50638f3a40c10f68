"""The worker: listen, drain, wait; keep the leases of what runs; give back what it cannot finish.

Crash-only: nothing here is needed for correctness when a worker dies. Its leases
run out, a sweep finds them, and another worker goes on (L0-111).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.errors import HeliographError, KernelRejected, StoreUnavailable
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.ownership import TurnAbandoned, TurnLost, owner_fields
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.runner import Drive
from heliograph.records import Claimed
from heliograph.worker.fair_share import fair_shares
from heliograph.worker.sweeps import Watchdog
from heliograph.world.seam import BellKey

log = logging.getLogger("heliograph.worker")

POLL_SECONDS = 5.0  # the bound on a lost bell
_AGAIN_SECONDS = 0.05  # after a bell: SKIP LOCKED may have passed over what somebody was only looking at
_CLAIM_AGAIN_SECONDS = 0.5  # after a claim that failed
_CLAIM_MAX = 64  # turns at a time: while the next ones are claimed, these are at work, and the store is not idle
_LAST_LEASE_SECONDS = 0.1  # of what is left to its lease on purpose
_END_LEASE_AGAIN_SECONDS = 1.0
STUBBORN_SECONDS = 5.0  # that work may take to end when it is cancelled, before its slot is given to others


class Worker:
    """Runs up to `concurrency` turns of the kits' applications at a time.

    kits: one for each project that it serves; their slots are shared out evenly among those that have work.
    name: unique among all workers of the database; it is written into every lease.
    agent_loop: runs the agents that have a prompt.
    lease_seconds: how long a turn stays this worker's without a sign of life; renewed three times as often.
    """

    def __init__(
        self,
        projects: Sequence[ProjectServices],
        name: str,
        agent_loop: AgentLoop,
        *,
        concurrency: int = 16,
        lease_seconds: float = 30.0,
    ):
        self.projects = list(projects)
        self._agent_loop = agent_loop
        self.name = name
        self.concurrency = concurrency
        self.lease_seconds = lease_seconds
        self.watchdog = Watchdog(self.projects)
        self.is_stopping = False
        self._world = self.projects[0].world
        self._running: dict[tuple[str, str], Drive] = {}  # by project and turn
        self._claim_rounds = 0
        self._claiming = asyncio.Lock()  # held while this worker does so
        self._renewing = {services.project: asyncio.Lock() for services in self.projects}  # and this, for a project
        self._claim_max = {services.project: _CLAIM_MAX for services in self.projects}
        self._has_released = False

    async def run(self) -> None:
        """Until `stop`; then until the turns in hand are done. Cancel it to leave them to the leases."""
        world = self._world
        work = [
            key
            for services in self.projects
            for key in services.bell_keys(*(f"work:{target}" for target in services.targets))
        ]
        subscription = world.subscribe([*work, self._slot])
        tasks = [*(world.spawn(f"{self.name} heartbeat", self._heartbeat(services)) for services in self.projects),
                 world.spawn(f"{self.name} watchdog", self.watchdog.run())]  # fmt: skip
        try:
            is_rung, was_full = True, False
            while not self.is_stopping or self._running:
                subscription.clear()
                is_full = self._free_slots == 0
                # rings that came while there was no room led to no look: they must not delay the ones that follow
                if await self._drain() or (was_full and not is_full):
                    subscription.found()
                was_full = is_full
                is_rung = await subscription.wait(_AGAIN_SECONDS if is_rung and self._free_slots > 0 else POLL_SECONDS)
        finally:
            subscription.close()
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the turns in hand are done."""
        self.is_stopping = True
        self._world.ring([self._slot])

    async def release_turns(self) -> None:
        """Stop the turns in hand where they are and give them back: another worker goes on with them.

        What may not run twice is left to its lease, which ends at once: it counts as lost, and ends in doubt (K14).
        What the store does not take back is left to its lease, too; the turns of other projects are not.
        To be called after `stop`. What is under way with leases is waited for, and is the last: a claim would take the
        turns again, and a renewal would keep what is left to its lease.
        """
        async with self._claiming:
            self._has_released = True
        drives = list(self._running.values())
        for drive in drives:
            _cancel(drive)
        given = [(services, [drive for drive in drives if drive.services is services]) for services in self.projects]
        await asyncio.gather(*(self._release(services, held) for services, held in given if held))

    async def _release(self, services: ProjectServices, drives: Sequence[Drive]) -> None:
        kept = [drive for drive in drives if not drive.may_be_released]
        try:
            async with self._renewing[services.project]:
                if released := [drive for drive in drives if drive.may_be_released]:
                    await services.ledger.release([owner_fields(drive.claimed) for drive in released])
                if kept:
                    await services.ledger.renew([_lease(drive) for drive in kept], _LAST_LEASE_SECONDS)
        except HeliographError as error:
            log.warning("turns of project %s are left to their leases: %s", services.project, error.message)

    @property
    def _slot(self) -> BellKey:
        return BellKey("", f"slot:{self.name}")  # this worker's own, of no project

    @property
    def _free_slots(self) -> int:
        return self.concurrency - len(self._running)

    async def _drain(self) -> bool:
        """Claim until there is no work or no room; return whether there was any work."""
        while True:
            try:
                return await self._claim_round()
            except StoreUnavailable as error:  # asked again here: no bell tells that it can be asked
                log.warning("cannot claim: %s", error.message)
                await self._world.sleep(_CLAIM_AGAIN_SECONDS)

    async def _claim_round(self) -> bool:
        """Offer the free slots to each project, fairly; what one of them leaves is offered to the others."""
        self._claim_rounds += 1
        has_found = False
        first = self._claim_rounds % len(self.projects)
        claiming = self.projects[first:] + self.projects[:first]
        while claiming and self._free_slots > 0:
            offers = fair_shares(
                self._free_slots,
                [sum(drive.services is services for drive in self._running.values()) for services in claiming],
            )
            for services, offer in zip(list(claiming), offers, strict=True):
                if offer == 0:
                    continue
                async with self._claiming:
                    if self.is_stopping:
                        return has_found
                    claimed, has_more = await self._claim(services, min(offer, self._claim_max[services.project]))
                    for turn in claimed:
                        self._start(turn, services)
                has_found = has_found or bool(claimed)
                if not has_more:
                    claiming.remove(services)
        return has_found

    async def _claim(self, services: ProjectServices, most: int) -> tuple[list[Claimed], bool]:
        """Claim up to `most` turns of one project; whether there may be more.

        The kernel rejects a claim whose answer is too large. Then the worker claims single turns, and twice as many after
        each success. A turn that cannot be claimed alone is ended as failed, and the other turns go on.
        """
        try:
            claimed = await services.ledger.claim(services.claims, self.name, most, self.lease_seconds)
        except KernelRejected as error:
            log.error("cannot claim %d turns in project %s: %s", most, services.project, error.message)
            self._claim_max[services.project] = 1
            return [], most > 1 or await self._fail_unclaimable(services)
        self._claim_max[services.project] = min(_CLAIM_MAX, 2 * self._claim_max[services.project])
        return claimed, len(claimed) == most

    async def _fail_unclaimable(self, services: ProjectServices) -> bool:
        """End the next turn if no worker can claim it; whether it was ended."""
        try:
            failed = await services.ledger.fail_unclaimable(services.claims)
        except KernelRejected as error:
            log.error("cannot end the turn that cannot be claimed in project %s: %s", services.project, error.message)
            return False
        if failed is not None:
            log.error("%s is ended as failed: %s", failed["turn_id"], failed["message"])
        return failed is not None

    def _start(self, claimed: Claimed, services: ProjectServices) -> None:
        if log.isEnabledFor(logging.INFO):
            log.info("claimed %s: agent %s of run %s, epoch %d%s", claimed.turn_id, claimed.agent, claimed.run_id,
                     claimed.epoch, _history(claimed))  # fmt: skip
        drive = Drive(claimed, services, self._agent_loop)
        self._running[services.project, claimed.turn_id] = drive
        drive.task = self._world.spawn(f"{self.name} {claimed.turn_id}", self._work(drive))

    async def _work(self, drive: Drive) -> None:
        turn_id, is_abandoned = drive.claimed.turn_id, False
        try:
            await drive.run()
        except TurnLost as lost:
            log.info("%s", lost)
            is_abandoned = isinstance(lost, TurnAbandoned)
        except HeliographError as error:
            # refused by the store or out of reach: the lease ends, attempts are counted, and in the end the
            # kernel itself delivers the failure (K23)
            log.error("%s is given up here: %s", turn_id, error.message)
            is_abandoned = error.code != UNDECODABLE or not await self._fail(drive, error.message)
        except RecursionError as error:  # a value that is nested deeper than the runtime can follow
            log.exception("%s is given up here", turn_id, exc_info=error)
            is_abandoned = not await self._fail(drive, "a value of this turn is nested too deep for the runtime")
        finally:
            if self._holds(drive):
                was_full = (
                    self._free_slots == 0
                )  # else there was nothing more to claim, and a bell tells of what is new
                del self._running[drive.services.project, turn_id]
                if was_full or self.is_stopping:
                    self._world.ring([self._slot])
                if is_abandoned:
                    self._world.spawn(f"{self.name} leaves {turn_id}", self._end_lease(drive))

    async def _fail(self, drive: Drive, message: str) -> bool:
        """End a turn that no worker can run as failed; return whether that succeeded. Otherwise its lease runs out."""
        claimed = drive.claimed
        try:
            await drive.services.ledger.fail_turn(msgspec.structs.asdict(claimed), UNDECODABLE, message)
        except HeliographError as error:
            log.warning("%s is left to its lease: %s", claimed.turn_id, error.message)
            return False
        return True

    async def _end_lease(self, drive: Drive) -> None:
        """Have the lease of a turn that is given up end as soon as the store can be asked: nobody is at work on it here."""
        until = self._world.monotonic() + self.lease_seconds  # by then it has ended by itself
        async with self._renewing[drive.services.project]:
            pass  # a renewal that was under way knew the turn still, and would keep it
        while self._world.monotonic() < until:
            try:
                await drive.services.ledger.renew([_lease(drive)], _LAST_LEASE_SECONDS)
            except StoreUnavailable:
                await self._world.sleep(_END_LEASE_AGAIN_SECONDS)
            except HeliographError as error:
                log.warning("%s is left to its lease: %s", drive.claimed.turn_id, error.message)
                return
            else:
                return

    def _holds(self, drive: Drive) -> bool:
        return self._running.get((drive.services.project, drive.claimed.turn_id)) is drive

    async def _heartbeat(self, services: ProjectServices) -> None:
        """Renew the leases of what runs, now and then, and at once when somebody rings to stop a turn.

        Each project's by themselves: one in which somebody holds a lock must not cost the others their leases.
        """
        subscription = self._world.subscribe(services.bell_keys(f"stop:{self.name}"))
        try:
            while True:
                subscription.clear()
                async with self._renewing[services.project]:
                    if self._has_released:
                        return
                    drives = [drive for drive in self._running.values() if drive.services is services]
                    if drives and await self._renew(services, drives):
                        subscription.found()
                await subscription.wait(self.lease_seconds / 3)
        finally:
            subscription.close()

    async def _renew(self, services: ProjectServices, drives: list[Drive]) -> bool:
        """Keep these leases; stop what is to be stopped, and what is no longer ours (K7). Return whether a turn is to stop
        of which this worker did not know it yet."""
        try:
            answers = await services.ledger.renew([_lease(drive) for drive in drives], self.lease_seconds)
        except HeliographError as error:
            log.warning("cannot renew: %s", error.message)
            return False
        has_news = False
        for drive, result in zip(drives, answers, strict=True):
            if not self._holds(drive):
                continue
            if result.outcome == "stale":
                has_news = has_news or drive.lost_at is None
                self._abandon(drive)
            elif result.stop is not None:
                has_news = has_news or drive.owned.cancel_flag.reason is None
                log.info("%s is to stop: %s", drive.claimed.turn_id, result.stop.reason)
                drive.stop(result.stop.reason or "stopped")
        return has_news

    def _abandon(self, drive: Drive) -> None:
        """End the work of a turn that is no longer ours. Work that lets its cancellation pass must not hold a slot."""
        turn_id, now = drive.claimed.turn_id, self._world.monotonic()
        if drive.lost_at is None:
            log.info("%s was taken from this worker; stopping it here", turn_id)
            drive.lost_at = now
        drive.abandon()
        if now - drive.lost_at >= STUBBORN_SECONDS:
            log.error("turn %s is over, and what agent %s does for it does not end: where it was cancelled, let it or its tools pass "
                      "asyncio.CancelledError on", turn_id, drive.claimed.agent)  # fmt: skip
            del self._running[drive.services.project, turn_id]
            self._world.ring([self._slot])


def _cancel(drive: Drive) -> None:
    if drive.task is not None:
        drive.task.cancel()


def _lease(drive: Drive) -> dict[str, object]:
    return {**owner_fields(drive.claimed), "phase": drive.phase}


def _history(claimed: Claimed) -> str:
    """What is worth knowing of a turn that is not at its beginning."""
    resolved = sum(wait.state == "resolved" for wait in claimed.waits)
    parts = [f"{len(claimed.waits)} calls, {resolved} answered"] if claimed.waits else []
    parts += [f"put off {claimed.defers} times"] if claimed.defers else []
    parts += [f"recovered {claimed.attempts} times"] if claimed.attempts else []
    return f" ({'; '.join(parts)})" if parts else ""
