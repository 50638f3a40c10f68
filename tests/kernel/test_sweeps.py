from __future__ import annotations

from datetime import timedelta

import pytest

from tests.kernel.kit import DELIVERABLE, START, TARGET, Connect, Item, Kernel


@pytest.mark.proves("L0-111", "G-62", "K7", "K22", "L0-05")
async def test_turn_of_a_dead_worker_is_dispatched_again_under_the_next_epoch(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(30)
    assert await kernel.sweep("leases") == {
        "recovered": ["turn_a"],
        "ended": [],
        "failed": [],
        "targets": [TARGET],
        "woken": ["run_a/writer"],
    }
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["active_agent_turn_id"], head["owner"]) == ("dispatched", "turn_a", None)
    assert (head["turn_epoch"], head["ready_at"], head["moved_at"]) == (claimed["epoch"] + 1, START, kernel.now)
    assert (await kernel.turn("turn_a"))["attempts"] == 1
    (row,) = await kernel.rows("agent_inbox")
    assert (row["status"], row["turn_epoch"]) == ("pending", claimed["epoch"] + 1)
    again = await kernel.claim_one(worker="worker-2")
    assert (again["turn_id"], again["epoch"], again["attempts"]) == ("turn_a", claimed["epoch"] + 2, 1)
    assert again["inbox"] == claimed["inbox"]


async def test_running_lease_is_not_swept(kernel: Kernel) -> None:
    await kernel.running()
    kernel.wait(29.999)
    assert await kernel.sweep("leases") == {"recovered": [], "ended": [], "failed": [], "targets": []}


@pytest.mark.proves("K19", "G-62", "L0-80", "L0-87", "K25")
async def test_attempts_are_bounded_and_the_last_one_delivers_a_failure(kernel: Kernel) -> None:
    await kernel.running(max_attempts=2)
    kernel.wait(30)
    assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    await kernel.claim_one()
    kernel.wait(30)
    assert (await kernel.sweep("leases"))["ended"] == ["turn_a"]
    turn = await kernel.turn("turn_a")
    assert (turn["state"], turn["outcome"], turn["attempts"]) == ("done", "failed", 1)
    (card,) = await kernel.rows("cards")
    assert (card["kind"], card["content"]["error"]["code"]) == (DELIVERABLE, "RESOURCE_EXHAUSTED")
    assert card["content"]["error"]["message"] == "lost its worker 2 times"
    assert (await kernel.names("run_a"))[-1] == "agent:failed"
    assert (await kernel.run("run_a"))["pending_reactions"] == 1


@pytest.mark.proves("K8", "L0-44")
async def test_ending_by_the_kernel_dispatches_the_next_turn(kernel: Kernel) -> None:
    await kernel.running(max_attempts=1)
    await kernel.enqueue("run_a", "writer", "turn_2")
    kernel.wait(30)
    assert await kernel.sweep("leases") == {
        "recovered": [],
        "ended": ["turn_a"],
        "failed": [],
        "targets": [TARGET],
        "woken": ["run_a/writer"],
    }
    (card,) = await kernel.rows("cards")
    assert card["content"]["error"]["message"] == "lost its worker 1 time"
    assert (await kernel.claim_one())["turn_id"] == "turn_2"


@pytest.mark.proves("K19", "L0-80", "L0-87")
@pytest.mark.parametrize("state", ["dispatched", "running"])
async def test_turn_past_its_ttl_is_ended_in_every_status(kernel: Kernel, state: str) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"}, ttl_seconds=10)
    if state == "running":
        await kernel.claim_one()
    before = await kernel.head("run_a/writer")
    kernel.wait(9.999)
    assert (await kernel.sweep("expired"))["ended"] == []
    kernel.wait(0.001)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a"]
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["turn_epoch"]) == ("idle", before["turn_epoch"] + 1)
    assert (await kernel.turn("turn_a"))["outcome"] == "timeout"
    assert (await kernel.sweep("expired"))["ended"] == []


