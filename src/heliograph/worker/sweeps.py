"""The watchdog of every worker: sweeps on a timer, the relay of the outbox, callbacks, and the reactions that runs owe.

Any number of workers may sweep at once (K17); each of these
loops survives a database that is away, and needs no cleanup when it dies. What a
bell tells of is done at once: reactions that became owed, children that ended,
commands that are to go out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from typing import Any

from heliograph.errors import KernelRejected, SetupError, StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.suspend import RELAY
from heliograph.policy.callbacks import AWAY_SECONDS, ONLOOKER_SECONDS, UNTRIED_SECONDS_MAX
from heliograph.worker.callbacks import send_callbacks
from heliograph.worker.pending_reactions import PendingReactions
from heliograph.world.seam import Task

log = logging.getLogger("heliograph.worker")

# Each finds one way to be stuck. The order lets the end of a turn reach its parent and its children in one round.
SWEEPS = ("leases", "expired", "waits", "stops", "reports", "queued")
_CASCADE = ("stops", "reports")
_SWEEPS_AT_ONCE = 4  # projects: a worker of hundreds needs its connections for turns
_LOOPS = ("sweep", "react", "report", "relay")
_MOVED = ("recovered", "ended", "resolved", "resumed", "stopped", "stopping")
_ROUNDS_MAX = 20  # as deep as delegations go
PRUNE_SECONDS = 60.0  # between two rounds of pruning, or of giving callbacks up
_PRUNE_BATCHES = 2  # a round is short: the sweeps wait for it
_PRUNE_ROWS = 500  # of each kind in one transaction


class Watchdog:
    """Sweeps each kit's project once per `interval_seconds`."""

    def __init__(self, projects: Sequence[ProjectServices], interval_seconds: float = 1.0):
        self.projects = projects
        self.interval_seconds = interval_seconds
        self.recovered: list[str] = []  # turns taken from dead workers by this one, for those who ask
        self._reactions = PendingReactions()
        self._after: dict[str, str] = {}  # by project: where sweep_stuck goes on
        self._logged: set[tuple[str, ...]] = set()
        self._next: dict[tuple[str, str], float] = {}  # by project and by what is not done in each round
        self._watched_since: dict[str, tuple[datetime, datetime]] = {}  # by project: since when, and when last
        self._sweeping = asyncio.Semaphore(_SWEEPS_AT_ONCE)
        # by loop and project: held while that loop is at work, so that a worker that closes can wait for it
        self._at_work: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._declared: set[tuple[str, str]] = set()

    async def run(self) -> None:
        first, *others = self.projects
        beside = [task for services in self.projects for task in self._spawn_loops(services)]
        beside += [first.world.spawn("watchdog sweep", self._keep_sweeping(services)) for services in others]
        try:
            await self._keep_sweeping(first)
        finally:
            for task in beside:
                task.cancel()

    def _spawn_loops(self, services: ProjectServices) -> list[Task]:
        """What is done for a project beside its sweeps. Each has loops of its own: what one waits for holds up no other."""
        owed, reports = ([f"{kind}:{target}" for target in services.targets] for kind in ("owed", "report"))
        spawn = services.world.spawn
        beside = [
            spawn("watchdog owed", self._run_on_ring(services, owed, "react", self._reactions.react)),
            spawn("watchdog report", self._run_on_ring(services, reports, "report", self._cascade)),
            spawn("watchdog relay", self._run_on_ring(services, [RELAY], "relay", self._relay)),
        ]
        return (
            beside if services.callbacks is None else [*beside, spawn("watchdog callbacks", self._call_back(services))]
        )

    async def _keep_sweeping(self, services: ProjectServices) -> None:
        while True:
            async with self._sweeping:
                await self._run_guarded("sweep", services, self._sweep)
            await services.world.sleep(self.interval_seconds)

    async def sweep(self) -> None:
        """Every sweep once, then what runs owe, then the relay."""
        for services in self.projects:
            await self._sweep(services)

    async def settle(self) -> None:
        """What a worker that closes leaves to nobody: ends that parents wait for, and what is in the outbox.

        Loops that are at work are waited for, and then held: one that was cancelled keeps its locks until the server has
        heard of it, and what is locked would be passed over here. What fails is left to other workers.
        """
        for services in self.projects:
            await self._run_guarded("settle", services, self._settle)

    async def _settle(self, services: ProjectServices) -> None:
        async with AsyncExitStack() as held:
            for loop in _LOOPS:
                await held.enter_async_context(self._at_work[loop, services.project])
            await self._cascade(services)
            await self._relay(services)
        if services.callbacks is not None:
            async with self._at_work["callbacks", services.project]:
                await send_callbacks(services, rounds=1)

    async def relay(self) -> None:
        """Publish what is in the outbox, oldest first, then mark it: at least once, known by its key (G-61)."""
        for services in self.projects:
            await self._relay(services)

    async def _run_on_ring(
        self,
        services: ProjectServices,
        keys: Iterable[str],
        what: str,
        work: Callable[[ProjectServices], Awaitable[object]],
    ) -> None:
        """Do `work` for a project whenever one of `keys` rings; the sweeps do it on their timer too.

        A true result means that there was something to do: such rings are not delayed.
        """
        subscription = services.world.subscribe(services.bell_keys(*keys))
        try:
            while True:
                if not await subscription.wait(3600.0):
                    continue
                subscription.clear()
                if await self._run_guarded(what, services, work):
                    subscription.found()
        finally:
            subscription.close()

    async def _call_back(self, services: ProjectServices) -> None:
        """Beside the sweeps, for who is called may take its time."""
        while True:
            await self._run_guarded("callbacks", services, send_callbacks)
            await services.world.sleep(self.interval_seconds)

    async def _run_guarded(
        self, loop: str, services: ProjectServices, work: Callable[[ProjectServices], Awaitable[object]]
    ) -> object:
        """The result of `work`, whose failure does not end the loop."""
        try:
            async with self._at_work[loop, services.project]:
                return await work(services)
        except StoreUnavailable as error:
            log.warning("%s put off: %s", loop, error.message)
        except Exception:
            # one row that the kernel refuses must not end the sweeps that all others live by
            log.exception("%s failed; it is tried again", loop)
        return None

    async def _sweep(self, services: ProjectServices) -> None:
        for name in SWEEPS:
            await self._swept(services, name)
        await self._swept(services, "stuck", self._after.get(services.project, ""))
        await self._reactions.react(
            services
        )  # before the cascade: where much is delegated, there is always something that moves
        await self._cascade(services)
        await services.ledger.sweep_bells(older_seconds=self.interval_seconds)
        await self._relay(services)
        await self._abandon_callbacks(services)
        await self._prune(services)

    async def _prune(self, services: ProjectServices) -> None:
        """Where the worker is told to, forget what ended long ago: now and then, and a bounded share of it each time."""
        if services.prune_after_seconds is None or not self._is_time(services, "prune"):
            return
        before = services.world.now() - timedelta(seconds=services.prune_after_seconds)
        for _ in range(_PRUNE_BATCHES):
            try:
                answer = await services.ledger.prune(before, _PRUNE_ROWS)
            except (KernelRejected, SetupError) as error:  # a login that is no operator
                self._log_once(
                    (services.project, "prune"), "project %s is not pruned: %s", services.project, error.message
                )
                return
            if not answer["more"]:
                return

    async def _abandon_callbacks(self, services: ProjectServices) -> None:
        """Those that no worker could send in all the time that tries take: else they and what they tell of stay for ever."""
        if services.callbacks is not None:  # who can send them, tries them
            return
        if not self._has_watched_long_enough(services) or not self._is_time(services, "callbacks"):
            return
        answer = await services.ledger.sweep("callbacks", UNTRIED_SECONDS_MAX)
        for callback_id in answer["given_up"]:
            log.warning(
                "callback %s is given up: no worker had HELIOGRAPH_WEBHOOK_SECRETS to sign it with", callback_id
            )

    def _has_watched_long_enough(self, services: ProjectServices) -> bool:
        """Whether this worker and the database were up, together, for long enough that one that can sign would have come.

        By the clock on the wall: it goes on while a machine is asleep.
        """
        now = services.world.now()
        since, last = self._watched_since.get(services.project, (now, now))
        if not 0 <= (now - last).total_seconds() < AWAY_SECONDS:
            since = now
        self._watched_since[services.project] = since, now
        return (now - since).total_seconds() >= ONLOOKER_SECONDS

    def _is_time(self, services: ProjectServices, what: str) -> bool:
        """Whether the last time that it was, is long ago."""
        now = services.world.monotonic()
        if now < self._next.get((services.project, what), 0.0):
            return False
        self._next[services.project, what] = now + PRUNE_SECONDS
        return True

    async def _cascade(self, services: ProjectServices) -> bool:
        """Stops go down to children and ends go up to parents, a level at a time, until nothing moves any more; whether
        anything moved.

        Then what their runs owe for it: whoever ends a turn that nobody works on rings for nobody who pays.
        """
        has_moved = False
        for _ in range(_ROUNDS_MAX):
            if not any([await self._swept(services, name) for name in _CASCADE]):
                break
            has_moved = True
        if has_moved:
            await self._reactions.react(services)
        return has_moved

    async def _swept(self, services: ProjectServices, name: str, *more: str) -> bool:
        """One sweep; whether it moved anything. One that the kernel refuses must not end the others."""
        try:
            answer = await services.ledger.sweep(name, *more)
        except KernelRejected as error:
            self._log_once(
                (services.project, name), "sweep of %s in project %s: %s", name, services.project, error.message
            )
            return False
        for turn_id in answer.get("recovered", ()):
            log.info("recovered %s: its worker let the lease run out", turn_id)
            self.recovered.append(turn_id)
        for failed in answer.get("failed", ()):
            given_up = ", which is ended as failed" if failed.get("ended") else ""
            self._log_once((services.project, name, str(failed.get("turn_id")), str(failed.get("code")), given_up),
                            "sweep of %s failed on %s%s: %s", name, failed.get("turn_id"), given_up, failed.get("message"))  # fmt: skip
        if "after" in answer:
            self._after[services.project] = answer["after"] or ""
        return any(answer.get(moved) for moved in _MOVED)

    def _log_once(self, key: tuple[str, ...], message: str, *args: Any) -> None:
        """Log what will be met again in each round, once."""
        if key not in self._logged:
            self._logged.add(key)
            log.error(message, *args)

    async def _declare(self, services: ProjectServices) -> None:
        """Say once which wires this worker has: whoever has not must not publish in this project."""
        for wire in services.wires:
            if (services.project, wire) not in self._declared:
                await services.ledger.declare_wire(wire)
                self._declared.add((services.project, wire))

    async def _relay(self, services: ProjectServices) -> None:
        await self._declare(services)
        while True:
            # what has to reach a wire that this worker has not got stays, for those that have it
            events = [e for e in await services.ledger.read_outbox() if set(e.wires) <= set(services.wires)]
            if not events:
                return
            await services.world.publish(services.project, events)
            await services.world.failpoint("before_mark")
            await services.ledger.mark_published([event.key for event in events])
