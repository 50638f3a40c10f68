"""Claim turns while there are free slots, run each one, and stop without losing any.

Crash-only: correctness needs nothing from a worker that dies. Its leases run out, a sweep finds them, and another worker
continues its turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from heliograph.codes import UNDECODABLE
from heliograph.error_text import counted
from heliograph.errors import HeliographError, KernelRejected, StoreUnavailable
from heliograph.execution.model_agent import AgentLoop
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.recorded_inputs import recorded_seams
from heliograph.execution.runner import TurnRunner
from heliograph.execution.tape import is_recorded
from heliograph.ledger.claim_offer import ClaimOffer
from heliograph.records import Claimed
from heliograph.telemetry.logs import enter_turn
from heliograph.turn.interruptions import TurnAbandoned, TurnLost
from heliograph.worker.fair_share import fair_shares
from heliograph.worker.heartbeat import Heartbeat
from heliograph.worker.leases import Leases, RunningTurns
from heliograph.worker.next_claims import NextClaims
from heliograph.worker.outage_log import OutageLog
from heliograph.worker.registration import Registration
from heliograph.worker.watchdog import Watchdog
from heliograph.world.seam import BellKey

log = logging.getLogger("heliograph.worker")

POLL_SECONDS = 5.0  # a lost bell delays a claim by this long at most
_AGAIN_SECONDS = 0.05  # after a bell: SKIP LOCKED may have skipped a row that another reader had locked
_CLAIM_AGAIN_SECONDS = 0.5  # after a claim that failed
_CLAIM_MAX = 64  # turns in one claim: they run while the next ones are claimed, so the store is never idle


class Worker:
    """Runs up to `concurrency` turns of its projects at a time.

    projects: the projects that it serves; those that have work share its slots evenly.
    name: unique among all workers of the database; every lease contains it.
    agent_loop: runs the agents that have a prompt.
    lease_seconds: the time for which a lease lasts without a renewal. Each lease is renewed three times in this time.
    registration: with it, the worker registers before it claims, and sends heartbeats. None for a worker that nobody watches.
    """

    def __init__(
        self,
        projects: Sequence[ProjectServices],
        name: str,
        agent_loop: AgentLoop,
        *,
        concurrency: int = 16,
        lease_seconds: float = 30.0,
        registration: Registration | None = None,
    ):
        self.projects = list(projects)
        self._agent_loop = agent_loop
        self.name = name
        self.concurrency = concurrency
        self.watchdog = Watchdog(self.projects)
        self.is_stopping = False
        self._world = self.projects[0].world
        self._slot = BellKey("", f"slot:{name}")  # this worker's own bell, of no project: a slot is free
        self._running: RunningTurns = {}
        self._lease_seconds = lease_seconds
        self._leases = {
            services.project: Leases(services, self._running, self._drop, name, lease_seconds)
            for services in self.projects
        }
        self.heartbeat = None if registration is None else Heartbeat(
            name, registration, self.projects, self._running, concurrency, lease_seconds
        )  # fmt: skip
        self._claim_rounds = 0
        self._is_registered = False
        self._outages = OutageLog()
        self._claiming = asyncio.Lock()  # held during a claim
        self._is_behind = False  # whether its last claim filled its slots, or a bell rang since and no slot was free
        self._claim_max = {services.project: _CLAIM_MAX for services in self.projects}

    async def run(self) -> None:
        """Register, and run turns until `stop`, then finish those in progress. Cancel it to leave them to their leases."""
        world = self._world
        if self.heartbeat is not None:
            await self.heartbeat.register(lambda: self.is_stopping)
        self._is_registered = True
        work = [
            key
            for services in self.projects
            for key in services.bell_keys(*(f"work:{queue}" for queue in services.queues))
        ]
        subscription = world.subscribe([*work, self._slot])
        tasks = [*(world.spawn(f"{self.name} leases", leases.keep()) for leases in self._leases.values()),
                 world.spawn(f"{self.name} watchdog", self.watchdog.run())]  # fmt: skip
        if self.heartbeat is not None:
            tasks.append(world.spawn(f"{self.name} heartbeats", self.heartbeat.keep()))
        for services in self.projects:
            services.ledger.next_claims = NextClaims(
                services, self._running, self._claiming, self._next_offer, self._has_pending, self._start_next,
                self._ring_if_stopping,
            )  # fmt: skip
        try:
            is_rung, was_full = True, False
            while not self.is_stopping or self._running or self._claiming.locked():
                subscription.clear()
                is_full = self._is_full()
                self._is_behind = self._is_behind or (is_full and is_rung)
                # while no slot was free, rings led to no claim: they must not delay the rings that follow
                if await self._drain() or (was_full and not is_full):
                    subscription.found()
                was_full = is_full
                is_rung = await subscription.wait(_AGAIN_SECONDS if is_rung and self._free_slots > 0 else POLL_SECONDS)
        finally:
            for services in self.projects:
                services.ledger.next_claims = None
            subscription.close()
            for task in tasks:
                task.cancel()

    def stop(self) -> None:
        """Claim no more turns; `run` returns when the turns in progress are done."""
        self.is_stopping = True
        self._world.ring([self._slot])

    async def wait_for_replies(self, seconds: float) -> None:
        """Wait until the turns that are ending have the replies to their last commits, at most `seconds`.

        Their last events follow these replies, but other processes may see the commits before.
        """
        tasks = [runner.task for runner in self._running.values() if runner.is_ending]
        ending = [task for task in tasks if isinstance(task, asyncio.Task)]
        if ending:
            await asyncio.wait(ending, timeout=seconds)

    async def release_turns(self) -> None:
        """Cancel the turns in progress and return them, so that other workers continue them. Call it after `stop`.

        A claim or renewal that has started is waited for: a claim would take the turns again. See `Leases.release`.
        """
        async with self._claiming:
            for leases in self._leases.values():
                leases.close()
        for runner in self._running.values():
            if runner.task is not None:
                runner.task.cancel()
        runners_of = [(leases, leases.runners()) for leases in self._leases.values()]
        await asyncio.gather(*(leases.release(runners) for leases, runners in runners_of if runners))

    @property
    def is_claiming(self) -> bool:
        """Whether it has registered, does not stop, and its last claim did not fail."""
        return self._is_registered and not self.is_stopping and not self._outages.has("claim")

    @property
    def leases(self) -> dict[str, int]:
        """The number of its running turns in each of its projects."""
        return {project: len(leases.runners()) for project, leases in self._leases.items()}

    @property
    def _free_slots(self) -> int:
        return self.concurrency - len(self._running)  # below 0 for a moment, while endings return that carried a claim

    def _is_full(self) -> bool:
        return self._free_slots <= 0

    def _has_pending(self) -> bool:
        """Whether turns probably wait for a slot of this worker."""
        return self._is_behind and self._is_full()

    def _next_offer(self, services: ProjectServices, ending: int) -> ClaimOffer | None:
        """The claim of a project when `ending` of its turns have ended: as large as its share of the slots that are free then."""
        if self.is_stopping or self._outages.has("claim"):  # the first claim that does not fail declares the wires
            return None
        in_use = [self._running_turns(each) - (ending if each is services else 0) for each in self.projects]
        share = fair_shares(self._free_slots + ending, in_use)[self.projects.index(services)]
        limit = min(share, self._claim_max[services.project])
        return None if limit < 1 else ClaimOffer(services.claims, self.name, limit, self._lease_seconds)

    async def _drain(self) -> bool:
        """Claim until there is no work or no free slot; return whether there was any work."""
        while True:
            try:
                has_found = await self._claim_round()
            except StoreUnavailable as error:  # retried here: no bell rings when the store is back
                if self._outages.is_due("claim", self._world.monotonic()):
                    log.warning("cannot claim, retrying: %s", error.message)
                await self._world.sleep(_CLAIM_AGAIN_SECONDS)
            else:
                self._outages.end("claim")
                return has_found

    async def _claim_round(self) -> bool:
        """Offer each project its share of the free slots, and unused shares to the other projects."""
        self._claim_rounds += 1
        has_found = False
        first = self._claim_rounds % len(self.projects)
        claiming = self.projects[first:] + self.projects[:first]
        while claiming and self._free_slots > 0:
            offers = fair_shares(self._free_slots, [self._running_turns(services) for services in claiming])
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

    def _running_turns(self, services: ProjectServices) -> int:
        if len(self.projects) == 1:
            return len(self._running)
        return sum(runner.services.project == services.project for runner in self._running.values())

    async def _claim(self, services: ProjectServices, limit: int) -> tuple[list[Claimed], bool]:
        """Claim up to `limit` turns of one project; return them, and whether there may be more.

        The kernel rejects a claim whose answer is too large. Then the worker claims single turns, and twice as many after
        each success. A turn that cannot be claimed alone is ended as failed, and the other turns continue.
        """
        await self.watchdog.declare_wires(services)
        try:
            claimed = await services.ledger.claim(services.claims, self.name, limit, self._lease_seconds)
        except KernelRejected as error:
            log.error("cannot claim %d turns in project %s: %s", limit, services.project, error.message)
            self._claim_max[services.project] = 1
            return [], limit > 1 or await self._fail_unclaimable(services)
        self._claim_max[services.project] = min(_CLAIM_MAX, 2 * self._claim_max[services.project])
        self._is_behind = len(claimed) == limit
        return claimed, self._is_behind

    async def _fail_unclaimable(self, services: ProjectServices) -> bool:
        """End the next turn if no worker can claim it; return whether it was ended."""
        try:
            failed = await services.ledger.fail_unclaimable(services.claims)
        except KernelRejected as error:
            log.error("cannot end the turn that cannot be claimed in project %s: %s", services.project, error.message)
            return False
        if failed is not None:
            log.error("%s is ended as failed: %s", failed["turn_id"], failed["message"])
        return failed is not None

    def _start(self, claimed: Claimed, services: ProjectServices) -> None:
        seams = recorded_seams(services, claimed) if is_recorded(claimed.run.memory) else None
        runner = TurnRunner(claimed, services, self._agent_loop, seams)
        if log.isEnabledFor(logging.INFO):
            log.info("claimed %s: agent %s of run %s, epoch %d%s", claimed.turn_id, claimed.agent, claimed.run_id,
                     claimed.epoch, _history(claimed), extra=_fields(runner))  # fmt: skip
        self._running[runner.owned.project, claimed.turn_id] = runner
        runner.task = self._world.spawn(f"{self.name} {claimed.turn_id}", self._work(runner))

    def _start_next(self, claimed: Sequence[Claimed], services: ProjectServices, limit: int) -> None:
        """Start the turns that another call has claimed; limit: how many it could claim."""
        self._is_behind = len(claimed) == limit
        for turn in claimed:
            self._start(turn, services)

    def _ring_if_stopping(self) -> None:
        """Ring the own bell, since `run` waits for claims under way before it returns."""
        if self.is_stopping:
            self._world.ring([self._slot])

    async def _work(self, runner: TurnRunner) -> None:
        claimed = runner.owned.claimed
        turn_id, is_abandoned = claimed.turn_id, False
        enter_turn(claimed.run_id, turn_id, claimed.agent)
        services = runner.services
        services.local_runs.execution_started(services.ledger.project, claimed.run_id)
        try:
            await runner.run()
        except TurnLost as lost:
            log.info("%s", lost)
            is_abandoned = isinstance(lost, TurnAbandoned)
        except HeliographError as error:
            # the lease ends and the kernel counts the attempt; after the last one it delivers the failure itself (K23)
            log.error("%s is abandoned by this worker: %s", turn_id, error.message)
            is_abandoned = error.code != UNDECODABLE or not await self._fail(runner, error.message)
        except RecursionError as error:
            log.exception("%s is abandoned by this worker", turn_id, exc_info=error)
            is_abandoned = not await self._fail(runner, "a value of this turn is nested too deeply for the runtime")
        finally:
            services.local_runs.execution_ended(services.ledger.project, claimed.run_id)
            self._release_slot(runner, is_abandoned=is_abandoned)

    def _release_slot(self, runner: TurnRunner, *, is_abandoned: bool) -> None:
        project, turn_id = runner.owned.project, runner.owned.claimed.turn_id
        if self._running.get((project, turn_id)) is not runner:
            return
        was_full = self._free_slots <= 0
        del self._running[project, turn_id]
        if (
            was_full and self._free_slots > 0
        ) or self.is_stopping:  # otherwise no work was left to claim, and a bell announces new work
            self._world.ring([self._slot])
        if is_abandoned:
            self._world.spawn(f"{self.name} ends the lease of {turn_id}", self._leases[project].end(runner))

    async def _fail(self, runner: TurnRunner, message: str) -> bool:
        """End a turn that no worker can run as failed; return whether that succeeded. Otherwise its lease runs out."""
        claimed = runner.claimed
        try:
            await runner.services.ledger.fail_turn(msgspec.structs.asdict(claimed), UNDECODABLE, message)
        except HeliographError as error:
            log.warning("%s is left to its lease: %s", claimed.turn_id, error.message)
            return False
        return True

    def _drop(self, runner: TurnRunner) -> None:
        """Remove a turn and announce its slot."""
        del self._running[runner.services.project, runner.claimed.turn_id]
        self._world.ring([self._slot])


def _fields(runner: TurnRunner) -> dict[str, str]:
    """The fields of a record about a turn, which is emitted outside its task."""
    claimed, (trace, span) = runner.claimed, runner.owned.trace.ids or ("", "")
    found = {"run_id": claimed.run_id, "turn_id": claimed.turn_id, "agent": claimed.agent}
    return {**found, "trace_id": trace, "span_id": span} if trace else found


def _history(claimed: Claimed) -> str:
    """The past of a turn that is not at its beginning, for the log."""
    resolved = sum(wait.state == "resolved" for wait in claimed.waits)
    parts = [f"{counted(len(claimed.waits), 'call')}, {resolved} answered"] if claimed.waits else []
    parts += [f"deferred {counted(claimed.defer_count, 'time')}"] if claimed.defer_count else []
    parts += [f"recovered {counted(claimed.attempts, 'time')}"] if claimed.attempts else []
    return f" ({'; '.join(parts)})" if parts else ""