@pytest.mark.proves("K19", "L0-80")
async def test_queued_turn_expires_behind_the_active_one_which_continues(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_short", ttl_seconds=5)
    await kernel.enqueue("run_a", "writer", "turn_long")
    kernel.wait(5)
    before = await kernel.head("run_a/writer")
    assert await kernel.sweep("expired") == {"ended": ["turn_short"], "failed": [], "targets": []}
    assert await kernel.head("run_a/writer") == before
    (row,) = await kernel.rows("agent_inbox", "*", "agent_turn_id = $2", "turn_short")
    assert row["status"] == "canceled"
    (event,) = await kernel.call("read_outbox", 10)
    assert (event["key"], event["body"]["status"]) == ("evt:turn_short", "timeout")
    assert (await kernel.finish(claimed, version=4))["outcome"] == "ok"
    assert (await kernel.claim_one())["turn_id"] == "turn_long"


async def test_all_turns_of_an_agent_may_expire_at_once(kernel: Kernel) -> None:
    await kernel.running(ttl_seconds=10)
    for n in range(3):
        await kernel.enqueue("run_a", "writer", f"turn_{n}", ttl_seconds=10)
    kernel.wait(10)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a", "turn_0", "turn_1", "turn_2"]
    assert (await kernel.head("run_a/writer"))["status"] == "idle"
    run = await kernel.run("run_a")
    assert (run["open_turns"], run["pending_reactions"]) == (0, 4)


async def test_sweep_takes_at_most_its_limit_and_the_longest_due_first(kernel: Kernel) -> None:
    for n, name in enumerate("abc"):
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"}, ttl_seconds=10 - n)
    kernel.wait(10)
    assert (await kernel.sweep("expired", 2))["ended"] == ["turn_b", "turn_c"]
    assert (await kernel.sweep("expired", 0))["ended"] == []
    assert (await kernel.sweep("expired", 2))["ended"] == ["turn_a"]


@pytest.mark.proves("K10", "L0-44", "K8")
async def test_queued_turn_on_an_idle_agent_is_dispatched(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1")
    await kernel.enqueue("run_a", "critic", "turn_2")
    # as a broken chain would leave it: no function of the kernel does
    await kernel.harm(
        "update agent_state_head set status = 'idle', active_agent_turn_id = null"
        " where project_id = $1 and agent_id = 'run_a/critic'",
        "update agent_turns set state = 'queued' where project_id = $1 and agent_turn_id = 'turn_1'",
    )
    nothing: Item = {"dispatched": [], "failed": [], "targets": []}
    assert await kernel.sweep("queued", 0) == nothing
    assert await kernel.sweep("queued") == {
        "dispatched": ["turn_1"],
        "failed": [],
        "targets": [TARGET],
        "woken": ["run_a/critic"],
    }
    head = await kernel.head("run_a/critic")
    assert (head["status"], head["active_agent_turn_id"], head["turn_epoch"]) == ("dispatched", "turn_1", 2)
    assert await kernel.sweep("queued") == nothing


@pytest.mark.proves("K10", "K20", "L0-08")
async def test_sweep_of_bells_returns_heads_that_wait_too_long_and_changes_nothing(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    before = await kernel.everything()
    assert await kernel.call("sweep_bells", 5.0) == []
    kernel.wait(5)
    assert await kernel.call("sweep_bells", 5.0) == [TARGET]
    assert await kernel.everything() == before
    await kernel.claim_one()
    assert await kernel.call("sweep_bells", 0.0) == []


@pytest.mark.proves("K20")
async def test_no_sweep_resets_the_age_of_a_waiting_head(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.enqueue("run_a", "writer", "turn_2")
    before = await kernel.head("run_a/writer")
    for _ in range(3):
        kernel.wait(60)
        for kind in ("leases", "expired", "queued"):
            await kernel.sweep(kind)
    assert await kernel.head("run_a/writer") == before


@pytest.mark.proves("L0-40", "K17")
@pytest.mark.parametrize("kind", ["leases", "expired"])
async def test_candidate_locked_by_another_transaction_is_skipped(kernel: Kernel, beside: Connect, kind: str) -> None:
    for name in "ab":
        await kernel.running(f"run_{name}", f"turn_{name}", ttl_seconds=60)
    holder = await beside()
    kernel.wait(60)
    async with holder.connection.transaction():
        await holder.connection.execute(
            "select from heliograph.agent_state_head where project_id = $1 and agent_id = 'run_a/writer' for update",
            kernel.project,
        )
        answer = await kernel.sweep(kind)
        assert answer.get("recovered", []) + answer["ended"] == ["turn_b"]
    answer = await kernel.sweep(kind)
    assert answer.get("recovered", []) + answer["ended"] == ["turn_a"]


async def test_queued_turn_of_a_locked_agent_is_skipped_by_the_sweep_of_queued_turns(
    kernel: Kernel, beside: Connect
) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    holder = await beside()
    async with holder.connection.transaction():
        await holder.finish(claimed, version=2)
        assert (await kernel.sweep("queued"))["dispatched"] == []
    assert (await kernel.head("run_a/writer"))["active_agent_turn_id"] == "turn_2"


async def test_sweep_with_an_older_time_writes_no_time_before_that_of_the_owner(kernel: Kernel) -> None:
    await kernel.running(ttl_seconds=10)
    kernel.now = START - timedelta(seconds=1)
    await kernel.connection.execute(
        "update heliograph.agent_turns set expires_at = $2 where project_id = $1", kernel.project, kernel.now
    )
    await kernel.sweep("expired")
    (lease,) = await kernel.rows("leases")
    assert lease["started_at"] == lease["ended_at"] == START
