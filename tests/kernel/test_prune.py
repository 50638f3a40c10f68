"""prune: old ended work is removed whole and in small steps; needed rows remain, and late requests are recognised."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.kernel.kit import Item, Kernel, draft, ending, run_item
from tests.kernel.test_boxes import fork, put, read, replace, write
from tests.kernel.waits import (
    TOKEN,
    activated,
    begin,
    child,
    command,
    record,
    report,
    reported,
    suspend,
    suspended,
    timer,
)

DAY = 86_400.0
NOTHING: Item = {
    "turns": 0,
    "runs": 0,
    "signals": 0,
    "cards": 0,
    "boxes": 0,
    "blobs": 0,
    "tombstones": 0,
    "memories": 0,
    "breakers": 0,
    "rates": 0,
    "more": False,
}


async def prune(kernel: Kernel, days: float = 1, limit: int = 100) -> Item:
    """Prune rows that are older than this many days."""
    answer: Item = await kernel.call("prune", kernel.now - timedelta(days=days), limit)
    return answer


async def ended(kernel: Kernel, name: str = "a", **fields: Any) -> Item:
    """A run of one turn that has ended, with everything published."""
    claimed = await kernel.running(f"run_{name}", f"turn_{name}")
    await write(kernel, claimed, "a note")
    await kernel.finish(claimed, ends="success", **fields)
    await kernel.publish()
    return claimed


async def row_counts(kernel: Kernel) -> dict[str, int]:
    """How many rows are left, by table; tombstones apart."""
    return {table: len(rows) for table, rows in (await kernel.everything()).items() if rows and table != "pruned"}


async def full_life(kernel: Kernel) -> None:
    """run_a: a turn with calls of every kind, a large result, a fork for writing and a child that had a child's agent."""
    await kernel.call("set_limits", {"card_bytes_max": 100})
    calls = [
        command("c1"),
        timer("c2", 5),
        child("c3", "critic", "turn_c"),
        child("c4", "writer", "turn_d", 1, instance="two"),
    ]
    await suspended(kernel, *calls, signals=activated("critic", "writer"))
    for claimed in await kernel.claim():
        await write(kernel, claimed, "x" * 1000)
        await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"])
    await report(kernel, "turn_a", "c1", {"text": "y" * 1000}, token=TOKEN)
    kernel.wait(5)
    await kernel.sweep("waits")
    await kernel.sweep("reports")
    claimed = await kernel.claim_one()
    await begin(kernel, claimed, "c5")
    await record(kernel, claimed, "c5", {"text": "z" * 1000})
    await fork(kernel, "fork_a", "box_turn_a", "turn_a")
    assert (await replace(kernel, claimed, output_box_id="fork_a"))["outcome"] == "ok"
    await kernel.stop("turn_a", "graceful", actor="ann")
    await kernel.finish(claimed, outcome="canceled", version=(await kernel.run("run_a"))["version"], ends="canceled")
    await kernel.publish()
    assert await kernel.checks(quiescent=True) == []


@pytest.mark.proves("S11", "L0-03")
async def test_old_run_is_pruned_with_everything_it_owns(kernel: Kernel) -> None:
    await full_life(kernel)
    assert min((await row_counts(kernel)).values()) > 0
    kernel.wait(DAY + 1)
    answer = await prune(kernel)
    assert (answer["turns"], answer["runs"], answer["more"], answer["blobs"] > 0) == (3, 1, False, True)
    assert await row_counts(kernel) == {"project_limits": 1}
    rows, key = (
        await kernel.rows("pruned", "id, hash, outcome, pruned_at"),
        "b1yzuaGlVv6B55KNXU//Ur",
    )  # of the hash of run_a
    assert [tuple(row) for row in rows] == [
        ("run:run_a", key, "canceled", kernel.now), ("turn:turn_a", None, "canceled", kernel.now),
        ("turn:turn_c", None, "success", kernel.now), ("turn:turn_d", None, "success", kernel.now),
    ]  # fmt: skip
    assert await prune(kernel) == NOTHING


async def test_young_run_is_not_pruned(kernel: Kernel) -> None:
    await full_life(kernel)
    before = await kernel.everything()
    kernel.wait(DAY - 10)
    assert await prune(kernel) == NOTHING
    assert await kernel.everything() == before


