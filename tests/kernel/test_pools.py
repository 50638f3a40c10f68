"""Pools: a turn or a command is for the workers of one pool, which the commit that writes it chooses (RTE-05)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kit import TARGET, Item, Kernel, turn_item
from tests.kernel.test_dispatch_timeout import limited, swept
from tests.kernel.waits import activated, child, command, suspend, suspended


async def claimed(kernel: Kernel, *pools: str, limit: int = 10) -> list[str]:
    targets: list[Any] = [{"target": TARGET, "pool": pool} for pool in pools] or [{"target": TARGET}]
    return [each["turn_id"] for each in await kernel.call("claim", targets, "worker-1", limit, 30.0)]


@pytest.mark.proves("RTE-05")
async def test_claim_takes_only_turns_of_its_pools(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.start("run_b", ["painter"], {"turn_b": "painter"}, pool="gpu")
    assert await claimed(kernel, "gpu") == ["turn_b"]
    assert await claimed(kernel, "gpu") == []
    assert await claimed(kernel) == ["turn_a"]
    await kernel.start("run_c", ["painter"], {"turn_c": "painter"}, pool="gpu")
    await kernel.start("run_d", ["writer"], {"turn_d": "writer"})
    assert sorted(await claimed(kernel, "gpu", "default")) == ["turn_c", "turn_d"]
    assert await kernel.checks() == []


@pytest.mark.proves("RTE-05")
async def test_deferred_turn_and_recovered_turn_remain_in_their_pool(kernel: Kernel) -> None:
    await kernel.start("run_a", ["painter"], {"turn_a": "painter"}, pool="gpu")
    [item] = await kernel.call("claim", [{"target": TARGET, "pool": "gpu"}], "worker-1", 1, 30.0)
    [answer] = await kernel.call("defer", [turn_item(item, reason="later", delay_seconds=5.0)])
    assert answer["outcome"] == "deferred"
    kernel.wait(5)
    assert await claimed(kernel) == []
    assert await claimed(kernel, "gpu") == ["turn_a"]
    kernel.wait(31)
    assert (await kernel.sweep("leases"))["targets"] == [f"{TARGET}/gpu"]
    assert await claimed(kernel) == []
    assert await claimed(kernel, "gpu") == ["turn_a"]


@pytest.mark.proves("RTE-05")
async def test_queued_turns_of_one_agent_keep_the_pool_that_each_was_written_with(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    for n, pool in enumerate(("gpu", None, "gpu"), 1):
        await kernel.enqueue("run_a", "writer", f"turn_{n}", **({} if pool is None else {"pool": pool}))
    [item] = await kernel.call("claim", [{"target": TARGET}], "worker-1", 1, 30.0)
    for pool, other, turn_id in (
        ("gpu", "default", "turn_1"),
        ("default", "gpu", "turn_2"),
        ("gpu", "default", "turn_3"),
    ):
        await kernel.finish(item, version=(await kernel.run("run_a"))["version"])
        assert await claimed(kernel, other) == []
        [item] = await kernel.call("claim", [{"target": TARGET, "pool": pool}], "worker-1", 1, 30.0)
        assert item["turn_id"] == turn_id
    assert await kernel.checks() == []


@pytest.mark.proves("RTE-05", "RTE-06")
@pytest.mark.parametrize("instance", [None, "desk"])
async def test_child_has_the_pool_and_the_priority_of_the_commit_that_suspends_its_parent(
    kernel: Kernel, instance: str | None
) -> None:
    item = await kernel.running()
    delegation = child("c1", "critic", "turn_child", pool="gpu", priority=3, instance=instance)
    answer = await suspend(kernel, item, delegation, signals=activated("critic"))
    assert (answer["outcome"], answer["targets"]) == ("suspended", [f"{TARGET}/gpu"])
    assert await claimed(kernel) == []
    [got] = await kernel.call("claim", [{"target": TARGET, "pool": "gpu"}], "worker-1", 1, 30.0)
    assert (got["turn_id"], got["priority"]) == ("turn_child", 3)
    assert (await kernel.turn("turn_child"))["pool"] == "gpu"


@pytest.mark.proves("RTE-05")
async def test_bells_name_the_queue_of_each_pool(kernel: Kernel) -> None:
    answer = await kernel.start("run_a", ["writer", "painter"], {"turn_a": "writer"})
    assert answer["targets"] == [TARGET]
    assert (await kernel.enqueue("run_a", "painter", "turn_p", pool="gpu"))["targets"] == [f"{TARGET}/gpu"]
    for n in range(3):
        await kernel.start(f"run_{n}", ["writer"], {f"turn_{n}": "writer"}, pool=f"p{n}")
    kernel.wait(5)
    assert await kernel.call("sweep_bells", 1.0) == [TARGET, f"{TARGET}/gpu", *(f"{TARGET}/p{n}" for n in range(3))]


@pytest.mark.proves("RTE-05", "K20")
async def test_timeout_of_an_unclaimed_turn_names_its_pool(kernel: Kernel) -> None:
    await limited(kernel)
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"}, pool="gpu")
    kernel.wait(30)
    assert await swept(kernel) == ["turn_a"]
    turn = await kernel.turn("turn_a")
    [card] = await kernel.rows("cards", "content", "agent_turn_id = $2", turn["agent_turn_id"])
    assert card["content"]["error"]["message"] == "no worker of pool gpu claimed it within 30 s (dispatch_seconds_max)"


async def taken(kernel: Kernel, *tools: str | Item, limit: int = 10) -> list[str]:
    return [each["call_id"] for each in await kernel.call("take_commands", list(tools), limit, 30.0)]


@pytest.mark.proves("RTE-05", "RTE-06")
async def test_tool_takes_the_commands_of_its_pool_by_priority(kernel: Kernel) -> None:
    routes: list[Item] = [{}, {"pool": "gpu"}, {"pool": "gpu", "priority": 3}, {"priority": 0}, {"priority": 2}]
    calls = [command(f"c{n}") for n in range(len(routes))]
    for call, route in zip(calls, routes, strict=True):
        call["command"] |= route
    await suspended(kernel, *calls)
    assert await taken(kernel, {"tool": "search", "pool": "gpu"}) == ["c2", "c1"]
    assert await taken(kernel, "search", limit=1) == ["c4"]
    assert await taken(kernel, "search") == ["c0", "c3"]
    assert await kernel.checks() == []
