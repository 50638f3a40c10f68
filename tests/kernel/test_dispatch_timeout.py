"""The dispatch timeout: an unclaimed dispatched turn ends in time despite sweeps (H15, K20)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kit import Kernel, turn_item

SWEEPS = ("leases", "expired", "waits", "stops", "reports", "queued", "stuck")


async def limited(kernel: Kernel, seconds: int | None = 30) -> None:
    assert (await kernel.call("set_limits", {"dispatch_seconds_max": seconds}))["dispatch_seconds_max"] == seconds


async def swept(kernel: Kernel) -> list[str]:
    """Run each sweep and the sweep of bells once; return the turns that ended."""
    ended: list[str] = []
    for sweep in SWEEPS:
        ended += (await kernel.sweep(sweep)).get("ended", [])
    await kernel.call("sweep_bells", 1.0)
    return ended


@pytest.mark.proves("K20", "K19", "K10", "G-68", "L0-80")
async def test_unclaimed_turn_ends_in_time_despite_repeated_sweeps(kernel: Kernel) -> None:
    await limited(kernel)
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    for _ in range(5):
        kernel.wait(5)
        assert await swept(kernel) == []
    kernel.wait(5)
    assert await swept(kernel) == ["turn_a"]
    turn = await kernel.turn("turn_a")
    assert (turn["outcome"], turn["state"]) == ("timeout", "done")
    [card] = await kernel.rows("cards", "content", "agent_turn_id = $2", turn["agent_turn_id"])
    assert card["content"]["error"] == {
        "code": "TIMEOUT", "message": "no worker of pool default claimed it within 30 s (dispatch_seconds_max)", "recoverable": False,
        "details": {"scope": "turn"},
    }  # fmt: skip
    assert (await kernel.head("run_a/writer"))["status"] == "idle"
    [event] = await kernel.call("read_outbox", 10)
    assert event["body"]["status"] == "timeout"
    assert await kernel.checks() == []


@pytest.mark.proves("K19")
async def test_without_the_limit_a_dispatched_turn_waits_as_long_as_it_lives(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    kernel.wait(599)
    assert await swept(kernel) == []
    await limited(kernel)
    await limited(kernel, None)
    assert await swept(kernel) == []


async def test_only_the_time_without_a_worker_counts(kernel: Kernel) -> None:
    await limited(kernel)
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")  # queued behind it
    kernel.wait(25)
    await kernel.call("renew", [turn_item(claimed)], 600.0)
    kernel.wait(60)
    assert await swept(kernel) == []
    assert (await kernel.finish(claimed, version=2))["outcome"] == "ok"  # which dispatches the next one
    kernel.wait(29)
    assert await swept(kernel) == []
    kernel.wait(1)
    assert await swept(kernel) == ["turn_2"]


async def test_deferred_turn_waits_for_a_worker_from_when_it_is_due(kernel: Kernel) -> None:
    await limited(kernel)
    claimed = await kernel.running()
    item: Any = turn_item(claimed, reason="later", delay_seconds=100.0, deferrals_max=None)
    [answer] = await kernel.call("defer", [item])
    assert answer["outcome"] == "deferred"
    kernel.wait(129)
    assert await swept(kernel) == []
    kernel.wait(1)
    assert await swept(kernel) == ["turn_a"]


async def test_dispatch_timeout_takes_at_most_its_limit_of_turns_and_each_once(kernel: Kernel) -> None:
    await limited(kernel)
    await kernel.start("run_a", ["a", "b", "c"], {"turn_a": "a", "turn_b": "b", "turn_c": "c"}, ttl_seconds=30)
    kernel.wait(30)  # both limits are met at once
    ended = [await kernel.sweep("expired", limit) for limit in (1, 100)]
    assert sorted(turn for answer in ended for turn in answer["ended"]) == ["turn_a", "turn_b", "turn_c"]
    assert await kernel.checks() == []


async def test_turn_that_waits_because_of_running_max_ends_with_a_message_that_names_it(kernel: Kernel) -> None:
    await kernel.call("set_limits", {"dispatch_seconds_max": 30, "running_max": 1})
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_b": "critic"})
    [claimed] = await kernel.claim(lease=600)
    kernel.wait(30)
    [late] = {"turn_a", "turn_b"} - {claimed["turn_id"]}
    assert await swept(kernel) == [late]
    turn = await kernel.turn(late)
    [card] = await kernel.rows("cards", "content", "agent_turn_id = $2", turn["agent_turn_id"])
    assert card["content"]["error"]["message"] == (
        "it did not begin within 30 s (dispatch_seconds_max), because the project runs at most 1 turns at once (running_max): "
        "raise a limit, or send less"
    )