@pytest.mark.proves("L0-112", "G-17", "K4", "G-73")
async def test_late_requests_for_a_pruned_run_are_rejected_and_change_nothing(kernel: Kernel) -> None:
    await kernel.running(turn_id="turn_0")
    await kernel.enqueue("run_a", "critic", "turn_c", payload={"n": 1})
    claimed = await kernel.claim_one()
    await suspend(kernel, claimed, command("c1"))
    await kernel.stop("turn_c")
    await kernel.stop("turn_0")
    (pending,) = await kernel.pending()
    end = draft("workflow:end", "sig_run_a_1")
    await kernel.react("run_a", pending["run"]["version"], end, status="ended", outcome="canceled")
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert (await prune(kernel))["runs"] == 1
    before = await kernel.everything()
    assert (await kernel.enqueue("run_a", "critic", "turn_c", payload={"n": 1}))["outcome"] == "duplicate"
    assert (await kernel.enqueue("run_a", "critic", "turn_new"))["outcome"] == "unknown_agent"
    assert await reported(kernel, "turn_c", "c1", token=TOKEN) == "turn_done"
    assert await kernel.stop("turn_c") == {
        "turn_id": "turn_c", "outcome": "already_done", "turn_outcome": "canceled", "targets": [],
    }  # fmt: skip
    assert await kernel.stop("run_a") == {"run_id": "run_a", "outcome": "already_done", "run_outcome": "canceled"}
    assert (await kernel.call("finish", [ending(claimed)]))[0]["outcome"] == "stale"
    assert (await kernel.append(claimed))["outcome"] == "stale"
    assert (await kernel.renew(claimed))["outcome"] == "stale"
    assert (await kernel.start("run_a", ["writer", "critic"], {"turn_0": "writer"}))["outcome"] == "duplicate"
    (answer,) = await kernel.call("start_runs", [run_item("run_a", ["writer"], {}) | {"request_hash": "another"}])
    assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


async def test_tombstone_keeps_the_id_for_thirty_more_days(kernel: Kernel) -> None:
    await ended(kernel)
    kernel.wait(DAY + 1)
    await prune(kernel)
    kernel.wait(31 * DAY - 1)
    assert await prune(kernel) == NOTHING
    kernel.wait(2)
    assert await prune(kernel) == NOTHING | {"tombstones": 2}
    assert (await kernel.start("run_a", ["writer"], {"turn_a": "writer"}))["outcome"] == "started"


# ── Kept rows ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("L0-07", "G-61", "K18")
@pytest.mark.parametrize("kind", ["task_event", "report", "stop", "cmd"])
async def test_turn_with_an_unpublished_outbox_row_is_not_pruned(kernel: Kernel, kind: str) -> None:
    await ended(kernel)
    prefix = {"task_event": "evt:turn_a", "report": "report:turn_a", "stop": "stop:turn_a", "cmd": "cmd:turn_a:c1"}[
        kind
    ]
    if kind == "task_event":
        await kernel.harm("update outbox set published_at = null where project_id = $1")
    else:
        await kernel.harm(
            "insert into outbox (project_id, key, kind, agent_turn_id, call_id, body, created_at, due_at)"
            f" values ($1, '{prefix}', '{kind}', 'turn_a', 'c1', '{{\"child_turn_id\": \"turn_a\"}}', now(), now())",
            "insert into turn_waiting_tools (project_id, agent_turn_id, tool_call_id, tool, kind, state, epoch,"
            " opened_at, resolved_at) values ($1, 'turn_a', 'c1', 't', 'tool', 'closed', 2, now(), now())",
        )
    kernel.wait(2 * DAY)
    answer = await prune(kernel)
    assert (answer["turns"], answer["runs"]) == (0, 0)
    await kernel.harm("update outbox set published_at = now() where project_id = $1")
    answer = await prune(kernel)
    assert (answer["turns"], answer["runs"], await row_counts(kernel)) == (1, 1, {})


@pytest.mark.proves("L0-95", "L0-98")
async def test_turn_of_a_forked_box_is_not_pruned(kernel: Kernel) -> None:
    await ended(kernel, "a")
    await ended(kernel, "b")
    await kernel.running("run_c", "turn_c")
    await fork(kernel, "fork_1", "box_turn_a")
    await kernel.enqueue("run_c", "critic", "turn_r", context_box_id="box_turn_b")
    kernel.wait(2 * DAY)
    answer = await prune(kernel)
    assert (answer["turns"], answer["boxes"]) == (0, 1)  # no turn reads the fork, which is old too
    assert (await prune(kernel))["turns"] == 1
    assert await read(kernel, "box_turn_b") == ["a note", "done"]
    await kernel.stop("turn_r")
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert (await prune(kernel))["turns"] == 1  # the reader
    assert (await prune(kernel))["turns"] == 1  # and then the turn whose box it read


async def test_old_unused_contexts_are_pruned(kernel: Kernel) -> None:
    for name in ("used", "unused", "base"):
        await put(kernel, f"context_{name}", name)
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", context_box_id="context_used")
    await fork(kernel, "fork_used", "context_base")
    await kernel.enqueue("run_a", "critic", "turn_2", context_box_id="fork_used")
    kernel.wait(DAY / 2)
    assert (await prune(kernel))["boxes"] == 0
    kernel.wait(DAY)
    await put(kernel, "context_young", "young")
    assert (await prune(kernel))["boxes"] == 1
    assert [row["box_id"] for row in await kernel.rows("boxes", "box_id")] == [
        "context_base", "context_used", "context_young", "fork_used",
    ]  # fmt: skip
    assert await read(kernel, "fork_used") == ["base"]


