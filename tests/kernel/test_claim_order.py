from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from tests.kernel.kit import START, TARGET, Kernel, draft, run_item
from tests.kernel.waits import TOKEN, command, defer, report, suspended


async def order(kernel: Kernel, limit: int = 100) -> list[str]:
    return [each["turn_id"] for each in await kernel.claim(limit)]


@pytest.mark.proves("L0-11", "L0-12", "L0-45", "L0-02", "K6")
async def test_claim_runs_the_head_under_a_new_epoch(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    assert (await kernel.head("run_a/writer"))["turn_epoch"] == 1
    kernel.wait(1)
    claimed = await kernel.claim_one(worker="worker-7", lease=30)
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["turn_epoch"], head["owner"]) == ("running", 2, "worker-7")
    assert (claimed["epoch"], head["lease_until"]) == (2, kernel.now + timedelta(seconds=30))
    (lease,) = await kernel.rows("leases")
    assert (lease["turn_epoch"], lease["agent_turn_id"], lease["started_at"]) == (2, "turn_1", kernel.now)


async def test_claim_returns_everything_that_the_turn_needs(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    kernel.wait(10)
    assert await kernel.claim_one() == {
        "agent_id": "run_a/writer", "agent": "writer", "run_id": "run_a", "target": TARGET, "turn_id": "turn_1",
        "epoch": 2, "priority": 1, "phase": "init", "attempts": 0, "max_attempts": 3, "defer_count": 0, "ttl_seconds": 590,
        "context_box_id": None,
        "output_box_id": "box_turn_1", "activation_id": "sig_run_a_2",
        "cause": {"id": "sig_run_a_1", "name": "workflow:start", "payload": {"state": {}}, "agent": None, "turn_id": None},
        "inbox": [{"message_type": "turn", "correlation_id": "sig_run_a_1"}],
        "run": {"run_id": "run_a", "status": "running", "version": 1, "state": {}, "memory": {}, "open_turns": 1,
                "pending_reactions": 0, "activations": 1},
        "waits": [], "result_fields": None, "parent_turn_id": None, "depth": 0, "message_type": "turn",
        "has_emitted_signals": False, "age_seconds": 0, "earlier_epoch": None, "stop": None, "budget": None,
    }  # fmt: skip


@pytest.mark.proves("L0-04", "L0-40")
async def test_claim_takes_the_inbox_rows_of_the_turn_under_its_epoch(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    mine, waiting = await kernel.rows("agent_inbox", "inbox_id, status, turn_epoch")
    assert (mine["status"], mine["turn_epoch"]) == ("processing", claimed["epoch"])
    assert (waiting["status"], waiting["turn_epoch"]) == ("queued", None)


@pytest.mark.proves("L0-40", "G-26")
async def test_priority_comes_before_age_and_age_before_name(kernel: Kernel) -> None:
    await kernel.start("run_c", ["writer"], {"turn_old": "writer"})
    kernel.wait(1)
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    kernel.wait(1)
    await kernel.start("run_d", ["writer"], {"turn_high": "writer"}, priority=2)
    await kernel.start("run_e", ["writer"], {"turn_low": "writer"}, priority=0)
    assert await order(kernel) == ["turn_high", "turn_old", "turn_a", "turn_b", "turn_low"]


@pytest.mark.proves("G-26")
@pytest.mark.parametrize("limit", [1, 100])
async def test_priority_comes_first_among_turns_that_were_deferred_too(kernel: Kernel, limit: int) -> None:
    for n, (name, priority) in enumerate([("low", 0), ("old", 1), ("young", 1), ("high", 2)]):
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, priority=priority)
        kernel.wait(1)
        await defer(kernel, await kernel.claim_one(), 10 + n)
    await kernel.start("run_new", ["writer"], {"turn_new": "writer"})
    kernel.wait(20)
    taken: list[str] = []
    while found := await order(kernel, limit):
        taken += found
    assert taken == ["turn_high", "turn_old", "turn_young", "turn_new", "turn_low"]


@pytest.mark.proves("G-26")
async def test_reports_and_halts_of_an_agent_precede_new_turns_of_any_priority(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), command("c2"))
    await kernel.enqueue("run_a", "writer", "turn_new", priority=3)
    assert await order(kernel) == []  # it waits for the turn before it, which waits for its calls
    for call_id in ("c1", "c2"):
        kernel.wait(1)
        await report(kernel, "turn_a", call_id, token=TOKEN)
    claimed = await kernel.claim_one()
    assert claimed["turn_id"] == "turn_a"
    assert [(row["message_type"], row["correlation_id"]) for row in claimed["inbox"]] == [
        ("tool_result", "c1"), ("tool_result", "c2"),
    ]  # fmt: skip
    await kernel.stop("turn_a", "graceful", reason="enough")
    assert await order(kernel) == []
    assert (await kernel.renew(claimed))["stop"]["reason"] == "enough"
    await kernel.finish(claimed, outcome="canceled", version=(await kernel.run("run_a"))["version"])
    assert await order(kernel) == ["turn_new"]
    rows = await kernel.rows("agent_inbox", "message_type, status", "agent_turn_id = 'turn_a'")
    assert {tuple(row) for row in rows} == {("turn", "consumed"), ("tool_result", "consumed"), ("stop", "consumed")}


