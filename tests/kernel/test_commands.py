"""take_commands: tools fetch their work. A command exists until its call is resolved (K18)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from heliograph.policy.retry import RetryPolicy
from tests.kernel.kit import START, Connect, Item, Kernel, new_project
from tests.kernel.waits import TOKEN, command, report, suspended, tool

# what the call has, and its row in the outbox does not repeat
WHOLE = {
    "tool_call_id": "c1", "agent_turn_id": "turn_a", "turn_epoch": 2, "agent_id": "run_a/writer", "run_id": "run_a",
    "step_id": None, "tool_name": "search", "after_execution": "suspend",
}  # fmt: skip


async def take(kernel: Kernel, *tools: str, limit: int = 10, seconds: float = 30.0) -> list[Item]:
    taken: list[Item] = await kernel.call("take_commands", list(tools or ["search"]), limit, seconds)
    return taken


def calls(taken: list[Item]) -> list[str]:
    return [each["call_id"] for each in taken]


@pytest.mark.proves("K18", "L0-51")
async def test_tool_gets_its_command_with_everything_needed_to_report(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", 90, subject=None), command("c2") | {"tool": "another"}, tool("c3"))
    (taken,) = await take(kernel)
    assert taken == {
        "turn_id": "turn_a", "call_id": "c1", "tool": "search", "body": WHOLE | {"query": "c1", "token": TOKEN},
        "deadline": (START + timedelta(seconds=90)).isoformat(), "delivery": 1,
    }  # fmt: skip
    (row,) = await kernel.rows("outbox", "body", "call_id = 'c1'")
    assert row["body"] == {"query": "c1", "token": TOKEN}
    answer = await report(kernel, taken["turn_id"], taken["call_id"], token=taken["body"]["token"])
    assert answer["outcome"] == "applied"


@pytest.mark.proves("L0-51")
async def test_command_that_an_earlier_version_stored_with_its_call_remains_as_it_is(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    await kernel.call("declare_wire", "nats")
    body = {**WHOLE, "step_id": "s1", "tool_name": "charge", "query": "c1"}
    await kernel.connection.execute(
        "update heliograph.outbox set body = $2 where project_id = $1", kernel.project, body
    )
    (sent,) = await kernel.call("read_outbox", 10)
    (taken,) = await take(kernel)
    assert sent["body"] == taken["body"] == body


@pytest.mark.proves("K18")
async def test_command_is_hidden_for_a_while_and_redelivered_until_it_is_answered(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    assert [each["delivery"] for each in await take(kernel, seconds=30)] == [1]
    kernel.wait(29)
    assert await take(kernel) == []
    kernel.wait(1)
    assert [each["delivery"] for each in await take(kernel, seconds=30)] == [2]
    await report(kernel, "turn_a", "c1", token=TOKEN)
    kernel.wait(30)
    assert await take(kernel) == []


@pytest.mark.proves("K18", "K12")
@pytest.mark.parametrize("ends", ["timeout", "stop"])
async def test_resolved_call_is_not_commanded(kernel: Kernel, ends: str) -> None:
    await suspended(kernel, command("c1", 5))
    if ends == "stop":
        await kernel.stop("turn_a")
    else:
        kernel.wait(5)
        await kernel.sweep("waits")
    kernel.wait(60)
    assert (await take(kernel), await kernel.rows("outbox", "*", "kind = 'cmd' and published_at is null")) == ([], [])


@pytest.mark.proves("RTE-07")
async def test_pools_with_commands_to_take_are_listed_in_order(kernel: Kernel) -> None:
    async def pools(tool: str = "search") -> list[str]:
        found: list[str] = await kernel.call("command_pools", tool)
        return found

    def of_pool(call_id: str, pool: str | None) -> Item:
        call = command(call_id)
        return call | {"command": call["command"] | {"pool": pool}}

    assert await pools() == []
    await suspended(kernel, *[of_pool(f"c{n}", pool) for n, pool in enumerate(("z", None, "a", "z"))],
                    of_pool("c4", "other") | {"tool": "another"})  # fmt: skip
    assert (await pools(), await pools("another")) == (["a", "default", "z"], ["other"])
    (taken,) = await kernel.call("take_commands", [{"tool": "search", "pool": "a"}], 10, 30.0)
    assert (taken["call_id"], await pools()) == ("c2", ["default", "z"])
    kernel.wait(30)
    assert await pools() == ["a", "default", "z"]  # it is delivered again
    for call_id in ("c0", "c1", "c3"):
        await report(kernel, "turn_a", call_id, token=TOKEN)
    assert await pools() == ["a"]


async def test_oldest_commands_are_taken_first_up_to_the_limit(kernel: Kernel) -> None:
    for n, name in enumerate("abc"):
        await suspended(kernel, command(f"c{n}"), run_id=f"run_{name}", turn_id=f"turn_{name}")
        kernel.wait(1)
    await suspended(kernel, command("c3") | {"tool": "another"}, run_id="run_d", turn_id="turn_d")
    assert calls(await take(kernel, limit=2)) == ["c0", "c1"]
    assert calls(await take(kernel, "another", "search", "nobody", limit=9)) == ["c2", "c3"]


@pytest.mark.proves("K18")
async def test_two_workers_of_a_tool_never_take_the_same_command(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    await suspended(kernel, command("c1"), command("c2"), command("c3"))
    async with kernel.connection.transaction():
        assert calls(await take(kernel, limit=2)) == ["c1", "c2"]
        assert calls(await take(other, limit=2)) == ["c3"]
    assert await take(other) == []


@pytest.mark.proves("K18")
async def test_relay_and_takers_do_not_hide_commands_from_each_other(kernel: Kernel) -> None:
    """A wire without subscribers must not starve a tool that polls; a tool recognizes a call by its id."""
    await suspended(kernel, command("c1"), command("c2"))
    await kernel.call("declare_wire", "nats")
    (first, second) = await kernel.call("read_outbox", 10)
    await kernel.call("mark_published", [first["key"]])
    assert calls(await take(kernel)) == ["c1", "c2"]
    assert [row["key"] for row in await kernel.call("read_outbox", 10)] == [second["key"]]
    assert await take(kernel) == []


@pytest.mark.proves("S1")
async def test_commands_of_another_project_are_not_seen(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    assert await kernel.call("take_commands", ["search"], 10, 30.0, project=new_project()) == []


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [(0, 30.0), (1001, 30.0), (None, 30.0), (1, -1.0), (1, float("nan")), (1, 86401.0), (1, None), (1, float("inf"))],
)
async def test_limit_or_a_time_out_of_range_is_rejected(kernel: Kernel, limit: Any, seconds: Any) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="must be between"):
        await take(kernel, limit=limit, seconds=seconds)


async def test_taking_commands_for_no_tools_returns_none(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    for tools in ([], [None], [7], None):
        assert await kernel.call("take_commands", tools, 10, 30.0) == []


async def test_delays_between_deliveries_are_those_of_an_exponential_policy(kernel: Kernel) -> None:
    policy = RetryPolicy(max_delay_seconds=60.0, jitter=False)
    for deliveries in (0, 1, 5, 6, 7, 1000):
        due_at = await kernel.connection.fetchval("select heliograph._redelivery_at($1, $2)", deliveries, START)
        assert (due_at - START).total_seconds() == policy.delay_seconds(deliveries + 1, "")
