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
from heliograph.errors import HeliographError, KernelRefused, StoreUnavailable
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.ownership import GivenUp, TurnLost, gate_of
from heliograph.execution.project_services import Kit
from heliograph.execution.runner import Drive
from heliograph.records import Claimed
from heliograph.worker.fair_share import shares
from heliograph.worker.sweeps import Watchdog
from heliograph.world.seam import BellKey

log = logging.getLogger("heliograph.worker")

POLL_SECONDS = 5.0  # the bound on a lost bell
_AGAIN_SECONDS = 0.05  # after a bell: SKIP LOCKED may have passed over what somebody was only looking at
_CLAIM_AGAIN_SECONDS = 0.5  # after a claim that failed
_CLAIM_MAX = 64  # turns at a time: while the next ones are claimed, these are at work, and the store is not idle
_LAST_LEASE_SECONDS = 0.1  # of what is left to its lease on purpose
_LEAVE_AGAIN_SECONDS = 1.0
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
        kits: Sequence[Kit],
        name: str,
        agent_loop: AgentLoop,
        *,
        concurrency: int = 16,
        lease_seconds: float = 30.0,
    ):
        self.kits = list(kits)
        self._agent_loop = agent_loop
        self.name = name
        self.concurrency = concurrency
        self.lease_seconds = lease_seconds
        self.watchdog = Watchdog(self.kits)
        self.is_stopping = False
        self._world = self.kits[0].world
        self._running: dict[tuple[str, str], Drive] = {}  # by project and turn
        self._looks = 0
        self._claiming = asyncio.Lock()  # held while this worker does so
        self._renewing = {kit.project: asyncio.Lock() for kit in self.kits}  # and this, for a project
        self._claim_max = {kit.project: _CLAIM_MAX for kit in self.kits}
        self._has_handed_back = False

    async def run(self) -> None:
        """Until `stop`; then until the turns in hand are done. Cancel it to leave them to the leases."""
        world = self._world
        work = [key for kit in self.kits for key in kit.bell_keys(*(f"work:{target}" for target in kit.targets))]
        ear = world.hear([*work, self._slot])
        tasks = [*(world.spawn(f"{self.name} heartbeat", self._heartbeat(kit)) for kit in self.kits),
                 world.spawn(f"{self.name} watchdog", self.watchdog.run())]  # fmt: skip
        try:
            is_rung, was_full = True, False
            while not self.is_stopping or self._running:
                ear.clear()
                is_full = self._room == 0
                # rings that came while there was no room led to no look: they must not delay the ones that follow
                if await self._drain() or (was_full and not is_full):
                    ear.found()
                was_full = is_full
                is_rung = await ear.wait(_AGAIN_SECONDS if is_rung and self._room > 0 else POLL_SECONDS)
        finally:
            ear.close()
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the turns in hand are done."""
        self.is_stopping = True
        self._world.ring([self._slot])

    async def hand_back(self) -> None:
        """Stop the turns in hand where they are and give them back: another worker goes on with them.

        What may not run twice is left to its lease, which ends at once: it counts as lost, and ends in doubt (K14).
        What the store does not take back is left to its lease, too; the turns of other projects are not.
        To be called after `stop`. What is under way with leases is waited for, and is the last: a claim would take the
        turns again, and a renewal would keep what is left to its lease.
        """
        async with self._claiming:
            self._has_handed_back = True
        drives = list(self._running.values())
        for drive in drives:
            _cancel(drive)
        given = [(kit, [drive for drive in drives if drive.kit is kit]) for kit in self.kits]
        await asyncio.gather(*(self._give_back(kit, held) for kit, held in given if held))

    async def _give_back(self, kit: Kit, held: Sequence[Drive]) -> None:
        kept = [drive for drive in held if not drive.may_be_released]
        try:
            async with self._renewing[kit.project]:
                if released := [drive for drive in held if drive.may_be_released]:
                    await kit.ledger.release([gate_of(drive.claimed) for drive in released])
                if kept:
                    await kit.ledger.renew([_lease(drive) for drive in kept], _LAST_LEASE_SECONDS)
        except HeliographError as error:
            log.warning("turns of project %s are left to their leases: %s", kit.project, error.message)

    @property
    def _slot(self) -> BellKey:
        return BellKey("", f"slot:{self.name}")  # this worker's own, of no project

    @property
    def _room(self) -> int:
        return self.concurrency - len(self._running)

    async def _drain(self) -> bool:
        """Claim until there is no work or no room; return whether there was any work."""
        while True:
            try:
                return await self._look()
            except StoreUnavailable as error:  # asked again here: no bell tells that it can be asked
                log.warning("cannot claim: %s", error.message)
                await self._world.sleep(_CLAIM_AGAIN_SECONDS)

    async def _look(self) -> bool:
        """Offer the free slots to each project, fairly; what one of them leaves is offered to the others."""
        self._looks += 1
        has_found = False
        first = self._looks % len(self.kits)
        hungry = self.kits[first:] + self.kits[:first]
        while hungry and self._room > 0:
            offers = shares(self._room, [sum(drive.kit is kit for drive in self._running.values()) for kit in hungry])
            for kit, offer in zip(list(hungry), offers, strict=True):
                if offer == 0:
                    continue
                async with self._claiming:
                    if self.is_stopping:
                        return has_found
                    claimed, has_more = await self._claim(kit, min(offer, self._claim_max[kit.project]))
                    for turn in claimed:
                        self._start(turn, kit)
                has_found = has_found or bool(claimed)
                if not has_more:
                    hungry.remove(kit)
        return has_found

    async def _claim(self, kit: Kit, most: int) -> tuple[list[Claimed], bool]:
        """Claim up to `most` turns of one project; whether there may be more.

        The kernel rejects a claim whose answer is too large. Then the worker claims single turns, and twice as many after
        each success. A turn that cannot be claimed alone is ended as failed, and the other turns go on.
        """
        try:
            claimed = await kit.ledger.claim(kit.claims, self.name, most, self.lease_seconds)
        except KernelRefused as error:
            log.error("cannot claim %d turns in project %s: %s", most, kit.project, error.message)
            self._claim_max[kit.project] = 1
            return [], most > 1 or await self._fail_unclaimable(kit)
        self._claim_max[kit.project] = min(_CLAIM_MAX, 2 * self._claim_max[kit.project])
        return claimed, len(claimed) == most

    async def _fail_unclaimable(self, kit: Kit) -> bool:
        """End the next turn if no worker can claim it; whether it was ended."""
        try:
            failed = await kit.ledger.fail_unclaimable(kit.claims)
        except KernelRefused as error:
            log.error("cannot end the turn that cannot be claimed in project %s: %s", kit.project, error.message)
            return False
        if failed is not None:
            log.error("%s is ended as failed: %s", failed["turn_id"], failed["message"])
        return failed is not None

    def _start(self, claimed: Claimed, kit: Kit) -> None:
        if log.isEnabledFor(logging.INFO):
            log.info("claimed %s: agent %s of run %s, epoch %d%s", claimed.turn_id, claimed.agent, claimed.run_id,
                     claimed.epoch, _history(claimed))  # fmt: skip
        drive = Drive(claimed, kit, self._agent_loop)
        self._running[kit.project, claimed.turn_id] = drive
        drive.task = self._world.spawn(f"{self.name} {claimed.turn_id}", self._work(drive))

    async def _work(self, drive: Drive) -> None:
        turn_id, is_given_up = drive.claimed.turn_id, False
        try:
            await drive.run()
        except TurnLost as lost:
            log.info("%s", lost)
            is_given_up = isinstance(lost, GivenUp)
        except HeliographError as error:
            # refused by the store or out of reach: the lease ends, attempts are counted, and in the end the
            # kernel itself delivers the failure (K23)
            log.error("%s is given up here: %s", turn_id, error.message)
            is_given_up = error.code != UNDECODABLE or not await self._fail(drive, error.message)
        except RecursionError as error:  # a value that is nested deeper than the runtime can follow
            log.exception("%s is given up here", turn_id, exc_info=error)
            is_given_up = not await self._fail(drive, "a value of this turn is nested too deep for the runtime")
        finally:
            if self._holds(drive):
                was_full = self._room == 0  # else there was nothing more to claim, and a bell tells of what is new
                del self._running[drive.kit.project, turn_id]
                if was_full or self.is_stopping:
                    self._world.ring([self._slot])
                if is_given_up:
                    self._world.spawn(f"{self.name} leaves {turn_id}", self._leave(drive))

    async def _fail(self, drive: Drive, message: str) -> bool:
        """End a turn that no worker can run as failed; return whether that succeeded. Otherwise its lease runs out."""
        claimed = drive.claimed
        try:
            await drive.kit.ledger.fail_turn(msgspec.structs.asdict(claimed), UNDECODABLE, message)
        except HeliographError as error:
            log.warning("%s is left to its lease: %s", claimed.turn_id, error.message)
            return False
        return True

    async def _leave(self, drive: Drive) -> None:
        """Have the lease of a turn that is given up end as soon as the store can be asked: nobody is at work on it here."""
        until = self._world.monotonic() + self.lease_seconds  # by then it has ended by itself
        async with self._renewing[drive.kit.project]:
            pass  # a renewal that was under way knew the turn still, and would keep it
        while self._world.monotonic() < until:
            try:
                await drive.kit.ledger.renew([_lease(drive)], _LAST_LEASE_SECONDS)
            except StoreUnavailable:
                await self._world.sleep(_LEAVE_AGAIN_SECONDS)
            except HeliographError as error:
                log.warning("%s is left to its lease: %s", drive.claimed.turn_id, error.message)
                return
            else:
                return

    def _holds(self, drive: Drive) -> bool:
        return self._running.get((drive.kit.project, drive.claimed.turn_id)) is drive

    async def _heartbeat(self, kit: Kit) -> None:
        """Renew the leases of what runs, now and then, and at once when somebody rings to stop a turn.

        Each project's by themselves: one in which somebody holds a lock must not cost the others their leases.
        """
        ear = self._world.hear(kit.bell_keys(f"stop:{self.name}"))
        try:
            while True:
                ear.clear()
                async with self._renewing[kit.project]:
                    if self._has_handed_back:
                        return
                    drives = [drive for drive in self._running.values() if drive.kit is kit]
                    if drives and await self._renew(kit, drives):
                        ear.found()
                await ear.wait(self.lease_seconds / 3)
        finally:
            ear.close()

    async def _renew(self, kit: Kit, drives: list[Drive]) -> bool:
        """Keep these leases; stop what is to be stopped, and what is no longer ours (K7). Return whether a turn is to stop
        of which this worker did not know it yet."""
        try:
            answers = await kit.ledger.renew([_lease(drive) for drive in drives], self.lease_seconds)
        except HeliographError as error:
            log.warning("cannot renew: %s", error.message)
            return False
        has_news = False
        for drive, written in zip(drives, answers, strict=True):
            if not self._holds(drive):
                continue
            if written.outcome == "stale":
                has_news = has_news or drive.lost_at is None
                self._let_go(drive)
            elif written.stop is not None:
                has_news = has_news or drive.held.halt.reason is None
                log.info("%s is to stop: %s", drive.claimed.turn_id, written.stop.reason)
                drive.stop(written.stop.reason or "stopped")
        return has_news

    def _let_go(self, drive: Drive) -> None:
        """End the work of a turn that is no longer ours. Work that lets its cancellation pass must not hold a slot."""
        turn_id, now = drive.claimed.turn_id, self._world.monotonic()
        if drive.lost_at is None:
            log.info("%s was taken from this worker; stopping it here", turn_id)
            drive.lost_at = now
        drive.lose()
        if now - drive.lost_at >= STUBBORN_SECONDS:
            log.error("turn %s is over, and what agent %s does for it does not end: where it was cancelled, let it or its tools pass "
                      "asyncio.CancelledError on", turn_id, drive.claimed.agent)  # fmt: skip
            del self._running[drive.kit.project, turn_id]
            self._world.ring([self._slot])


def _cancel(drive: Drive) -> None:
    if drive.task is not None:
        drive.task.cancel()


def _lease(drive: Drive) -> dict[str, object]:
    return {**gate_of(drive.claimed), "phase": drive.phase}


def _history(claimed: Claimed) -> str:
    """What is worth knowing of a turn that is not at its beginning."""
    resolved = sum(wait.state == "resolved" for wait in claimed.waits)
    parts = [f"{len(claimed.waits)} calls, {resolved} answered"] if claimed.waits else []
    parts += [f"put off {claimed.defers} times"] if claimed.defers else []
    parts += [f"recovered {claimed.attempts} times"] if claimed.attempts else []
    return f" ({'; '.join(parts)})" if parts else ""
