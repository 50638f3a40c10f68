from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.simulator.event_loop import SimDeadlock, SimLoop
from heliograph.testing.simulator.plan import Plan


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(lambda count: 0)
    yield made
    made.drop_everything()
    made.close()


def test_simulated_hour_passes_at_once(loop: SimLoop) -> None:
    loop.run_until_complete(asyncio.sleep(3600))
    assert loop.time() == 3600


def test_killed_process_runs_no_further_line(loop: SimLoop) -> None:
    lines: list[str] = []

    async def work() -> None:
        try:
            lines.append("began")
            await asyncio.sleep(5)
            lines.append("went on")
        finally:
            lines.append("tidied up")

    async def steps() -> list[str]:
        process = loop.open_process("p")
        loop.spawn(process, "work", work())
        await asyncio.sleep(1)
        loop.kill(process)
        await process.ended
        await asyncio.sleep(10)
        return list(lines)

    assert loop.run_until_complete(steps()) == ["began"]


def test_frozen_process_continues_late_and_in_order(loop: SimLoop) -> None:
    wakeups: list[tuple[str, float]] = []

    async def work(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        wakeups.append((name, loop.time()))

    async def steps() -> None:
        process = loop.open_process("p")
        for name, seconds in (("b", 2.0), ("a", 1.0), ("late", 20.0)):
            loop.spawn(process, name, work(name, seconds))
        await asyncio.sleep(0.5)
        loop.freeze(process, 10.0)
        await asyncio.sleep(30)

    loop.run_until_complete(steps())
    assert wakeups == [("a", 10.5), ("b", 10.5), ("late", 20.0)]


def test_endless_wait_raises_a_deadlock(loop: SimLoop) -> None:
    async def steps() -> None:
        await loop.create_future()

    with pytest.raises(SimDeadlock):
        loop.run_until_complete(steps())


def test_masking_one_fault_shifts_no_other() -> None:
    def fired(faults: frozenset[str] | None = None) -> list[str]:
        plan = Plan(1, {"crash": 0.3}, horizon_seconds=10.0, faults=faults)
        for n in range(40):
            plan.fault(f"w{n % 3}/claim", ("crash",), now=0.0)
        return plan.fired

    everything = fired()
    assert len(everything) > 3
    kept = frozenset(everything) - {everything[1]}
    assert fired(kept) == [fault for fault in everything if fault in kept]


def test_plan_injects_no_fault_after_the_horizon_except_lost_bells() -> None:
    plan = Plan(1, {"crash": 1.0, "bell_lost": 1.0}, horizon_seconds=10.0)
    assert plan.fault("w0/claim", ("crash",), now=10.1) is None
    assert plan.fault("w0/bell", ("bell_lost",), now=10.1) == "bell_lost"
