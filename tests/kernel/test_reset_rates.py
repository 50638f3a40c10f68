"""reset_rate: a bucket forgets the tokens of calls that ended before their start, and no window has too many starts (G-24)."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.kernel.circuits import ERROR
from tests.kernel.filled import RATE
from tests.kernel.kit import Item, Kernel, stopping
from tests.kernel.test_rate_limits import bucket, most_in_window, seconds, start_of
from tests.kernel.waits import activated, child, command, record, suspend

HOUR = 3600
HOURLY = {**RATE, "count": 1, "seconds": HOUR}
LONG = 1000.0 * HOUR


async def reset(kernel: Kernel, kind: str = "tool", name: str = "search") -> str:
    statement = "select heliograph.reset_rate($1, $2, $3, $4)::text"
    return str(json.loads(await kernel.connection.fetchval(statement, kernel.project, kind, name, kernel.now)))


async def hours(kernel: Kernel, claimed: Item, call_id: str, rate: Item = HOURLY) -> float:
    """The start of a new call, in hours after the start of the test."""
    return float(await start_of(kernel, claimed, call_id, rate, timeout_seconds=LONG)) / HOUR


async def waiting(kernel: Kernel, turn_id: str, *calls: Item, **fields: Any) -> None:
    """Suspend a turn of a run of its own for these calls."""
    claimed = await kernel.running(turn_id.replace("turn", "run"), turn_id)
    assert (await suspend(kernel, claimed, *calls, **fields))["outcome"] == "suspended"


async def stop(kernel: Kernel, turn_id: str) -> None:
    await kernel.call("stop", [stopping(turn_id)])


def commands(count: int) -> list[Item]:
    return [command(f"c{n}", LONG, rates=[HOURLY]) for n in range(count)]


@pytest.mark.proves("G-24")
async def test_tokens_of_stopped_calls_come_back_and_those_of_calls_that_started_do_not(kernel: Kernel) -> None:
    await waiting(kernel, "turn_b", *commands(100))
    assert len(await kernel.call("take_commands", ["search"], 9, 60.0)) == 1
    await stop(kernel, "turn_b")
    claimed = await kernel.running()
    assert await hours(kernel, claimed, "a0") == 100
    assert await reset(kernel) == "unchanged"  # a0 waits for its start
    await record(kernel, claimed, "a0", None, status="canceled", error=ERROR)
    assert [await reset(kernel), await reset(kernel)] == ["reset", "unchanged"]
    assert await hours(kernel, claimed, "a1") == 1


@pytest.mark.proves("G-24")
async def test_calls_that_may_still_start_keep_their_tokens(kernel: Kernel) -> None:
    await waiting(kernel, "turn_b", *commands(2))
    await waiting(kernel, "turn_c", *commands(3))
    await stop(kernel, "turn_b")
    assert await reset(kernel) == "unchanged"
    claimed = await kernel.running()
    assert await hours(kernel, claimed, "a0") == 5
    await stop(kernel, "turn_a")
    assert await reset(kernel) == "reset"
    assert await hours(kernel, await kernel.running("run_d", "turn_d"), "d0") == 5


@pytest.mark.proves("G-24")
async def test_call_that_a_worker_with_a_fast_clock_made_keeps_its_token(kernel: Kernel) -> None:
    agent = {**HOURLY, "kind": "agent", "name": "critic"}
    children = [{**child(f"d{n}", "critic", f"turn_d{n}", n), "rates": [agent]} for n in range(2)]
    claimed = await kernel.running()
    await waiting(kernel, "turn_b", *commands(2), *children, signals=activated("critic", "critic"))
    assert await hours(kernel, claimed, "a0", {**HOURLY, "name": "inline"}) == 0
    kernel.wait(HOUR)  # the clock of a worker, an hour ahead
    assert len(await kernel.call("take_commands", ["search"], 9, 60.0)) == 2
    for turn in await kernel.claim(5):
        await kernel.finish(turn)
    (second,) = await kernel.claim(5)
    await kernel.finish(second)
    assert await hours(kernel, claimed, "a1", {**HOURLY, "name": "inline"}) == 1
    await stop(kernel, "turn_a")
    await stop(kernel, "turn_b")
    kernel.wait(-HOUR)
    for kind, name in (("tool", "search"), ("agent", "critic"), ("tool", "inline")):
        before = await bucket(kernel, name)
        assert await reset(kernel, kind, name) == "unchanged"
        assert await bucket(kernel, name) == before


@pytest.mark.proves("G-24")
async def test_child_that_was_stopped_before_its_start_gives_its_token_back(kernel: Kernel) -> None:
    rate = {**HOURLY, "kind": "agent", "name": "critic"}
    children = [
        {**child(f"d{n}", "critic", f"turn_d{n}", n, LONG, ttl_seconds=LONG), "rates": [rate]} for n in range(9)
    ]
    await waiting(kernel, "turn_b", *children, signals=activated(*["critic"] * 9))
    await stop(kernel, "turn_b")
    assert await reset(kernel, "agent", "critic") == "unchanged"  # the children are not stopped yet
    for n in range(9):
        await stop(kernel, f"turn_d{n}")
    assert await reset(kernel, "agent", "critic") == "reset"
    assert await hours(kernel, await kernel.running(), "a0", rate) == 1


async def test_bucket_that_no_call_uses_is_unknown(kernel: Kernel) -> None:
    assert await reset(kernel) == "unknown"


@pytest.mark.proves("G-24")
@pytest.mark.more
async def test_no_window_has_too_many_starts_although_buckets_are_reset(kernel: Kernel) -> None:
    """Calls of commands wait, are taken or are stopped, in any order; resets follow at any time."""
    dice, rate, starts = random.Random(24), {**RATE, "count": 3, "seconds": 3}, list[tuple[float, int]]()
    turns, answers = list[str](), set[str]()
    for n in range(150):
        if dice.random() < 0.6:
            turns.append(f"turn_{n}")
            await waiting(kernel, turns[-1], *(command(f"c{m}", LONG, rates=[rate]) for m in range(dice.randint(1, 4))))
        if turns and dice.random() < 0.4:
            await stop(kernel, turns.pop(dice.randrange(len(turns))))
        answers.add(await reset(kernel) if dice.random() < 0.3 else "none")
        kernel.wait(dice.choice([0, 0.5, 1, 2]))
        taken = [
            row["turn_id"] + row["call_id"] for row in await kernel.call("take_commands", ["search"], 99, 80_000.0)
        ]
        rows = await kernel.rows(
            "turn_waiting_tools", "rate, agent_turn_id || tool_call_id as call", "rate is not null"
        )
        starts += [(seconds(row["rate"]["starts_at"]), 1) for row in rows if row["call"] in taken]
    assert answers >= {"reset", "unchanged"}
    assert len(starts) > 50
    for length in range(1, 40):
        assert most_in_window(starts, length) <= 3 + length
