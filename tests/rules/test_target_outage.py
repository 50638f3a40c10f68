"""A target that is unavailable: its runs pause together, one of them tries again, and no signal is skipped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.adapters.base import AdapterServices, Receive, TargetGone, TargetUnavailable
from heliograph.cli.send_signals import _result
from heliograph.definitions.signal_subscribers import signal_subscriber
from heliograph.errors import StoreUnavailable
from heliograph.policy.retry import RetryPolicy
from heliograph.signals.model import Signal
from heliograph.subscriptions import target_outage
from heliograph.subscriptions.deliveries import RUNS_MAX, Deliveries
from heliograph.world.real import RealWorld


class Log:
    """A kernel with one signal in each of some runs, which a failed delivery returns to it."""

    def __init__(self, runs: int):
        self.waiting = [f"r{n}" for n in range(runs)]
        self.limits: list[int] = []

    async def call(self, function: str, *arguments: Any) -> Any:
        if function == "take_signals":
            limit = arguments[3]
            self.limits.append(limit)
            taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
            return {"outcome": "taken", "more": False, "due_seconds": None, "runs": [
                {"run_id": run_id, "after": 0, "upto": 1, "pruned": 0, "signals": [{
                    "id": f"sig_{run_id}_1", "run_id": run_id, "seq": 1, "name": "a:b", "payload": {}, "agent": None, "parent": None,
                    "turn_id": None, "timestamp": "2026-01-01T00:00:00+00:00"}]} for run_id in taken]}  # fmt: skip
        if function == "record_positions":
            self.waiting += [item["run_id"] for item in arguments[1] if item["position"] == 0]
            return [{"run_id": item["run_id"], "outcome": "ok"} for item in arguments[1]]
        return "01" * 32


class Target:
    """Raises the errors in turn, then accepts. accepted: run ids."""

    kind, page, target = "test", 200, "the test"

    def __init__(self, *errors: Exception):
        self.errors = list(errors)
        self.accepted: list[str] = []

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: Any) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            if self.errors:
                raise self.errors.pop(0)
            self.accepted += [signal.run_id for signal in signals]

        yield receive


async def opened(log: Log, target: Target) -> Deliveries:
    world = RealWorld(log, None)  # type: ignore[arg-type]
    await world.bells.learn("one")
    return Deliveries(AdapterServices(world, "one"), signal_subscriber("s", ["**"], target, "now", 1))


async def test_runs_pause_together_until_one_succeeds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RetryPolicy(initial_delay_seconds=0.02, max_delay_seconds=0.04, jitter=False)
    monkeypatch.setattr(target_outage, "PAUSES", policy)
    log, target = Log(20), Target(*[TargetUnavailable("it is away")] * (RUNS_MAX + 1))
    deliveries = await opened(log, target)
    with caplog.at_level(logging.INFO, "heliograph.subscriptions"):
        task = asyncio.create_task(deliveries.run())
        async with asyncio.timeout(20):
            while len(target.accepted) < 20:  # noqa: ASYNC110  nothing announces that a run is delivered
                await asyncio.sleep(0.01)
            deliveries.drain()
            await task
    assert log.limits[:4] == [RUNS_MAX, 1, 1, RUNS_MAX]
    assert sorted(target.accepted) == sorted(f"r{n}" for n in range(20))
    assert deliveries.skipped == 0
    assert [record.getMessage() for record in caplog.records] == [
        "subscription s: it is away; its signals wait in the log",
        "subscription s continues",
    ]


async def test_end_does_not_wait_for_an_unavailable_target() -> None:
    log, target = Log(3), Target(*[TargetUnavailable("it is away", 3600.0)] * 3)
    deliveries = await opened(log, target)
    deliveries.drain()
    async with asyncio.timeout(20):
        await deliveries.run()
    assert deliveries.is_behind
    assert deliveries.outage.left_seconds > 3000
    assert sorted(log.waiting) == ["r0", "r1", "r2"]


async def test_end_without_the_database_is_no_success() -> None:
    class Down(Log):
        async def call(self, function: str, *arguments: Any) -> Any:
            if function == "take_signals":
                raise StoreUnavailable("it is down")
            return await super().call(function, *arguments)

    deliveries = await opened(Down(1), Target())
    deliveries.drain()
    await deliveries.run()
    with pytest.raises(StoreUnavailable, match="it is down"):
        _result(deliveries)


async def test_target_that_is_gone_ends_the_deliveries_and_keeps_the_signals() -> None:
    log, target = Log(1), Target(TargetGone("it is gone"))
    deliveries = await opened(log, target)
    with pytest.raises(TargetGone, match="it is gone"):
        await deliveries.run()
    assert log.waiting == ["r0"]