@pytest.mark.proves("S11")
async def test_unreferenced_blob_is_pruned(kernel: Kernel) -> None:
    await kernel.call("set_limits", {"card_bytes_max": 100})
    large = [{"card_id": "card_1", "kind": "note", "content": {"text": "x" * 1000}}]
    claimed = await kernel.running()
    await kernel.append(claimed, cards=large)
    await kernel.call("put_boxes", [{"box_id": "context_1", "cards": [large[0] | {"card_id": "card_2"}]}])
    assert len(await kernel.rows("blobs")) == 1
    await kernel.finish(claimed, ends="success")
    await kernel.publish()
    kernel.wait(DAY / 2)
    await kernel.running("run_b", "turn_b")
    await kernel.enqueue("run_b", "critic", "turn_c", context_box_id="context_1")
    kernel.wait(DAY)
    answer = await prune(kernel)
    assert (answer["turns"], answer["boxes"], answer["blobs"]) == (1, 0, 0)
    assert [card["content"] for card in await kernel.call("read_box", "context_1", 0, 10)] == [{"text": "x" * 1000}]
    await kernel.harm("update agent_turns set context_box_id = null where project_id = $1")
    answer = await prune(kernel)
    assert (answer["boxes"], answer["blobs"], await kernel.rows("blobs")) == (1, 1, [])


@pytest.mark.proves("SIG-60", "SIG-61", "K25")
async def test_pruning_a_live_log_keeps_causes_of_open_turns_and_pending_reactions(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for n in range(3):  # signals 3 to 5
        await kernel.append(claimed, draft("note", "sig_run_a_2"), signals_emitted=n)
    await kernel.enqueue("run_a", "critic", "turn_c")  # 6 and 7
    await kernel.append(claimed, draft("note", "sig_run_a_2"), signals_emitted=3)  # 8
    kernel.wait(2 * DAY)
    assert await prune(kernel) == NOTHING  # turn_a is open, and begins the log
    await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"])  # 9
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert await prune(kernel) == NOTHING | {"turns": 1, "signals": 4, "cards": 1}
    run = await kernel.run("run_a")
    assert (run["pruned_seq"], run["signal_seq"]) == (5, 9)
    assert [row["seq"] for row in await kernel.rows("signal_log", "seq")] == [6, 7, 8, 9]
    critic = await kernel.claim_one()
    assert (critic["cause"]["id"], critic["cause"]["name"]) == ("sig_run_a_6", "mail:came")
    await kernel.append(critic, draft("finding", critic["activation_id"], is_pending=True))  # 10
    await kernel.finish(critic, version=(await kernel.run("run_a"))["version"])  # 11
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert (await prune(kernel))["signals"] == 3  # 6 and 7, 8, 9
    (pending,) = await kernel.pending()
    assert [each["seq"] for each in pending["signals"]] == [10]
    end = draft("workflow:end", "sig_run_a_10")
    assert (await kernel.react("run_a", pending["run"]["version"], end, status="ended", outcome="success"))[
        "outcome"
    ] == "ok"
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert (await prune(kernel))["runs"] == 1
    assert await row_counts(kernel) == {}


async def test_young_entries_of_a_live_log_are_not_pruned(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    await kernel.finish(claimed, version=2)
    await kernel.publish()
    kernel.wait(DAY / 2)
    second = await kernel.claim_one()
    await kernel.finish(second, version=3, wakes={"turn_3": "critic"})
    await kernel.publish()
    kernel.wait(DAY / 2 + 1)
    assert (await prune(kernel))["signals"] == 1  # the causes of turn_2, which is young, begin at 3
    assert (await kernel.run("run_a"))["pruned_seq"] == 2
    assert (await kernel.enqueue("run_a", "writer", "turn_2"))["outcome"] == "duplicate"


@pytest.mark.parametrize("instance", ["turn_a-c1", "two"], ids=["made for the call", "named"])
@pytest.mark.proves("K7")
async def test_generated_instance_is_pruned_with_its_child_and_a_named_one_keeps_its_epochs(
    kernel: Kernel, instance: str
) -> None:
    call = child("c1", "critic", "turn_c", instance=instance)
    await suspended(kernel, call, signals=activated("critic"))
    await kernel.finish(await kernel.claim_one())
    await kernel.sweep("reports")
    await kernel.publish()
    kernel.wait(2 * DAY)
    assert (await prune(kernel))["turns"] == 1
    row_counts = [row["agent_id"] for row in await kernel.rows("agent_state_head", "agent_id")]
    assert row_counts == ["run_a/critic", *(["run_a/critic/two"] if instance == "two" else []), "run_a/writer"]
    claimed = await kernel.claim_one()
    assert [(each["status"], each["content"]["output"]["text"]) for each in claimed["waits"]] == [("success", "done")]
    again = child("c2", "critic", "turn_c2", instance="two")
    assert (await suspend(kernel, claimed, again, signals=activated("critic")))["outcome"] == "suspended"
    assert (await kernel.claim_one())["epoch"] == (5 if instance == "two" else 2)
