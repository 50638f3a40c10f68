"""The watchdog of every worker: sweeps on a timer, the relay of the outbox, and the reactions that runs owe.

Any number of workers may sweep at once (kernel.md section 1); each of these
loops survives a database that is away, and needs no cleanup when it dies.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from heliograph.errors import StoreUnavailable
from heliograph.reactive.reaction import react_to_owed
from heliograph.records import OwedRun
from heliograph.worker.kit import Kit
from heliograph.worker.voice import draft_item
from heliograph.world import Ear

log = logging.getLogger("heliograph.worker")

_REFUSALS_MAX = 3


class Watchdog:
    """Sweeps once per `interval_seconds`, and reacts at once when something became owed or was put in the outbox."""

    def __init__(self, kit: Kit, interval_seconds: float = 1.0):
        self.kit = kit
        self.interval_seconds = interval_seconds
        self._refused: dict[str, int] = {}
        self.recovered: list[str] = []  # turns taken from dead workers by this one, for those who ask

    async def run(self) -> None:
        keys = [f"owed:{target}" for target in self.kit.targets]
        ear = self.kit.world.hear(keys)
        while True:
            ear.clear()
            await _survive("sweep", self.sweep)
            await self._wait(ear)

    async def _wait(self, ear: Ear) -> None:
        """Until the next sweep; a ring for owed reactions is answered in between."""
        until = self.kit.world.monotonic() + self.interval_seconds
        while (left := until - self.kit.world.monotonic()) > 0:
            if await ear.wait(left):
                ear.clear()
                await _survive("react", self.pay)

    async def sweep(self) -> None:
        """Every sweep once, then the relay."""
        ledger = self.kit.ledger
        swept = await ledger.sweep_leases()
        self.recovered += swept["recovered"]
        for turn_id in swept["recovered"]:
            log.info("recovered %s: its worker let the lease run out", turn_id)
        await ledger.sweep_expired()
        await ledger.sweep_queued()
        await ledger.sweep_bells(older_seconds=self.interval_seconds)
        await self.pay()
        await self.relay()

    async def pay(self) -> None:
        """Commit the reactions that runs owe (K25). A conflict means that another worker did."""
        for owed in await self.kit.ledger.sweep_owed(self.kit.targets):
            try:
                await self._react(owed)
                self._refused.pop(owed.run.run_id, None)
            except StoreUnavailable:
                raise
            except Exception as error:
                self._refused[owed.run.run_id] = self._refused.get(owed.run.run_id, 0) + 1
                log.exception("the reaction of %s cannot be committed", owed.run.run_id, exc_info=error)

    async def _react(self, owed: OwedRun) -> None:
        world, run_id = self.kit.world, owed.run.run_id
        is_hopeless = self._refused.get(run_id, 0) >= _REFUSALS_MAX
        reaction = react_to_owed(
            self.kit.workflows[owed.target], owed, world.now(), world.new_id,
            "its reaction cannot be committed; the worker's log says why" if is_hopeless else None,
        )  # fmt: skip
        await world.point("before_react")
        outcome = await self.kit.ledger.react({
            "run_id": run_id, "signals": [draft_item(d) for d in reaction.drafts], "reaction": reaction.to_item(),
        })  # fmt: skip
        if outcome == "ok":
            world.ring([f"log:{run_id}"])

    async def relay(self) -> None:
        """Publish what is in the outbox, oldest first, then mark it: at least once, known by its key (G-61)."""
        while events := await self.kit.ledger.read_outbox():
            for event in events:
                await self.kit.world.publish(event.subject, event.key, event.body)
            await self.kit.world.point("before_mark")
            await self.kit.ledger.mark_published([event.outbox_id for event in events])


async def _survive(what: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except StoreUnavailable as error:
        log.warning("%s put off: %s", what, error.message)
    except Exception:
        # one row that the kernel refuses must not end the sweeps that all others live by
        log.exception("%s failed; it is tried again", what)