async def test_limited_claim_takes_only_the_first_turns(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
        kernel.wait(1)
    assert await order(kernel, limit=2) == ["turn_a", "turn_b"]
    assert await order(kernel, limit=2) == ["turn_c"]
    assert await order(kernel, limit=2) == []


async def test_limited_claim_takes_the_most_urgent_turn_although_it_arrived_last(kernel: Kernel) -> None:
    for priority, name in enumerate("abc"):
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, priority=priority)
        kernel.wait(1)
    assert [await order(kernel, limit=1) for _ in range(3)] == [["turn_c"], ["turn_b"], ["turn_a"]]


async def test_only_the_requested_pools_are_claimed(kernel: Kernel) -> None:
    await kernel.call("start_runs", [run_item("run_a", ["writer"], {"turn_a": "writer"}) | {"target": "other"}])
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    assert await order(kernel) == ["turn_b"]
    assert await kernel.call("claim", [], "worker-1", 10, 30.0) == []
    (claimed,) = await kernel.call(
        "claim", [{"target": name} for name in ("nothing", "other", TARGET)], "worker-1", 10, 30.0
    )
    assert claimed["turn_id"] == "turn_a"


@pytest.mark.proves("L0-48", "L0-44", "L0-06")
async def test_agent_runs_its_queued_turns_one_by_one_in_arrival_order(kernel: Kernel) -> None:
    await kernel.running()
    for n in range(3):
        await kernel.enqueue("run_a", "critic", f"turn_{n}", priority=n)
    seen = []
    for _ in range(3):
        claimed = await kernel.claim_one()
        assert await kernel.claim() == []
        seen.append((claimed["turn_id"], claimed["epoch"]))
        await kernel.finish(claimed)
    assert seen == [("turn_0", 2), ("turn_1", 5), ("turn_2", 8)]


@pytest.mark.proves("K22")
async def test_recovered_turn_keeps_its_place_in_the_claim_order(kernel: Kernel) -> None:
    await kernel.running(turn_id="turn_first")
    kernel.wait(5)
    await kernel.start("run_b", ["writer"], {"turn_second": "writer"})
    kernel.wait(60)
    await kernel.sweep("leases")
    assert (await kernel.head("run_a/writer"))["ready_at"] == START
    assert await order(kernel) == ["turn_first", "turn_second"]


async def test_claim_order_follows_readiness_and_not_the_queue(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    kernel.wait(5)
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    kernel.wait(5)
    await kernel.finish(claimed, version=2)
    assert await order(kernel) == ["turn_b", "turn_2"]


@pytest.mark.proves("K20")
async def test_claim_with_a_time_before_the_dispatch_takes_its_inbox_row(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    kernel.wait(-1)
    claimed = await kernel.claim_one()
    assert claimed["inbox"] == [{"message_type": "turn", "correlation_id": "sig_run_a_1"}]
    (lease,) = await kernel.rows("leases")
    assert lease["started_at"] == START


@pytest.mark.proves("K20")
async def test_clock_that_goes_backwards_keeps_leases_in_order(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    kernel.wait(-5)
    assert (await kernel.finish(claimed, version=2))["outcome"] == "ok"
    kernel.wait(-5)
    second = await kernel.claim_one()
    kernel.wait(-5)
    assert (await kernel.append(second, draft("note", second["activation_id"])))["outcome"] == "ok"
    assert (await kernel.renew(second))["outcome"] == "ok"
    assert (await kernel.finish(second, version=3))["outcome"] == "ok"
    assert await kernel.checks() == ["I13", "R6"]  # the doctor still reports the recorded times
    kernel.is_corrupted = True


@pytest.mark.parametrize("lease", [-1, 0, 0.09, 86400.1, float("nan"), float("inf"), float("-inf"), None])
async def test_lease_that_ends_at_once_or_never_is_rejected(kernel: Kernel, lease: float) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="lease"):
        await kernel.claim(lease=lease)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="lease"):
        await kernel.call("renew", [], lease)


@pytest.mark.parametrize("limit", [-1, 0, 1001, None])
async def test_claim_with_a_limit_out_of_range_is_rejected(kernel: Kernel, limit: int) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="limit"):
        await kernel.claim(limit)


async def test_claim_without_a_worker_is_rejected(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_1": "writer"})
    for worker in (None, "", "w" * 201):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="the name of a worker must"):
            await kernel.call("claim", [{"target": TARGET}], worker, 1, 30.0)
    assert (await kernel.head("run_a/writer"))["status"] == "dispatched"
