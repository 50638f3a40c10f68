"""Sweeps of waits: deadlines of calls, timers, and suspended turns without open calls."""

from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Kernel
from tests.kernel.waits import (
    activated,
    answers,
    begin,
    child,
    command,
    edges,
    inbox,
    report,
    reported,
    status,
    suspend,
    suspended,
    timer,
    tool,
    wait,
)

NOTHING: dict[str, list[str]] = {"resolved": [], "resumed": [], "failed": [], "targets": []}


@pytest.mark.proves("K11", "L0-21", "L0-75", "L0-76", "L0-77", "L0-37", "CTL-16", "ERR-05")
async def test_overdue_call_is_reported_as_a_timeout(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", 5))
    kernel.wait(4.999)
    assert await kernel.sweep("waits") == NOTHING
    kernel.wait(0.001)
    assert await kernel.sweep("waits") == {
        "resolved": ["turn_a"], "resumed": ["turn_a"], "failed": [], "targets": [TARGET], "woken": ["run_a/writer"],
    }  # fmt: skip
    assert await kernel.sweep("waits") == NOTHING
    assert (await edges(kernel, "turn_a"))[-1] == ("report", "response", "c1")
    assert (await inbox(kernel, "turn_a"))[-1] == ("timeout", "pending")
    assert await kernel.call("read_outbox", 10) == []  # the command is not given out any more
    claimed = await kernel.claim_one()
    assert claimed["inbox"] == [{"message_type": "timeout", "correlation_id": "c1"}]
    (waited,) = claimed["waits"]
    error = waited["content"]["error"]
    assert (waited["status"], error["code"], error["recoverable"]) == ("timeout", "TOOL_TIMEOUT", True)
    assert "5.000 s" in error["message"]


@pytest.mark.proves("G-63", "L0-62", "L0-21", "L0-76")
async def test_each_call_has_a_deadline_of_its_own(kernel: Kernel) -> None:
    async def resume_after() -> float | None:
        deadline = (await kernel.head("run_a/writer"))["resume_deadline"]
        return None if deadline is None else (deadline - started).total_seconds()

    started = kernel.now
    await suspended(kernel, tool("c1", 5), tool("c2", 10), tool("c3", None))
    assert await resume_after() == 5  # of the head: when the first of its calls is overdue
    kernel.wait(7)
    assert await kernel.sweep("waits") == NOTHING | {"resolved": ["turn_a"]}
    assert ((await wait(kernel, "turn_a", "c1"))["status"], await status(kernel)) == ("timeout", "suspended")
    assert await resume_after() == 10
    kernel.wait(60)
    await kernel.sweep("waits")
    assert await resume_after() is None
    assert await status(kernel) == "suspended"  # the third one has no deadline
    assert (await report(kernel, "turn_a", "c3"))["resumed"]
    assert answers(await kernel.claim_one()) == {"c1": "timeout", "c2": "timeout", "c3": "success"}


async def test_all_overdue_calls_of_a_turn_time_out_together_in_order_of_their_deadlines(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 7), tool("c2", 5))
    kernel.wait(60)
    assert (await kernel.sweep("waits", 1))["resumed"] == ["turn_a"]
    assert [(await wait(kernel, "turn_a", call))["resolved_position"] for call in ("c1", "c2")] == [2, 1]
    assert await kernel.rows("signals", "seq, count", "run_id = 'run_a' and seq > 2 and count = 2")


async def test_timer_succeeds_at_its_deadline(kernel: Kernel) -> None:
    await suspended(kernel, timer("c1", 30))
    kernel.wait(30)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    (waited,) = (await kernel.claim_one())["waits"]
    assert (waited["status"], waited["kind"], waited["content"]["output"]) == ("success", "timer", None)


@pytest.mark.proves("CTL-29", "ERR-07")
async def test_overdue_child_is_stopped(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_c", timeout=5), signals=activated("critic"))
    kernel.wait(5)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_c"]
    assert (await kernel.turn("turn_c"))["outcome"] == "canceled"
    assert await kernel.sweep("reports") == NOTHING  # its parent no longer waits for it
    (row,) = await kernel.rows("outbox", "published_at", "kind = 'report'")
    assert row["published_at"] is not None
    (waited,) = next(each for each in await kernel.claim() if each["turn_id"] == "turn_a")["waits"]
    assert (waited["status"], waited["content"]["error"]["code"]) == ("timeout", "DELEGATION_TIMEOUT")


@pytest.mark.proves("K13", "K14")
async def test_inline_call_never_times_out_in_the_kernel(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1", timeout_seconds=5)
    kernel.wait(10)
    assert await kernel.sweep("waits") == NOTHING
    assert (await wait(kernel, "turn_a", "i1"))["state"] == "open"


@pytest.mark.proves("K5", "L0-46")
async def test_timeout_is_delivered_while_the_turn_runs(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 100), tool("c2", 5), join="each")
    await report(kernel, "turn_a", "c1")
    resumed = await kernel.claim_one()
    kernel.wait(5)
    assert await kernel.sweep("waits") == NOTHING | {"resolved": ["turn_a"]}
    assert answers(await suspend(kernel, resumed, join="each")) == {"c1": "success", "c2": "timeout"}


@pytest.mark.proves("K4", "K11", "G-73")
async def test_answered_call_does_not_time_out(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 5), tool("c2", 5))
    kernel.wait(4)
    assert await reported(kernel, "turn_a", "c1") == "applied"
    kernel.wait(1)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    assert answers(await kernel.claim_one()) == {"c1": "success", "c2": "timeout"}


