"""How the end of a turn stops its delegated turns: as it was stopped itself, and gracefully after any other end (K12)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.kernel.kit import Item, Kernel, stopping
from tests.kernel.test_stop import stopped
from tests.kernel.waits import TOKEN, activated, child, command, report, suspend, suspended


async def delegated(kernel: Kernel, **fields: Any) -> None:
    """turn_a waits for turn_b, which terminates and waits for a tool."""
    await suspended(kernel, child("c1", "critic", "turn_b"), signals=activated("critic"), **fields)
    await suspend(kernel, await kernel.claim_one(), command("c2"), terminates=True)


async def running_parent(kernel: Kernel) -> Item:
    """turn_a runs, while turn_b, which it has delegated, waits for a tool."""
    calls = (child("c1", "critic", "turn_b"), command("c0"))
    await suspended(kernel, *calls, join="each", signals=activated("critic"))
    await suspend(kernel, await kernel.claim_one(), command("c2"), terminates=True)
    await report(kernel, "turn_a", "c0", token=TOKEN)
    return await kernel.claim_one()


async def finish(kernel: Kernel, claimed: Item, outcome: str) -> None:
    answer = await kernel.finish(claimed, outcome=outcome, version=(await kernel.run("run_a"))["version"])
    assert answer["outcome"] == "ok"


async def forced_after(kernel: Kernel, seconds: float) -> None:
    """A sweep delivers the stop of turn_b, which gives it this time; another one ends it then."""
    assert (await kernel.sweep("stops"))["stopping"] == ["turn_b"]
    assert (await kernel.head("run_a/critic"))["force_at"] == kernel.now + timedelta(seconds=seconds)
    assert await kernel.checks() == []
    kernel.wait(seconds)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_b"]
    assert await stopped(kernel, "turn_b") == {"reason": "parent_termination", "graceful": True}


@pytest.mark.proves("CTL-35", "CTL-39", "K12")
@pytest.mark.parametrize("grace", [{}, {"grace_seconds": 3}], ids=str)
async def test_graceful_stop_that_ends_a_waiting_turn_at_once_gives_its_child_the_same_grace(
    kernel: Kernel, grace: Item
) -> None:
    await delegated(kernel)
    assert (await kernel.stop("turn_a", "graceful", **grace))["outcome"] == "stopped"
    await forced_after(kernel, grace.get("grace_seconds", 10))


@pytest.mark.proves("CTL-35", "CTL-39")
async def test_turn_that_ends_within_its_grace_gives_its_child_as_much(kernel: Kernel) -> None:
    claimed = await running_parent(kernel)
    await kernel.stop("turn_a", "graceful", grace_seconds=7)
    kernel.wait(4)
    await finish(kernel, claimed, "canceled")
    await forced_after(kernel, 7)


@pytest.mark.proves("CTL-35", "CTL-39")
async def test_turn_that_is_forced_after_its_grace_gives_its_child_as_much(kernel: Kernel) -> None:
    await running_parent(kernel)
    await kernel.stop("turn_a", "graceful", grace_seconds=7)
    kernel.wait(7)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_a"]
    await forced_after(kernel, 7)


@pytest.mark.proves("CTL-35", "CTL-39")
@pytest.mark.parametrize("outcome", ["success", "failed", "timeout", "partial"])
async def test_turn_that_ends_by_itself_stops_its_child_gracefully(kernel: Kernel, outcome: str) -> None:
    await finish(kernel, await running_parent(kernel), outcome)
    await forced_after(kernel, 10)


@pytest.mark.proves("CTL-35", "CTL-39")
async def test_turn_that_expires_stops_its_child_gracefully(kernel: Kernel) -> None:
    await delegated(kernel, limits={"ttl_seconds": 60})
    kernel.wait(60)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a"]
    await forced_after(kernel, 10)


@pytest.mark.proves("CTL-39")
@pytest.mark.parametrize("is_pending", [False, True], ids=["forced", "forced after a graceful stop"])
async def test_forced_stop_of_a_turn_forces_its_child(kernel: Kernel, is_pending: bool) -> None:
    await running_parent(kernel)
    if is_pending:
        await kernel.stop("turn_a", "graceful")
    await kernel.stop("turn_a", "force")
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_b"]
    assert await stopped(kernel, "turn_b") == {"reason": "parent_termination", "graceful": False}


@pytest.mark.proves("CTL-39", "K12")
@pytest.mark.parametrize("first", ["the run is stopped", "the parent ends"])
async def test_forced_stop_of_a_child_wins_in_either_order(kernel: Kernel, first: str) -> None:
    claimed = await running_parent(kernel)
    stop = kernel.call("stop_runs", [stopping("run_a")])
    if first == "the run is stopped":
        await stop
    await finish(kernel, claimed, "canceled")
    if first == "the parent ends":
        await stop
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_b"]
    assert not (await stopped(kernel, "turn_b"))["graceful"]


@pytest.mark.proves("CTL-35")
@pytest.mark.parametrize("is_delivered", [False, True])
async def test_graceful_stop_of_a_child_keeps_its_reason_and_its_grace_when_the_parent_ends(
    kernel: Kernel, is_delivered: bool
) -> None:
    claimed = await running_parent(kernel)
    stop = {"run_id": "run_a", "mode": "graceful", "grace_seconds": 3, "reason": "enough", "actor": "ann"}
    await kernel.call("stop_runs", [stop])
    if is_delivered:
        assert sorted((await kernel.sweep("stops"))["stopping"]) == ["turn_a", "turn_b"]
    await finish(kernel, claimed, "canceled")
    assert (await kernel.sweep("stops"))["stopping"] == ([] if is_delivered else ["turn_b"])
    kernel.wait(3)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_b"]
    assert await stopped(kernel, "turn_b") == {"reason": "enough", "graceful": True, "actor": "ann"}


@pytest.mark.proves("CTL-35", "CTL-39")
async def test_each_descendant_has_the_grace_of_the_stop(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_b"), signals=activated("critic"))
    call = child("c2", "writer", "turn_c", instance="two")
    await suspend(kernel, await kernel.claim_one(), call, signals=activated("writer"), terminates=True)
    await suspend(kernel, await kernel.claim_one(), command("c3"), terminates=True)
    await kernel.stop("turn_a", "graceful", grace_seconds=4)
    await forced_after(kernel, 4)
    assert (await kernel.sweep("stops"))["stopping"] == ["turn_c"]
    kernel.wait(4)
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_c"]
