"""The watchdog of a worker: the loops that run beside its turns.

    sweep       every interval: the sweeps, the bells that were lost, retention
    react       on a ring: pending reactions
    report      on a ring: ends of children, for their parents
    relay       on a ring and every interval: the outbox
    callbacks   every interval: callbacks that are due
    gateways    on a ring and every interval: calls that routes lead to gateways
    halts       every interval: halts of tasks at gateways

Each project has its own loops, and no loop waits for another: while a wire or the receiver of a callback is away, sweeps
and retention continue. Each loop survives an outage of the database. Any number of workers may run a watchdog.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack

from heliograph.errors import StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.suspend import RELAY
from heliograph.turn.calls import GATEWAY
from heliograph.worker.callbacks import send_callbacks
from heliograph.worker.gateway_halts import HaltSender
from heliograph.worker.gateway_sender import GatewaySender
from heliograph.worker.outage_log import OutageLog
from heliograph.worker.pending_reactions import PendingReactions
from heliograph.worker.relay import Relay
from heliograph.worker.retention import Retention
from heliograph.worker.sweeps import Sweeper
from heliograph.world.seam import Task

log = logging.getLogger("heliograph.worker")

_PROJECTS_AT_ONCE = 4  # in one timer loop: a worker of hundreds of projects needs its connections for turns
_LOOPS = ("sweep", "react", "report", "relay")

Work = Callable[[ProjectServices], Awaitable[object]]


class Watchdog:
    """Runs the loops for all projects of a worker; the timers fire once per `interval_seconds`."""

    def __init__(self, projects: Sequence[ProjectServices], interval_seconds: float = 1.0):
        self.projects = projects
        self.interval_seconds = interval_seconds
        self._reactions = PendingReactions()
        self._sweeper = Sweeper(self._reactions)
        self._relay = Relay()
        self._gateways = GatewaySender()
        self._halts = HaltSender()
        self._retention = Retention()
        self._outages = OutageLog()
        self._sweeping = asyncio.Semaphore(_PROJECTS_AT_ONCE)
        self._relaying = asyncio.Semaphore(_PROJECTS_AT_ONCE)
        # by loop and project: held while that loop works, so that a worker that closes can wait for it
        self._at_work: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def recovered(self) -> list[str]:
        """The turns that this watchdog took from dead workers."""
        return self._sweeper.recovered

    async def run(self) -> None:
        """Run until cancelled."""
        first, *others = self.projects
        beside = [task for services in self.projects for task in self._spawn_loops(services)]
        beside += [first.world.spawn("watchdog sweep", self._keep_sweeping(services)) for services in others]
        try:
            await self._keep_sweeping(first)
        finally:
            self._gateways.stop()
            for task in beside:
                task.cancel()

    async def sweep(self) -> None:
        """Sweep every project once, then relay. Raises StoreUnavailable."""
        for services in self.projects:
            await self._sweep(services)
        await self.relay()

    async def declare_wires(self, services: ProjectServices) -> None:
        """Declare the wires of this worker once, before it claims: the events of its turns are published. Raises StoreUnavailable."""
        await self._relay.declare_wires(services)

    async def relay(self) -> None:
        """Publish the outbox of every project once. Raises StoreUnavailable."""
        for services in self.projects:
            await self._relay.publish(services)

    async def settle(self) -> None:
        """Finish the work that a closing worker would leave to others: ends that parents wait for, the outbox, and halts.

        Waits for loops that are at work and then holds them off: a cancelled loop keeps its row locks until the server
        notices, and locked rows would be skipped here. Other workers do the rest.
        """
        for services in self.projects:
            await self._run_guarded("settle", services, self._settle)

    async def _settle(self, services: ProjectServices) -> None:
        async with AsyncExitStack() as stack:
            for loop in _LOOPS:
                await stack.enter_async_context(self._at_work[loop, services.project])
            await self._sweeper.cascade(services)
            await self._relay.publish(services)
        if services.callbacks is not None:
            async with self._at_work["callbacks", services.project]:
                await send_callbacks(services, rounds=1)
        if services.gateways is not None:
            await self._halts.settle(services)

    def _spawn_loops(self, services: ProjectServices) -> list[Task]:
        """Start the loops of one project, except its sweeps."""
        reactions, reports = ([f"{kind}:{target}" for target in services.targets] for kind in ("reaction", "report"))
        spawn = services.world.spawn
        loops = [
            spawn("watchdog react", self._run_on_ring(services, reactions, "react", self._reactions.react)),
            spawn("watchdog report", self._run_on_ring(services, reports, "report", self._sweeper.cascade)),
            spawn("watchdog relay on ring", self._run_on_ring(services, [RELAY], "relay", self._relay.publish)),
            spawn("watchdog relay", self._keep_relaying(services)),
        ]
        if services.callbacks is not None:
            loops.append(spawn("watchdog callbacks", self._repeat("callbacks", services, send_callbacks)))
        if services.gateways is not None:
            calls = self._run_on_ring(services, [f"calls:{GATEWAY}"], "gateways", self._gateways.send)
            loops += [
                spawn("watchdog gateways on ring", calls),
                spawn("watchdog gateways", self._repeat("gateways", services, self._gateways.send)),
                spawn("watchdog halts", self._repeat("halts", services, self._halts.send)),
            ]
        return loops

    async def _keep_sweeping(self, services: ProjectServices) -> None:
        while True:
            async with self._sweeping:
                await self._run_guarded("sweep", services, self._sweep)
            await services.world.sleep(self.interval_seconds)

    async def _keep_relaying(self, services: ProjectServices) -> None:
        while True:
            async with self._relaying:
                await self._run_guarded("relay", services, self._relay.publish)
            await services.world.sleep(self.interval_seconds)

    async def _repeat(self, loop: str, services: ProjectServices, work: Work) -> None:
        while True:
            await self._run_guarded(loop, services, work)
            await services.world.sleep(self.interval_seconds)

    async def _run_on_ring(self, services: ProjectServices, keys: Iterable[str], loop: str, work: Work) -> None:
        """Do `work` for a project whenever one of `keys` rings; a timer loop does it as well.

        A true result means that there was something to do: such rings do not count toward the rate limit.
        """
        subscription = services.world.subscribe(services.bell_keys(*keys))
        try:
            while True:
                if not await subscription.wait(3600.0):
                    continue
                subscription.clear()
                if await self._run_guarded(loop, services, work):
                    subscription.found()
        finally:
            subscription.close()

    async def _run_guarded(self, loop: str, services: ProjectServices, work: Work) -> object:
        """Return the result of `work`; a failure does not end the loop. An outage is logged rarely, see `OutageLog`."""
        try:
            async with self._at_work[loop, services.project]:
                result = await work(services)
        except StoreUnavailable as error:
            if self._outages.is_due((loop, services.project), services.world.monotonic()):
                log.warning("%s interrupted, retrying: %s", loop, error.message)
        except Exception:
            # one row that the kernel rejects must not end the sweeps on which all other turns depend
            log.exception("%s failed, retrying", loop)
        else:
            self._outages.end((loop, services.project))
            return result
        return None

    async def _sweep(self, services: ProjectServices) -> None:
        await self._sweeper.sweep(services)
        await services.ledger.sweep_bells(older_seconds=self.interval_seconds)
        await self._retention.run(services)
