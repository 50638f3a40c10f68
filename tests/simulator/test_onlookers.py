"""A worker without a signing secret gives a callback up only after others had time to send it. The time is simulated."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from heliograph.errors import StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.client import Ledger
from heliograph.policy.callbacks import ONLOOKER_SECONDS, UNTRIED_SECONDS_MAX
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.worker.watchdog import Watchdog
from heliograph.world.seam import World

pytestmark = pytest.mark.proves("S11", "CTL-23")

FRIDAY = datetime(2026, 1, 2, 18, tzinfo=UTC)
WEEKEND = timedelta(days=2, hours=14)
SWEEP_SECONDS = 240  # shorter than AWAY_SECONDS


class Clocked:
    """The part of a world that the sweeps need; only the test moves its clock. up: the monotonic clock."""

    def __init__(self, backend: PostgresBackend):
        self.backend = backend
        self.at = FRIDAY
        self.up = 0.0
        self.is_away = False

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.up

    def ring(self, keys: Iterable[str]) -> None:
        assert not list(keys)

    async def call(self, function: str, *args: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("the database is away")
        return self.backend.call(function, args, self.at)

    async def passes(self, watchdog: Watchdog, seconds: float) -> None:
        """Let the time pass, with a sweep every four minutes."""
        for _ in range(int(seconds // SWEEP_SECONDS)):
            self.at += timedelta(seconds=SWEEP_SECONDS)
            self.up += SWEEP_SECONDS
            await watchdog.sweep()


@pytest.fixture
def world(real: PostgresBackend) -> Clocked:
    """A run that ended on Friday evening; its callback is not sent."""
    real.reset()
    ends = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": [], "callback_url": "https://x.example/",
            "signals": [{"name": "workflow:start"}, {"name": "workflow:end", "parent": 0}], "reaction": {"status": "ended", "outcome": "success"}}  # fmt: skip
    assert real.call("start_runs", ("p", [ends]), FRIDAY)[0]["outcome"] == "started"
    assert state(real) == "due"
    return Clocked(real)


def watchdog(world: Clocked) -> Watchdog:
    """The watchdog of a worker without a secret that starts now."""
    return Watchdog([ProjectServices(cast(World, world), Ledger(cast(World, world), "p"), {})])


def state(backend: PostgresBackend) -> str:
    [row] = backend.dump("p")["callbacks"]
    return str(row["state"])


async def test_first_worker_back_after_a_weekend_keeps_callbacks_for_workers_that_can_sign(
    world: Clocked,
) -> None:
    assert WEEKEND.total_seconds() > UNTRIED_SECONDS_MAX
    world.at += WEEKEND
    first = watchdog(world)
    await first.sweep()
    await world.passes(first, ONLOOKER_SECONDS - SWEEP_SECONDS)
    assert state(world.backend) == "due"
    await world.passes(first, SWEEP_SECONDS)  # and no worker came
    assert state(world.backend) == "dead"


@pytest.mark.parametrize("host_was_suspended", [False, True], ids=["the database was away", "the machine was asleep"])
async def test_watchdog_restarts_its_count_after_an_absence_of_all_workers(
    world: Clocked, host_was_suspended: bool
) -> None:
    watches = watchdog(world)
    await watches.sweep()
    await world.passes(watches, 2 * ONLOOKER_SECONDS)
    world.at += WEEKEND
    if not host_was_suspended:
        world.up += WEEKEND.total_seconds()
        world.is_away = True
        with pytest.raises(StoreUnavailable):
            await watches.sweep()
        world.is_away = False
    await watches.sweep()
    await world.passes(watches, ONLOOKER_SECONDS - SWEEP_SECONDS)
    assert state(world.backend) == "due"
    await world.passes(watches, SWEEP_SECONDS)
    assert state(world.backend) == "dead"
