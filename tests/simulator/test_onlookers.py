"""A worker that cannot sign gives a callback up only when those that can had the time to come: in simulated time, on the twin."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from heliograph.errors import StoreUnavailable
from heliograph.execution.project_services import ProjectServices
from heliograph.ledger.client import Ledger
from heliograph.policy.callbacks import ONLOOKER_SECONDS, UNTRIED_SECONDS_MAX
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.worker.sweeps import Watchdog
from heliograph.world.seam import World

pytestmark = pytest.mark.proves("S11", "CTL-23")

FRIDAY = datetime(2026, 1, 2, 18, tzinfo=UTC)
WEEKEND = timedelta(days=2, hours=14)


class Clocked:
    """As much of a world as the sweeps need, whose clock stands still until it is told. up: the monotonic clock."""

    def __init__(self, twin: InMemoryKernel):
        self.twin = twin
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
        return self.twin.call(function, args, self.at)

    async def passes(self, watchdog: Watchdog, seconds: float) -> None:
        """So much time, in which the watchdog sweeps each minute."""
        for _ in range(int(seconds // 60)):
            self.at += timedelta(minutes=1)
            self.up += 60.0
            await watchdog.sweep()


@pytest.fixture
def world(twin: InMemoryKernel) -> Clocked:
    """A run that ended on Friday evening, and whose callback nobody has sent."""
    twin.reset()
    ends = {"run_id": "run_1", "target": "a", "request_hash": "h", "agents": [], "callback_url": "https://x.example/",
            "signals": [{"name": "workflow:start"}, {"name": "workflow:end", "parent": 0}], "reaction": {"version": 0, "status": "ended", "outcome": "success"}}  # fmt: skip
    assert twin.call("start_runs", ("p", [ends]), FRIDAY)[0]["outcome"] == "started"
    assert state(twin) == "due"
    return Clocked(twin)


def watchdog(world: Clocked) -> Watchdog:
    """Of a worker without a secret that starts now."""
    return Watchdog(
        [ProjectServices(cast(World, world), Ledger(cast(World, world), "p"), {}, lambda model: cast(Any, None))]
    )


def state(twin: InMemoryKernel) -> str:
    [row] = twin.dump("p")["callbacks"]
    return str(row["state"])


async def test_first_worker_back_after_a_weekend_keeps_callbacks_for_workers_that_can_sign(
    world: Clocked,
) -> None:
    assert WEEKEND.total_seconds() > UNTRIED_SECONDS_MAX
    world.at += WEEKEND
    first = watchdog(world)
    await first.sweep()
    await world.passes(first, ONLOOKER_SECONDS - 60)
    assert state(world.twin) == "due"
    await world.passes(first, 60)  # and nobody came
    assert state(world.twin) == "dead"


@pytest.mark.parametrize("asleep", [False, True], ids=["the database was away", "the machine was asleep"])
async def test_what_was_away_with_the_others_begins_to_look_on_anew(world: Clocked, asleep: bool) -> None:
    watches = watchdog(world)
    await watches.sweep()
    await world.passes(watches, 2 * ONLOOKER_SECONDS)
    world.at += WEEKEND
    if not asleep:
        world.up += WEEKEND.total_seconds()
        world.is_away = True
        with pytest.raises(StoreUnavailable):
            await watches.sweep()
        world.is_away = False
    await watches.sweep()
    await world.passes(watches, ONLOOKER_SECONDS - 60)
    assert state(world.twin) == "due"
    await world.passes(watches, 60)
    assert state(world.twin) == "dead"
