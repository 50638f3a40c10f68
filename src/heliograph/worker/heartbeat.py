"""Register a worker before it claims, and then send its heartbeats.

Operators see from them which workers are healthy. A heartbeat is never a fence: a lease alone decides who owns a turn, so a worker
whose heartbeats fail runs its turns to the end, and one that sends heartbeats loses a turn with its lease (decision 0042).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from heliograph.errors import HeliographError, StoreUnavailable, TurnTimedOut
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.runner import TurnRunner
from heliograph.policy.heartbeat import IDLE, Health, assess, is_logged
from heliograph.signals.model import Draft
from heliograph.worker.leases import RunningTurns
from heliograph.worker.outage_log import OutageLog
from heliograph.worker.registration import Registration

log = logging.getLogger("heliograph.worker")

_REGISTER_AGAIN_SECONDS = 0.5


class Heartbeat:
    """The heartbeats of one worker, in all of its projects at once. running: its turns, in the order of their claims."""

    def __init__(
        self, worker: str, registration: Registration, projects: Sequence[ProjectServices], running: RunningTurns,
        slots: int, lease_seconds: float,
    ):  # fmt: skip
        self._worker = worker
        self._registration = registration
        self._projects = [services.project for services in projects]
        self._ledger = projects[0].ledger
        self._world = projects[0].world
        self._running = running
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._logged: dict[TurnRunner, str | None] = {}  # the turns of the last heartbeat, and the status in their logs
        self._outages = OutageLog()

    async def register(self, is_stopping: Callable[[], bool]) -> None:
        """Register the worker. Until then it claims nothing. Waits for a store that is away, unless the worker stops."""
        while not is_stopping():
            try:
                await self._send(self._assess(0.0))
            except (StoreUnavailable, TurnTimedOut) as error:
                self._warn("cannot register", error)
                await self._world.sleep(_REGISTER_AGAIN_SECONDS)
            else:
                self._outages.end("heartbeat")
                return

    async def keep(self) -> None:
        """Send a heartbeat each interval, until cancelled. One that fails is missed."""
        policy = self._registration.policy
        due = self._world.monotonic() + policy.interval_seconds
        while policy.is_enabled:
            await self._world.sleep(max(0.0, due - self._world.monotonic()))
            now = self._world.monotonic()
            await self._beat(self._assess(now - due))
            due = max(due, now) + policy.interval_seconds

    async def deregister(self) -> None:
        """Remove the worker from the list, because it ends by itself. If this fails, the worker turns unhealthy there."""
        try:
            await self._within_timeout(self._ledger.deregister(self._worker, self._projects))
        except HeliographError as error:
            log.info("worker %s remains in the list of workers for now: %s", self._worker, error.message)

    async def _beat(self, health: Health) -> None:
        try:
            await self._send(health)
        except HeliographError as error:
            self._warn("no heartbeat", error)
        else:
            self._outages.end("heartbeat")
            self._log_turns(health)

    def _assess(self, late_seconds: float) -> Health:
        metrics = {**self._registration.read_metrics(), "pending_tasks": len(self._running)}
        return assess(metrics, late_seconds, self._lease_seconds)

    async def _send(self, health: Health) -> None:
        registration, policy = self._registration, self._registration.policy
        oldest = next(iter(self._running.values()), None)
        await self._within_timeout(self._ledger.beat({
            "worker": self._worker, "projects": self._projects, "label": registration.label, "version": registration.version,
            "capabilities": list(registration.capabilities), "pools": list(registration.pools),
            "metadata": registration.metadata, "slots": self._slots,
            "slots_used": len(self._running), "interval_seconds": policy.interval_seconds if policy.is_enabled else None,
            "missed_threshold": policy.missed_threshold, "phase": IDLE if oldest is None else oldest.phase,
            "status": health.status, "metrics": health.metrics, "warnings": list(health.warnings),
        }))  # fmt: skip

    async def _within_timeout(self, call: Awaitable[None]) -> None:
        await self._world.within(self._registration.policy.timeout_seconds, call)

    def _log_turns(self, health: Health) -> None:
        """Record the heartbeat in the runs of long turns, with their other signals; see `is_logged`."""
        logged: dict[TurnRunner, str | None] = {}
        for runner in self._running.values():
            logged[runner] = self._logged.get(runner)
            if is_logged(runner in self._logged, logged[runner], health.status):
                logged[runner] = health.status
                runner.signals.add_urgent(self._draft(runner, health))
        self._logged = logged

    def _draft(self, runner: TurnRunner, health: Health) -> Draft:
        now = self._world.now()
        payload = {**health.payload(now, runner.phase), "interval_seconds": self._registration.policy.interval_seconds,
                   "worker": self._worker}  # fmt: skip
        return Draft("heartbeat", payload, runner.claimed.agent, runner.claimed.activation_id, now)

    def _warn(self, problem: str, error: HeliographError) -> None:
        if self._outages.is_due("heartbeat", self._world.monotonic()):
            log.warning("%s: %s", problem, error.message)