async def test_stopped_turn_has_no_overdue_call(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 5))
    await kernel.stop("turn_a")
    kernel.wait(5)
    assert await kernel.sweep("waits") == NOTHING


@pytest.mark.proves("K17", "K23")
@pytest.mark.parametrize("limit", [1, 2, None])
async def test_one_bad_row_never_stops_the_others(kernel: Kernel, limit: int | None) -> None:
    for name in "abc":
        await suspended(kernel, tool("c1", 5), run_id=f"run_{name}", turn_id=f"turn_{name}")
    # the card of the answer exists already
    await kernel.harm(
        "insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)"
        " values ($1, 'card:turn_a:call:c1', 'box', 'turn_a', 2, 'note', '{}', '2030-01-01')"
    )
    kernel.wait(5)
    sweeps = [await kernel.sweep("waits", limit) for _ in range(4)]
    (failed, *_) = [each for swept in sweeps for each in swept["failed"]]
    assert (failed["turn_id"], failed["code"], "card" in failed["message"]) == ("turn_a", "23505", True)
    assert {turn for swept in sweeps for turn in swept["resumed"]} == {"turn_b", "turn_c"}
    assert ((await kernel.head("run_a/writer"))["sweep_failures"] > 0, await status(kernel)) == (True, "suspended")
    kernel.is_corrupted = True


@pytest.mark.proves("K20")
async def test_sweep_changes_no_deadline_of_an_open_call(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 5), tool("c2", 50))
    before = await wait(kernel, "turn_a", "c2")
    kernel.wait(5)
    await kernel.sweep("waits")
    assert await wait(kernel, "turn_a", "c2") == before


# ── Suspended forever (H2) ────────────────────────────────────────────────────────────────────


@pytest.mark.proves("K16")
async def test_turn_suspended_without_open_calls_is_resumed(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    await suspended(kernel, tool("c1"), run_id="run_b", turn_id="turn_b")
    await kernel.running("run_c", "turn_c")
    assert await kernel.sweep("stuck") == {"resumed": [], "failed": [], "targets": [], "after": None}
    await kernel.harm(
        "update turn_waiting_tools set state = 'closed', resolved_at = '2030-01-01'"
        " where project_id = $1 and agent_turn_id = 'turn_a'"
    )
    assert await kernel.sweep("stuck") == {
        "resumed": ["turn_a"], "failed": [], "targets": [TARGET], "woken": ["run_a/writer"], "after": None,
    }  # fmt: skip
    claimed = await kernel.claim_one()
    assert (claimed["turn_id"], claimed["inbox"]) == (
        "turn_a",
        [{"message_type": "timeout", "correlation_id": "turn_a"}],
    )
    assert await status(kernel, "run_b/writer") == "suspended"
    kernel.is_corrupted = True


async def test_sweep_of_suspended_heads_visits_all_in_batches(kernel: Kernel) -> None:
    for n in range(25):
        await kernel.start(f"run_{n:02}", ["writer"], {f"turn_{n:02}": "writer"})
    for claimed in await kernel.claim():
        await suspend(kernel, claimed, tool("c1"))
    await kernel.harm("update turn_waiting_tools set state = 'closed', resolved_at = opened_at where project_id = $1")
    woken: list[str] = []
    for _ in range(10):
        after = ""
        while True:  # the sweep reads ten heads and wakes one
            swept = await kernel.connection.fetchval(
                "select heliograph.sweep_stuck($1, 1, $2, $3)", kernel.project, after, kernel.now
            )
            woken += swept["resumed"]
            if swept["after"] is None:
                break
            after = swept["after"]
    assert len(woken) == len(set(woken)) == 25
    kernel.is_corrupted = True


@pytest.mark.parametrize("kind", ["waits", "reports", "stuck"])
async def test_sweep_with_a_negative_limit_is_rejected(kernel: Kernel, kind: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="limit"):
        await kernel.sweep(kind, -1)
    assert (await kernel.sweep(kind, 0))["resumed"] == []


@pytest.mark.proves("L0-46")
async def test_all_due_timeouts_are_delivered_at_once_in_order_of_time(kernel: Kernel) -> None:
    await suspended(kernel, *(tool(f"c{n}") for n in range(1, 5)), tool("late", 5))
    for call_id in ("c3", "c1"):
        kernel.wait(1)
        await report(kernel, "turn_a", call_id)
    kernel.wait(5)
    await kernel.sweep("waits")
    for call_id in ("c4", "c2"):
        kernel.wait(1)
        await report(kernel, "turn_a", call_id)
    resumed = await kernel.claim_one()
    assert [(row["message_type"], row["correlation_id"]) for row in resumed["inbox"]] == [
        ("tool_result", "c3"), ("tool_result", "c1"), ("timeout", "late"), ("tool_result", "c4"), ("tool_result", "c2"),
    ]  # fmt: skip
    assert (await inbox(kernel, "turn_a"))[1:] == [(row["message_type"], "processing") for row in resumed["inbox"]]
    await kernel.harm(  # the earliest deadline comes first, in any order of creation
        "update agent_inbox set next_retry_at = next_retry_at - interval '1 hour' where project_id = $1 and correlation_id = 'c2'"
    )
    kernel.wait(31)
    await kernel.sweep("leases")
    again = (await kernel.claim_one())["inbox"]
    assert [row["correlation_id"] for row in again] == ["c2", "c3", "c1", "late", "c4"]
