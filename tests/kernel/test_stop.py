"""stop, stop_runs, sweep_stops: the first decision about a turn's end counts, and a turn ends once (K12)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import DELIVERABLE, TARGET, Connect, Item, Kernel, stopping, turn_item
from tests.kernel.test_isolation import opened, when_blocked
from tests.kernel.waits import TOKEN, activated, begin, child, command, defer, report, reported, suspend, suspended


async def stopped(kernel: Kernel, turn_id: str = "turn_a") -> Item:
    """Check a stopped turn: one deliverable, one event, one agent:failed, an idle agent. Return the payload of its halt."""
    turn = await kernel.turn(turn_id)
    assert (turn["state"], turn["outcome"]) == ("done", "canceled")
    (card,) = await kernel.rows("cards", "*", "agent_turn_id = $2 and kind = $3", turn_id, DELIVERABLE)
    assert (card["card_id"], card["box_id"]) == (f"card:{turn_id}:end", turn["output_box_id"])
    assert card["content"]["error"]["code"] == "CANCELED"
    events = [event["body"] for event in await kernel.call("read_outbox", 100) if event["key"] == f"evt:{turn_id}"]
    assert [(event["status"], event["deliverable_card_id"]) for event in events] == [("canceled", card["card_id"])]
    logged = await kernel.rows("signal_log", "seq, name, payload, agent", "turn_id = $2", turn_id)
    assert [row["name"] for row in logged][-2:] == ["halt", "agent:failed"]
    assert logged[-1]["payload"]["outcome"] == "canceled"
    return dict(logged[-2]["payload"])


async def state(kernel: Kernel, state: str) -> Item | None:
    """Bring turn_a into one of the states of a turn; return the claim of its owner, if it has one."""
    if state == "queued":
        await kernel.running(turn_id="turn_0")
        await kernel.enqueue("run_a", "writer", "turn_a")
        return None
    if state == "dispatched":
        await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"})
        return None
    return await (suspended(kernel, command("c1")) if state == "suspended" else kernel.running())


@pytest.mark.proves("K12", "L0-80", "L0-81", "L0-87", "G-65", "G-68", "S18", "CTL-30", "K25")
@pytest.mark.parametrize("mode", ["force", "graceful"])
@pytest.mark.parametrize("what", ["queued", "dispatched", "suspended"])
async def test_turn_that_is_not_running_is_stopped_at_once_in_either_mode(kernel: Kernel, what: str, mode: str) -> None:
    await state(kernel, what)
    answer = await kernel.stop("turn_a", mode, reason="user_interrupt", actor="ann")
    assert answer == {"turn_id": "turn_a", "outcome": "stopped", "targets": []}
    assert await stopped(kernel) == {"reason": "user_interrupt", "graceful": mode == "graceful", "actor": "ann"}
    (row,) = await kernel.rows("agent_inbox", "*", "message_type = 'stop'")
    assert (row["status"], row["actor"], row["consumed_at"]) == ("consumed", "ann", kernel.now)
    statuses = [each["status"] for each in await kernel.rows(
        "agent_inbox", "status", "message_type = 'turn' and agent_turn_id = 'turn_a'")]  # fmt: skip
    assert statuses == ["canceled" if what == "queued" else "consumed"]
    if what != "queued":
        assert (await kernel.head("run_a/writer"))["status"] == "idle"
        assert (await kernel.run("run_a"))["pending_reactions"] == 1


@pytest.mark.proves("K12", "L0-02", "L0-110", "G-66", "L0-87")
async def test_forced_stop_takes_a_running_turn_from_its_owner(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "c1")
    answer = await kernel.stop("turn_a")
    assert answer == {"turn_id": "turn_a", "outcome": "stopped", "owner": "worker-1", "targets": []}
    await stopped(kernel)
    before = await kernel.everything()
    assert (await kernel.renew(claimed))["outcome"] == "stale"
    assert (await kernel.append(claimed))["outcome"] == "stale"
    assert (await begin(kernel, claimed, "c2"))["outcome"] == "stale"
    assert (await suspend(kernel, claimed, command("c3")))["outcome"] == "stale"
    assert (await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"]))["outcome"] == "stale"
    assert await kernel.everything() == before


@pytest.mark.proves("K8", "L0-44")
async def test_stop_dispatches_the_next_turn_of_the_agent(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    assert (await kernel.stop("turn_a"))["targets"] == [TARGET]
    assert (await kernel.claim_one())["turn_id"] == "turn_2"


async def test_stopped_queued_turn_is_removed_and_its_neighbours_remain(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for n in (2, 3):
        await kernel.enqueue("run_a", "writer", f"turn_{n}")
    assert (await kernel.stop("turn_2"))["targets"] == []
    assert (await kernel.finish(claimed, version=(await kernel.run("run_a"))["version"]))["outcome"] == "ok"
    assert (await kernel.claim_one())["turn_id"] == "turn_3"


@pytest.mark.proves("L0-47", "G-08", "CTL-73", "S18", "G-66")
async def test_graceful_stop_reaches_the_owner_of_a_running_turn_by_its_heartbeat(kernel: Kernel) -> None:
    claimed = await kernel.running()
    answer = await kernel.stop("turn_a", "graceful", reason="policy_violation", actor="ann")
    force_at = (kernel.now + timedelta(seconds=10)).isoformat()
    assert answer == {
        "turn_id": "turn_a",
        "outcome": "stopping",
        "owner": "worker-1",
        "force_at": force_at,
        "targets": [],
    }
    (row,) = await kernel.rows("agent_inbox", "*", "message_type = 'stop'")
    assert (row["status"], row["actor"], row["turn_epoch"]) == ("pending", "ann", claimed["epoch"])
    kernel.wait(1)
    renewed = await kernel.renew(claimed)
    assert (renewed["outcome"], renewed["stop"]["reason"]) == ("ok", "policy_violation")
    assert (await kernel.append(claimed, phase="terminate"))["outcome"] == "ok"
    assert (await kernel.finish(claimed, outcome="canceled", ends="canceled"))["outcome"] == "ok"
    (row,) = await kernel.rows("agent_inbox", "*", "message_type = 'stop'")
    assert row["status"] == "consumed"
    assert await kernel.checks() == []


async def test_stopping_turn_may_still_succeed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.stop("turn_a", "graceful")
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
    assert await kernel.stop("turn_a") == {
        "turn_id": "turn_a", "outcome": "already_done", "turn_outcome": "success", "targets": [],
    }  # fmt: skip


@pytest.mark.proves("CTL-38", "CTL-73")
@pytest.mark.parametrize(("first", "second", "kept"), [(10, 30, 10), (30, 10, 10), (10, 10, 10), (10, 0, 0)])
async def test_earlier_end_and_first_reason_of_two_graceful_stops_apply(
    kernel: Kernel, first: float, second: float, kept: float
) -> None:
    await kernel.running()
    await kernel.stop("turn_a", "graceful", grace_seconds=first, reason="one")
    before = await kernel.everything()
    answer = await kernel.stop("turn_a", "graceful", grace_seconds=second, reason="two")
    assert answer["force_at"] == (kernel.now + timedelta(seconds=kept)).isoformat()
    head = await kernel.head("run_a/writer")
    assert (head["force_at"], head["stop_reason"]) == (kernel.now + timedelta(seconds=kept), "one")
    if second >= first:
        assert await kernel.everything() == before


async def test_graceful_stop_is_forced_on_request(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.stop("turn_a", "graceful")
    assert (await kernel.stop("turn_a", "force"))["outcome"] == "stopped"
    await stopped(kernel)
    rows = await kernel.rows("agent_inbox", "inbox_id, status", "message_type = 'stop'")
    assert [row["status"] for row in rows] == ["consumed", "consumed"]


@pytest.mark.proves("G-08", "K12")
async def test_graceful_stop_is_forced_after_its_time_and_not_earlier(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.stop("turn_a", "graceful", grace_seconds=5, reason="enough")
    nothing: Item = {"stopped": [], "stopping": [], "owners": [], "failed": [], "targets": []}
    kernel.wait(4.999)
    assert await kernel.sweep("stops") == nothing
    kernel.wait(0.001)
    assert await kernel.sweep("stops", 0) == nothing
    assert await kernel.sweep("stops") == nothing | {"stopped": ["turn_a"], "owners": ["worker-1"]}
    assert (await stopped(kernel))["reason"] == "enough"
    assert await kernel.sweep("stops") == nothing


@pytest.mark.proves("L0-111", "K12")
async def test_stopping_turn_of_a_dead_worker_is_ended_and_not_retried(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.stop("turn_a", "graceful", grace_seconds=600)
    kernel.wait(30)
    assert await kernel.sweep("leases") == {"recovered": [], "ended": ["turn_a"], "failed": [], "targets": []}
    await stopped(kernel)


@pytest.mark.parametrize("gives_up", ["release", "defer", "suspend"])
async def test_stopping_turn_that_its_owner_releases_is_ended(kernel: Kernel, gives_up: str) -> None:
    claimed = await kernel.running()
    await kernel.stop("turn_a", "graceful")
    if gives_up == "release":
        (answer,) = await kernel.call("release", [turn_item(claimed)])
    else:
        answer = await (defer(kernel, claimed) if gives_up == "defer" else suspend(kernel, claimed, command("c1")))
    assert answer["outcome"] == "stopped"
    await stopped(kernel)


@pytest.mark.proves("L0-07", "L0-80", "K12")
async def test_stop_of_a_done_turn_returns_its_outcome(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), outcome="failed", ends="failed")
    before = await kernel.everything()
    for mode in ("force", "graceful"):
        answer = await kernel.stop("turn_a", mode)
        assert answer == {"turn_id": "turn_a", "outcome": "already_done", "turn_outcome": "failed", "targets": []}
    assert (await kernel.stop("turn_x"))["outcome"] == "unknown_turn"
    assert await kernel.everything() == before


async def test_one_call_stops_many_and_answers_in_their_order(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer", "turn_2": "writer", "turn_3": "critic"})
    turns = ["turn_3", "turn_x", "turn_2", "turn_1", "turn_3"]
    answers = await kernel.call("stop", [stopping(turn) for turn in turns])
    assert [(each["turn_id"], each["outcome"]) for each in answers] == [
        ("turn_3", "stopped"), ("turn_x", "unknown_turn"), ("turn_2", "stopped"), ("turn_1", "stopped"),
        ("turn_3", "already_done"),
    ]  # fmt: skip


@pytest.mark.proves("K4", "K12", "L0-112")
async def test_reports_to_a_stopped_turn_are_acknowledged_and_change_nothing(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), command("c2"))
    await kernel.stop("turn_a")
    rows = await kernel.rows("turn_waiting_tools", "tool_call_id, state, status")
    assert [tuple(row) for row in rows] == [("c1", "closed", None), ("c2", "closed", None)]
    assert await kernel.call("take_commands", ["search"], 10, 1.0) == []
    before = await kernel.everything()
    assert await reported(kernel, "turn_a", "c1", token=TOKEN) == "turn_done"
    assert await kernel.everything() == before


# ── Descendants ───────────────────────────────────────────────────────────────────────────────


async def family(kernel: Kernel) -> None:
    """turn_a waits for turn_b, a critic's, which waits for turn_c, another writer's."""
    await suspended(kernel, child("c1", "critic", "turn_b"), signals=activated("critic"))
    claimed = await kernel.claim_one()
    call = child("c2", "writer", "turn_c", instance="two")
    assert (await suspend(kernel, claimed, call, signals=activated("writer")))["outcome"] == "suspended"


@pytest.mark.proves("CTL-35", "L0-38", "K12", "K17")
async def test_stop_reaches_all_descendants_each_in_its_own_transaction(kernel: Kernel) -> None:
    await family(kernel)
    await kernel.stop("turn_a", reason="user_interrupt")
    for turn in ("turn_b", "turn_c"):
        assert (await kernel.turn(turn))["state"] != "done"
        assert (await kernel.sweep("stops"))["stopped"] == [turn]
        assert await stopped(kernel, turn) == {"reason": "parent_termination", "graceful": False}
    for _ in range(3):  # the children report to a parent that no longer waits
        await kernel.sweep("reports")
    await kernel.publish()
    assert [row["key"] for row in await kernel.rows("outbox", "key", "published_at is null")] == []


async def test_running_turn_with_a_stop_order_stops_its_children_when_it_ends(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_b"), command("c2"), join="each", signals=activated("critic"))
    await report(kernel, "turn_a", "c2", token=TOKEN)
    claimed = next(each for each in await kernel.claim() if each["turn_id"] == "turn_a")
    await kernel.stop("turn_a", "graceful")
    assert (await kernel.sweep("stops"))["stopped"] == []
    assert (await kernel.finish(claimed, outcome="canceled", version=(await kernel.run("run_a"))["version"]))[
        "outcome"
    ] == "ok"
    assert (await kernel.sweep("stops"))["stopping"] == ["turn_b"]


# ── Beside others ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("K12", "L0-110")
async def test_first_of_a_simultaneous_stop_and_ending_decides(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    claimed = await kernel.running()
    async with opened(kernel):
        assert (await kernel.stop("turn_a"))["outcome"] == "stopped"
        task = await when_blocked(other, other.finish(claimed, ends="success"), watcher)
    assert (await task)["outcome"] == "stale"
    await stopped(kernel)
    second = await kernel.running("run_b", "turn_b")
    async with opened(kernel):
        assert (await kernel.finish(second, ends="success"))["outcome"] == "ok"
        task = await when_blocked(other, other.stop("turn_b"), watcher)
    assert (await task)["turn_outcome"] == "success"


@pytest.mark.proves("K17")
async def test_stop_that_another_sweep_is_delivering_is_skipped(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    for name in "ab":
        await kernel.running(f"run_{name}", f"turn_{name}")
    await kernel.call("stop_runs", [stopping("run_b"), stopping("run_a")])
    async with opened(kernel):
        assert (await kernel.sweep("stops", 1))["stopped"] == ["turn_b"]
        assert (await other.sweep("stops"))["stopped"] == ["turn_a"]
    assert (await other.sweep("stops"))["stopped"] == []


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"mode": "gently"}, "mode must be force or graceful, not gently"), ({"mode": None}, "mode must be"),
    ({"grace_seconds": -1}, "grace_seconds must be between"), ({"grace_seconds": 86401}, "grace_seconds"),
    ({"grace_seconds": "NaN"}, "grace_seconds"), ({"reason": "r" * 1001}, "reason must have at most 1000 bytes"),
    ({"actor": "a" * 201}, "actor must have at most 200 bytes"),
]  # fmt: skip
NO_REASON = "reason must be a string that is not empty"


@pytest.mark.parametrize(("fields", "message"), NONSENSE, ids=str)
@pytest.mark.parametrize("what", ["turn_a", "run_a"])
async def test_malformed_stop_stops_nothing(kernel: Kernel, what: str, fields: Item, message: str) -> None:
    await kernel.running()
    before = await kernel.everything()
    function = "stop" if what == "turn_a" else "stop_runs"
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await kernel.call(function, [stopping(what), stopping(what) | fields])
    assert await kernel.everything() == before
    for item in ({"mode": "force"}, {"mode": "force", "turn_id" if function == "stop" else "run_id": ["x"]}):
        (answer,) = await kernel.call(function, [item])
        assert answer["outcome"] in ("unknown_turn", "unknown_run")


@pytest.mark.proves("CTL-30")
@pytest.mark.parametrize("reason", [7, {}, ["enough"], True, ""], ids=repr)
@pytest.mark.parametrize("function", ["stop", "stop_runs"])
async def test_halt_whose_reason_is_no_text_is_rejected_and_not_logged(
    kernel: Kernel, function: str, reason: Any
) -> None:
    await kernel.running()
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=NO_REASON):
        await kernel.call(function, [stopping("turn_a" if function == "stop" else "run_a", reason=reason)])
    assert await kernel.everything() == before


@pytest.mark.proves("CTL-30")
@pytest.mark.parametrize("fields", [{}, {"reason": None}], ids=str)
@pytest.mark.parametrize("what", ["turn_a", "run_a"])
async def test_halt_whose_sender_gives_no_reason_is_logged_with_one(kernel: Kernel, what: str, fields: Item) -> None:
    await kernel.running()
    await kernel.stop(what, **fields)
    await kernel.sweep("stops")
    (halt,) = await kernel.rows("signal_log", "payload", "name = 'halt'")
    assert halt["payload"] == {"reason": "external_signal", "graceful": False}
    assert (await stopped(kernel))["reason"] == "external_signal"


@pytest.mark.proves("CTL-35", "K12")
async def test_forced_stop_of_a_parent_forces_a_gracefully_stopping_child(kernel: Kernel) -> None:
    call = child("c1", "critic", "turn_b", timeout=5.0)
    await suspended(kernel, call, command("c2", timeout=None), signals=activated("critic"))
    await kernel.claim_one()
    await kernel.stop("turn_b", "graceful", grace_seconds=600)
    await kernel.stop("turn_a", "force")
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_b"]
