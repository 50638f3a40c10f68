"""The worker: listen, drain, wait; keep the leases of what runs; give back what it cannot finish.

Crash-only: nothing here is needed for correctness when a worker dies. Its leases
run out, a sweep finds them, and another worker goes on (L0-111).
"""

from __future__ import annotations

import logging

from heliograph.errors import HeliographError, StoreUnavailable
from heliograph.records import Claimed
from heliograph.worker.drive import Drive
from heliograph.worker.kit import Kit, TurnLost
from heliograph.worker.sweeps import Watchdog
from heliograph.world import Task

log = logging.getLogger("heliograph.worker")

POLL_SECONDS = 5.0  # the bound on a lost bell
_HAND_BACK_LEASE_SECONDS = 0.1


class Worker:
    """Runs up to `concurrency` turns of the kit's applications at a time.

    name: unique among all workers of the database; it is written into every lease.
    lease_seconds: how long a turn stays this worker's without a sign of life; renewed three times as often.
    """

    def __init__(self, kit: Kit, name: str, *, concurrency: int = 16, lease_seconds: float = 30.0):
        self.kit = kit
        self.name = name
        self.concurrency = concurrency
        self.lease_seconds = lease_seconds
        self.watchdog = Watchdog(kit)
        self.is_stopping = False
        self._running: dict[str, tuple[Drive, Task]] = {}

    async def run(self) -> None:
        """Until `stop`; then until the turns in hand are done. Cancel it to leave them to the leases."""
        world = self.kit.world
        ear = world.hear([f"work:{target}" for target in self.kit.targets] + [self._slot])
        tasks = [world.spawn(f"{self.name} heartbeat", self._heartbeat()),
                 world.spawn(f"{self.name} watchdog", self.watchdog.run())]  # fmt: skip
        try:
            while not self.is_stopping or self._running:
                ear.clear()
                await self._drain()
                await ear.wait(POLL_SECONDS)
        finally:
            ear.close()
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Claim nothing more; `run` returns when the turns in hand are done."""
        self.is_stopping = True
        self.kit.world.ring([self._slot])

    async def hand_back(self) -> None:
        """Stop the turns in hand where they are and let their leases end at once: another worker goes on with them."""
        drives = [drive for drive, _ in self._running.values()]
        for _, task in list(self._running.values()):
            task.cancel()
        if drives:
            await self.kit.ledger.renew([_lease(d) for d in drives], _HAND_BACK_LEASE_SECONDS)

    @property
    def _slot(self) -> str:
        return f"slot:{self.name}"

    async def _drain(self) -> None:
        """Claim until there is nothing to claim, or no room. An empty claim is repeated once: SKIP LOCKED may pass
        over what another claim was only looking at."""
        empty = 0
        while empty < 2 and not self.is_stopping and len(self._running) < self.concurrency:
            try:
                room = self.concurrency - len(self._running)
                claimed = await self.kit.ledger.claim(self.kit.claims, self.name, room, self.lease_seconds)
            except StoreUnavailable as error:
                log.warning("cannot claim: %s", error.message)
                await self.kit.world.sleep(0.5)
                return
            empty = 0 if claimed else empty + 1
            for turn in claimed:
                self._start(turn)

    def _start(self, claimed: Claimed) -> None:
        drive = Drive(claimed, self.kit)
        task = self.kit.world.spawn(f"{self.name} {claimed.turn_id}", self._work(drive))
        self._running[claimed.turn_id] = (drive, task)

    async def _work(self, drive: Drive) -> None:
        turn_id = drive.claimed.turn_id
        try:
            await drive.run()
        except TurnLost as lost:
            log.info("%s", lost)
        except HeliographError as error:
            # refused by the store or out of reach: the lease runs out, attempts are counted, and in the end the
            # kernel itself delivers the failure (K23)
            log.error("%s is given up here: %s", turn_id, error.message)
        finally:
            current = self._running.get(turn_id)
            if current is not None and current[0] is drive:
                del self._running[turn_id]
                self.kit.world.ring([self._slot])

    async def _heartbeat(self) -> None:
        """Renew the leases of what runs; stop what is no longer ours (K7)."""
        while True:
            await self.kit.world.sleep(self.lease_seconds / 3)
            drives = [drive for drive, _ in self._running.values()]
            if not drives:
                continue
            try:
                answers = await self.kit.ledger.renew([_lease(d) for d in drives], self.lease_seconds)
            except HeliographError as error:
                log.warning("cannot renew: %s", error.message)
                continue
            for drive, written in zip(drives, answers, strict=True):
                held = self._running.get(drive.claimed.turn_id)
                if written.outcome == "stale" and held is not None and held[0] is drive:
                    log.info("%s was taken from this worker; stopping it here", drive.claimed.turn_id)
                    held[1].cancel()


def _lease(drive: Drive) -> dict[str, object]:
    return {"agent_id": drive.claimed.agent_id, "turn_id": drive.claimed.turn_id, "epoch": drive.claimed.epoch,
            "phase": drive.phase}  # fmt: skip
