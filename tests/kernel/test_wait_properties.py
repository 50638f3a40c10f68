"""Reports, timeouts, duplicates, claims and crashes in any order: each call is resolved once, each join resumes once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.testing.database import TestServer
from tests.grids import share_of_examples
from tests.kernel.kit import Item, Kernel, connect, new_project
from tests.kernel.waits import TOKEN, command, report, suspend, timer, tool

CALLS = ("c1", "c2", "c3", "c4")

pytestmark = pytest.mark.parametrize("postgres", [18], indirect=True)


def opened(call_id: str) -> Item:
    """Four kinds of calls: with a token, with a deadline, a timer, and one that only a report resolves."""
    return {"c1": command("c1", None), "c2": tool("c2", 30), "c3": timer("c3", 20), "c4": tool("c4", None)}[call_id]


# The possible next events. A report of a timer is rejected, and so is one with a wrong token.
events = st.one_of(
    st.tuples(st.just("report"), st.sampled_from(CALLS), st.sampled_from([TOKEN, None, "forged"])),
    st.tuples(st.just("wait"), st.sampled_from([1, 11, 40])),
    st.sampled_from([("sweep",), ("claim",), ("suspend",), ("crash",), ("defer",), ("relay",)]),
)


class World:
    """A turn that waits for calls, with its worker, tools and clients. It counts events by the answers of the kernel."""

    def __init__(self, kernel: Kernel, join: str):
        self.kernel = kernel
        self.join = join
        self.claimed: Item | None = None
        self.resolved: Counter[str] = Counter()  # counted from the answers
        self.resumed = 0
        self.slept = 0
        self.known_statuses: dict[str, Any] = {}  # call -> status, as the owner received it
        self.early: set[str] = set()  # calls with a stored early report that will count

    async def begin(self) -> None:
        self.claimed = await self.kernel.running(max_attempts=1000, ttl_seconds=1e6)
        self.known_statuses = {}

    async def step(self, event: tuple[Any, ...]) -> None:
        await getattr(self, event[0])(*event[1:])

    async def report(self, call_id: str, token: str | None) -> None:
        answer = await report(self.kernel, "turn_a", call_id, {"by": token}, token=token)
        if answer["outcome"] == "applied":
            assert call_id != "c3"
            assert call_id != "c1" or token == TOKEN
            self.resolved[call_id] += 1
        elif answer["outcome"] == "early" and call_id != "c3" and (call_id != "c1" or token == TOKEN):
            self.early.add(call_id)
        await self.count_resumed(answer["resumed"])

    async def count_resumed(self, times: int) -> None:
        self.resumed += times
        if times and self.join == "all":
            assert None not in (await self.statuses()).values()

    async def wait(self, seconds: int) -> None:
        self.kernel.wait(seconds)

    async def sweep(self) -> None:
        before = await self.statuses()
        swept = await self.kernel.sweep("waits")
        assert swept["failed"] == []
        for call, how in (await self.statuses()).items():
            if how != before.get(call):
                assert (before[call], how) == (None, "success" if call == "c3" else "timeout")
                self.resolved[call] += 1
        await self.count_resumed(len(swept["resumed"]))
        await self.kernel.sweep("leases")
        await self.kernel.sweep("stuck")

    async def claim(self) -> None:
        for claimed in await self.kernel.claim(lease=10):
            self.claimed = claimed
            self.learn(claimed.get("waits", []))

    async def suspend(self) -> None:
        if self.claimed is None:
            return
        calls = [opened(call) for call in CALLS[: 2 + len(self.known_statuses) % 3]]  # more and more of them
        before = await self.statuses()
        seen = max([await self.position(call) for call in self.known_statuses], default=0)
        answer = await suspend(self.kernel, self.claimed, *calls, join=self.join, seen=seen)
        after = await self.statuses()
        for call, how in after.items():
            if how is not None and before.get(call) is None:
                self.resolved[call] += 1  # an early report
        if answer["outcome"] != "stale":
            assert self.early & after.keys() <= self.known(after)
        if answer["outcome"] == "suspended":
            self.slept += 1
            assert self.join == "all" or self.known(after) == self.known(self.known_statuses)
        elif answer["outcome"] == "resolved":
            self.learn(answer["waits"])
            return
        self.claimed = None  # it is stale, or gone to sleep

    async def crash(self) -> None:
        self.claimed = None
        self.kernel.wait(11)
        await self.kernel.sweep("leases")

    async def defer(self) -> None:
        if self.claimed is not None:
            item = {key: self.claimed[key] for key in ("agent_id", "turn_id", "epoch")} | {
                "reason": "busy", "delay_seconds": 1, "deferrals_max": 1000,
            }  # fmt: skip
            await self.kernel.call("defer", [item])
            self.claimed = None
            self.kernel.wait(1)

    async def relay(self) -> None:
        await self.kernel.publish()

    def learn(self, waits: list[Item]) -> None:
        self.known_statuses = {each["call_id"]: each["status"] for each in waits if each["status"]}

    @staticmethod
    def known(statuses: dict[str, Any]) -> set[str]:
        return {call for call, how in statuses.items() if how is not None}

    async def statuses(self) -> dict[str, Any]:
        rows = await self.kernel.rows("turn_waiting_tools", "tool_call_id, status")
        return {row["tool_call_id"]: row["status"] for row in rows}

    async def position(self, call_id: str) -> int:
        (row,) = await self.kernel.rows("turn_waiting_tools", "resolved_position", "tool_call_id = $2", call_id)
        return int(row["resolved_position"])

    async def settle(self) -> None:
        """Everybody does their duty until the turn has all its results."""
        for _ in range(12):
            if len(self.known(await self.statuses())) == len(CALLS):
                break
            await self.claim()
            await self.suspend()
            for call in CALLS:
                await self.report(call, TOKEN)
            self.kernel.wait(40)
            await self.sweep()
        await self.claim()
        assert self.claimed is not None
        answer = await suspend(self.kernel, self.claimed, *(opened(call) for call in CALLS))
        if answer["outcome"] == "suspended":  # it had opened only some of them
            for call in CALLS:
                await self.report(call, TOKEN)
            self.kernel.wait(40)
            await self.sweep()
            await self.claim()
        elif answer["outcome"] == "resolved":
            self.learn(answer["waits"])


@pytest.fixture(scope="module")
def url(postgres: TestServer) -> Iterator[str]:
    made = asyncio.run(postgres.create())
    yield made
    asyncio.run(postgres.drop(made))


@pytest.mark.more
@pytest.mark.proves("K4", "K5", "K15", "K16", "L0-112", "G-73", "L0-61", "L0-62", "L0-63")
@share_of_examples(60)
@given(script=st.lists(events, max_size=25), join=st.sampled_from(["all", "each"]), is_suspended=st.booleans())
def test_each_call_is_resolved_once_in_any_order_of_events(
    url: str, script: list[tuple[Any, ...]], join: str, is_suspended: bool
) -> None:
    asyncio.run(_play(url, [("suspend",)] * is_suspended + script, join))


async def _play(url: str, script: list[tuple[Any, ...]], join: str) -> None:
    connection = await connect(url)
    kernel = Kernel(connection, new_project())
    world = World(kernel, join)
    await world.begin()
    for event in script:
        await world.step(event)
        assert max(world.resolved.values(), default=0) <= 1, world.resolved
    await world.settle()
    assert {call: how is not None for call, how in (await world.statuses()).items()} == dict.fromkeys(CALLS, True)
    rows = await kernel.rows("agent_inbox", "correlation_id", "applied")
    assert sorted(row["correlation_id"] for row in rows) == list(CALLS)
    positions = [row["resolved_position"] for row in await kernel.rows("turn_waiting_tools", "resolved_position")]
    assert sorted(positions) == [1, 2, 3, 4]
    assert (await kernel.names("run_a")).count("tool:result") == 4
    (first,) = await kernel.rows("cards", "content", "card_id = 'card:turn_a:call:c1'")
    assert first["content"]["output"] == {"by": TOKEN}
    if join == "all":
        assert world.resumed == world.slept  # each sleep ends once
    assert await kernel.call("doctor", False) == []
    await connection.close()
