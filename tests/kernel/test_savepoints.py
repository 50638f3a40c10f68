"""One bad row does not stop a sweep: it is rolled back, reported, counted and tried last (K23)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.kernel.kit import TARGET, Item, Kernel
from tests.kernel.waits import TOKEN, activated, child, command, suspend, suspended

Prepare = Callable[[Kernel, str], Awaitable[object]]

# The id of the deliverable is taken in advance, which no function of the kernel allows.
TAKEN = (
    "insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)"
    " values ($1, 'card:turn_{0}:end', 'box_turn_{0}', 'turn_{0}', 2, 'task.deliverable', '{{}}', '2030-01-01')"
)
FREED = "delete from cards where project_id = $1 and kind = 'task.deliverable' and content = '{}'"


async def expiring(kernel: Kernel, name: str) -> None:
    await kernel.running(f"run_{name}", f"turn_{name}", ttl_seconds=10)
    await kernel.harm(TAKEN.format(name)) if name == "b" else None


async def losing(kernel: Kernel, name: str) -> None:
    await kernel.running(f"run_{name}", f"turn_{name}", max_attempts=1)
    await kernel.harm(TAKEN.format(name)) if name == "b" else None


async def ordered_stop(kernel: Kernel, name: str) -> None:
    await kernel.running(f"run_{name}", f"turn_{name}")
    await kernel.stop(f"turn_{name}", "graceful")
    await kernel.harm(TAKEN.format(name)) if name == "b" else None


async def ordered_to_stop(kernel: Kernel, name: str) -> None:
    await kernel.running(f"run_{name}", f"turn_{name}")
    await kernel.stop(f"run_{name}")
    await kernel.harm(TAKEN.format(name)) if name == "b" else None


async def waiting(kernel: Kernel, name: str) -> None:
    await suspended(kernel, command("c1", timeout=10), run_id=f"run_{name}", turn_id=f"turn_{name}")
    if name == "b":  # the id of the result is taken
        await kernel.harm(TAKEN.format(name).replace(":end", ":call:c1").replace("task.deliverable", "note"))


async def delegating(kernel: Kernel, name: str) -> None:
    call = child("c1", "critic", f"turn_{name}_child")
    await suspended(kernel, call, run_id=f"run_{name}", turn_id=f"turn_{name}", signals=activated("critic"))
    claimed = next(each for each in await kernel.claim() if each["run_id"] == f"run_{name}")
    await kernel.finish(claimed)
    if name == "b":
        await kernel.harm(TAKEN.format(name).replace(":end", ":call:c1").replace("task.deliverable", "note"))


SWEEPS: dict[str, tuple[Prepare, str, str]] = {  # the preparation of a candidate, its sweep, its list in the answer
    "expired": (expiring, "expired", "ended"),
    "leases": (losing, "leases", "ended"),
    "graceful stops": (ordered_stop, "stops", "stopped"),
    "stops ordered": (ordered_to_stop, "stops", "stopped"),
    "waits": (waiting, "waits", "resolved"),
    "reports": (delegating, "reports", "resolved"),
}


@pytest.mark.proves("K23", "K17")
@pytest.mark.parametrize("kind", SWEEPS)
async def test_failing_candidate_is_rolled_back_alone(kernel: Kernel, kind: str) -> None:
    prepare, sweep, move = SWEEPS[kind]
    for name in "abc":
        await prepare(kernel, name)
    kernel.wait(31)
    before = await of_run(kernel, "run_b")
    answer = await kernel.sweep(sweep)
    assert sorted(answer[move]) == ["turn_a", "turn_c"]
    (failed,) = answer["failed"]
    assert (failed["turn_id"], failed["code"], "cards_pkey" in failed["message"]) == ("turn_b", "23505", True)
    after = await of_run(kernel, "run_b")
    assert [
        head.pop("sweep_failures") for head in after["agent_state_head"] if head["active_agent_turn_id"] == "turn_b"
    ] == [1]
    for head in before["agent_state_head"]:
        head.pop("sweep_failures")
    for head in after["agent_state_head"]:
        head.pop("sweep_failures", None)
    put_off = {"deliveries", "due_at"}  # an order that cannot be carried out is due again later
    for rows in (before, after):
        rows["outbox"] = [{key: value for key, value in row.items() if key not in put_off} for row in rows["outbox"]]
    assert after == before
    again = await kernel.sweep(sweep)
    assert (again[move], [each["turn_id"] for each in again["failed"]]) == (
        [], [] if kind in ("stops ordered", "reports") else ["turn_b"],
    )  # fmt: skip
    await kernel.harm(FREED, "delete from cards where project_id = $1 and kind = 'note'")
    kernel.wait(60)
    assert (await kernel.sweep(sweep))[move] == ["turn_b"]


async def of_run(kernel: Kernel, run_id: str) -> dict[str, list[Item]]:
    """All rows of a run and of its turn with the same suffix, by table."""
    names = (run_id, run_id.replace("run", "turn"))
    everything = await kernel.everything()
    return {
        table: [row for row in rows if any(name in repr(row) for name in names)] for table, rows in everything.items()
    }


@pytest.mark.proves("K23")
@pytest.mark.parametrize("kind", ["expired", "leases", "graceful stops", "waits"])
async def test_failed_candidates_come_last(kernel: Kernel, kind: str) -> None:
    prepare, sweep, move = SWEEPS[kind]
    await prepare(kernel, "b")  # it remains the first that is due
    kernel.wait(1)
    for name in "ac":
        await prepare(kernel, name)
    kernel.wait(31)
    swept = []
    for _ in range(5):
        answer = await kernel.sweep(sweep, 1)
        swept.append((answer[move], [each["turn_id"] for each in answer["failed"]]))
    assert swept == [([], ["turn_b"]), (["turn_a"], []), (["turn_c"], []), ([], ["turn_b"]), ([], ["turn_b"])]
    assert (await kernel.head("run_b/writer"))["sweep_failures"] == 3
    await kernel.harm(FREED, "delete from cards where project_id = $1 and kind = 'note'")


@pytest.mark.proves("K23", "K10")
async def test_undispatchable_turn_does_not_block_other_agents(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer", f"turn_{name}2": "writer"})
    await (
        kernel.harm(  # as a broken chain would leave it; and in run_b with an active turn of the agent behind its back
            "update agent_state_head set status = 'idle', active_agent_turn_id = null where project_id = $1",
            "update agent_turns set state = 'queued' where project_id = $1 and agent_turn_id <> 'turn_b'",
        )
    )
    answer = await kernel.sweep("queued")
    assert (answer["dispatched"], answer["targets"]) == (["turn_a", "turn_c"], [TARGET])
    (failed,) = answer["failed"]
    assert (failed["turn_id"], failed["code"], "turn_one_active" in failed["message"]) == ("turn_b2", "23505", True)
    assert (await kernel.head("run_b/writer"))["sweep_failures"] == 1
    kernel.is_corrupted = True


async def test_failing_stop_order_backs_off_further_each_time(kernel: Kernel) -> None:
    await ordered_to_stop(kernel, "b")
    due = []
    for _ in range(4):
        assert [each["turn_id"] for each in (await kernel.sweep("stops"))["failed"]] == ["turn_b"]
        (order,) = await kernel.rows("outbox", "*", "kind = 'stop'")
        due.append(((order["due_at"] - kernel.now).total_seconds(), order["deliveries"]))
        kernel.now = order["due_at"]
    assert due == [(1, 1), (2, 2), (4, 3), (8, 4)]
    await kernel.harm(FREED)


@pytest.mark.proves("K23", "K17")
@pytest.mark.parametrize("kind", ["waits", "reports"])
async def test_turn_on_which_sweeps_keep_failing_ends_as_failed(kernel: Kernel, kind: str) -> None:
    prepare, sweep, _ = SWEEPS[kind]
    for name in "ab":
        await prepare(kernel, name)
    failures, answer = [], Item()
    for _ in range(5):
        kernel.wait(31)
        answer = await kernel.sweep(sweep)
        (failed,) = answer["failed"]
        failures.append((failed["turn_id"], failed["code"], failed.get("ended", False), answer["targets"]))
    assert failures[0] == ("turn_b", "23505", False, [TARGET])  # the other one is resumed
    assert failures[1:] == [("turn_b", "23505", False, [])] * 3 + [("turn_b", "23505", True, [])]
    turn = await kernel.turn("turn_b")
    (end,) = await kernel.rows("card_overview", "content", "turn_id = 'turn_b' and kind = 'task.deliverable'")
    error = {"code": "INTERNAL_ERROR", "recoverable": False,
             "message": "the kernel failed on this turn 5 times, the last time with 23505"}  # fmt: skip
    assert (turn["state"], turn["outcome"], end["content"]["error"]) == ("done", "failed", error)
    assert ((await kernel.head("run_b/writer"))["status"], (await kernel.head("run_b/writer"))["sweep_failures"]) == (
        "idle",
        0,
    )
    assert (await kernel.names("run_b"))[-1] == "agent:failed"
    assert [each["run"]["run_id"] for each in await kernel.pending()] == ["run_b"]
    kernel.wait(31)
    assert await kernel.sweep(sweep) == {**answer, "failed": [], "targets": []}
    await kernel.publish()
    assert await kernel.rows("outbox", "key", "published_at is null and agent_turn_id = 'turn_b'") == []
    await kernel.harm("delete from cards where project_id = $1 and kind = 'note'")


@pytest.mark.proves("K23", "K8")
async def test_turn_queued_behind_an_abandoned_turn_is_claimable(kernel: Kernel) -> None:
    await waiting(kernel, "b")
    await kernel.enqueue("run_b", "writer", "turn_next")
    kernel.wait(31)
    for _ in range(4):
        await kernel.sweep("waits")
    assert (await kernel.sweep("waits"))["targets"] == [TARGET]
    assert (await kernel.claim_one())["turn_id"] == "turn_next"
    await kernel.harm("delete from cards where project_id = $1 and kind = 'note'")


@pytest.mark.proves("K23")
async def test_turn_that_cannot_be_abandoned_is_reported_and_counted_on(kernel: Kernel) -> None:
    await expiring(kernel, "b")
    kernel.wait(31)
    for _ in range(7):
        (failed,) = (await kernel.sweep("expired"))["failed"]
        assert failed.keys() == {"turn_id", "code", "message"}
    assert (await kernel.head("run_b/writer"))["sweep_failures"] == 7
    await kernel.harm(FREED)


async def test_count_of_failures_is_removed_with_its_turn(kernel: Kernel) -> None:
    await expiring(kernel, "b")
    kernel.wait(10)
    await kernel.sweep("expired")
    await kernel.harm(FREED)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_b"]
    assert (await kernel.head("run_b/writer"))["sweep_failures"] == 0


async def test_unstorable_report_fails_alone(kernel: Kernel) -> None:
    for name in "ab":
        await waiting(kernel, name)
    (answer,) = await kernel.call(
        "report", [{"turn_id": "turn_a", "call_id": "c1", "status": "success", "token": TOKEN}]
    )
    assert answer["outcome"] == "applied"
    claimed = await kernel.claim_one()
    assert (await suspend(kernel, claimed, command("c2")))["outcome"] == "suspended"
    await kernel.harm("delete from cards where project_id = $1 and kind = 'note'")
