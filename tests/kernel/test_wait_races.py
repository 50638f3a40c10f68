"""Races of waits on two real connections, ordered by the test (docs/internals/kernel.md): one call keeps its transaction
open while another waits for its lock. The second one sees the result of the first, and each call is resolved once."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Connect, Kernel, draft
from tests.kernel.test_isolation import opened, when_blocked
from tests.kernel.waits import (
    TOKEN,
    activated,
    answers,
    begin,
    child,
    command,
    record,
    report,
    reported,
    status,
    suspend,
    suspended,
    tool,
    wait,
)


@pytest.mark.proves("K3", "K16", "K4")
async def test_report_during_the_suspension_waits_and_resumes_the_turn(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    claimed = await kernel.running()
    async with opened(kernel):
        assert (await suspend(kernel, claimed, tool("c1")))["outcome"] == "suspended"
        task = await when_blocked(client, report(client, "turn_a", "c1"), watcher)
    answer = await task
    assert (answer["outcome"], answer["resumed"], answer["targets"]) == ("applied", True, [TARGET])


@pytest.mark.proves("K3", "K16", "K4")
async def test_suspension_during_the_report_waits_and_finds_it(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    claimed = await kernel.running()
    async with opened(client):
        assert await reported(client, "turn_a", "c1") == "early"
        task = await when_blocked(kernel, suspend(kernel, claimed, tool("c1")), watcher)
    answer = await task
    assert (answer["outcome"], answers(answer)) == ("resolved", {"c1": "success"})
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("K3")
async def test_report_before_a_rolled_back_suspension_is_early(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    claimed = await kernel.running()
    undone = kernel.connection.transaction()
    await undone.start()
    await suspend(kernel, claimed, tool("c1"))
    task = await when_blocked(client, report(client, "turn_a", "c1"), watcher)
    await undone.rollback()
    assert (await task)["outcome"] == "early"
    assert (await suspend(kernel, claimed, tool("c1")))["outcome"] == "resolved"


@pytest.mark.proves("K4", "G-73", "K11")
async def test_report_during_the_timeout_waits_and_is_late(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    await suspended(kernel, command("c1", 5))
    kernel.wait(5)
    async with opened(kernel):
        assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
        task = await when_blocked(client, report(client, "turn_a", "c1", token=TOKEN), watcher)
    assert (await task)["outcome"] == "late"
    assert answers(await kernel.claim_one()) == {"c1": "timeout"}


@pytest.mark.proves("K4", "G-73", "K11", "K17")
async def test_timeout_during_the_report_skips_the_call(kernel: Kernel, beside: Connect) -> None:
    client = await beside()
    await suspended(kernel, tool("c1", 5))
    kernel.wait(5)
    async with opened(client):
        assert await reported(client, "turn_a", "c1") == "applied"
        assert (await kernel.sweep("waits"))["resolved"] == []  # it does not wait for the head either
    assert (await kernel.sweep("waits"))["resolved"] == []
    assert answers(await kernel.claim_one()) == {"c1": "success"}


@pytest.mark.proves("K4", "L0-112")
async def test_second_of_two_simultaneous_reports_waits_and_is_a_duplicate(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await suspended(kernel, tool("c1"), tool("c2"))
    async with opened(kernel):
        assert await reported(kernel, "turn_a", "c1", "first") == "applied"
        task = await when_blocked(other, report(other, "turn_a", "c1", "second"), watcher)
    assert (await task)["outcome"] == "duplicate"
    assert (await kernel.row("cards", "card_id", "card:turn_a:call:c1"))["content"]["output"] == "first"


@pytest.mark.proves("K15")
async def test_exactly_one_of_the_last_two_reports_resumes_the_turn(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await suspended(kernel, tool("c1"), tool("c2"))
    async with opened(kernel):
        assert not (await report(kernel, "turn_a", "c1"))["resumed"]
        task = await when_blocked(other, report(other, "turn_a", "c2"), watcher)
    assert (await task)["resumed"]
    assert [w["resolved_position"] for w in (await kernel.claim_one())["waits"]] == [1, 2]


@pytest.mark.proves("K4")
async def test_rolled_back_report_lets_the_other_apply(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await suspended(kernel, tool("c1"))
    undone = kernel.connection.transaction()
    await undone.start()
    await reported(kernel, "turn_a", "c1", "first")
    task = await when_blocked(other, report(other, "turn_a", "c1", "second"), watcher)
    await undone.rollback()
    assert (await task)["outcome"] == "applied"
    assert (await kernel.row("cards", "card_id", "card:turn_a:call:c1"))["content"]["output"] == "second"


@pytest.mark.proves("K12", "L0-112")
async def test_report_during_the_stop_waits_and_finds_the_turn_done(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    await suspended(kernel, command("c1"))
    async with opened(kernel):
        await kernel.stop("turn_a")
        task = await when_blocked(client, report(client, "turn_a", "c1", token=TOKEN), watcher)
    assert (await task)["outcome"] == "turn_done"
    assert (await wait(kernel, "turn_a", "c1"))["state"] == "closed"


@pytest.mark.proves("K12")
async def test_stop_during_the_report_waits_and_ends_the_resumed_turn(kernel: Kernel, beside: Connect) -> None:
    client, watcher = await beside(), await beside()
    await suspended(kernel, tool("c1"))
    async with opened(client):
        assert await reported(client, "turn_a", "c1") == "applied"
        task = await when_blocked(kernel, kernel.stop("turn_a"), watcher)
    assert (await task)["outcome"] == "stopped"
    assert (await wait(kernel, "turn_a", "c1"))["status"] == "success"
    assert await kernel.claim() == []


@pytest.mark.proves("K5", "L0-40")
async def test_claim_skips_a_turn_that_is_just_being_resumed(kernel: Kernel, beside: Connect) -> None:
    worker = await beside()
    await suspended(kernel, tool("c1"))
    async with opened(kernel):
        assert (await report(kernel, "turn_a", "c1"))["resumed"]
        assert await worker.claim() == []
    assert answers(await worker.claim_one()) == {"c1": "success"}


@pytest.mark.proves("K5", "K15")
async def test_report_during_a_claim_waits_and_its_result_arrives_at_the_next_suspension(
    kernel: Kernel, beside: Connect
) -> None:
    client, watcher = await beside(), await beside()
    await suspended(kernel, tool("c1"), tool("c2"), join="each")
    await report(kernel, "turn_a", "c1")
    async with opened(kernel):
        resumed = await kernel.claim_one()
        task = await when_blocked(client, report(client, "turn_a", "c2"), watcher)
    assert (await task)["outcome"] == "applied"
    assert answers(resumed) == {"c1": "success", "c2": None}
    assert answers(await suspend(kernel, resumed, join="each")) == {"c1": "success", "c2": "success"}


@pytest.mark.proves("K14", "L0-110", "L0-111")
async def test_result_during_the_recovery_waits_and_is_stale(kernel: Kernel, beside: Connect) -> None:
    worker, watcher = await beside(), await beside()
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    kernel.wait(30)
    async with opened(kernel):
        assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
        task = await when_blocked(worker, record(worker, claimed, "i1", "x", draft("note", "sig_run_a_1")), watcher)
    assert (await task)["outcome"] == "stale"
    assert (await begin(kernel, await kernel.claim_one(), "i1"))["outcome"] == "in_doubt"


# ── Children ──────────────────────────────────────────────────────────────────────────────────


async def _with_child(kernel: Kernel) -> None:
    await suspended(kernel, child("c1", "critic", "turn_c"), signals=activated("critic"))


@pytest.mark.proves("K12", "K17", "L0-38")
async def test_end_of_a_child_and_stop_of_its_parent_do_not_wait_for_each_other(
    kernel: Kernel, beside: Connect
) -> None:
    other, watcher = await beside(), await beside()
    await _with_child(kernel)
    (critic,) = await kernel.claim()
    version = (await kernel.run("run_a"))["version"]
    async with opened(kernel):
        assert (await kernel.finish(critic, version=version))["outcome"] == "ok"
        task = await when_blocked(other, other.stop("turn_a"), watcher)  # for the run, not for the child
    assert (await task)["outcome"] == "stopped"
    assert (await kernel.sweep("stops"))["stopped"] == []
    assert (await kernel.sweep("reports"))["resolved"] == []
    assert (await wait(kernel, "turn_a", "c1"))["state"] == "closed"


@pytest.mark.proves("K12", "L0-38")
async def test_report_of_a_child_during_the_stop_of_its_parent_is_completed(kernel: Kernel, beside: Connect) -> None:
    watchdog = await beside()
    await _with_child(kernel)
    await kernel.stop("turn_c")
    async with opened(kernel):
        await kernel.stop("turn_a")
        assert (await watchdog.sweep("reports"))["resolved"] == []  # its parent's head is held: passed over
    assert (await watchdog.sweep("reports"))["resolved"] == []
    assert await kernel.rows("outbox", "*", "kind = 'report' and published_at is null") == []


@pytest.mark.proves("K4", "K17", "L0-38")
async def test_each_report_of_a_child_is_delivered_by_one_of_two_sweeps(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    await _with_child(kernel)
    await kernel.stop("turn_c")
    async with opened(kernel):
        assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
        assert (await other.sweep("reports"))["resumed"] == []
    assert (await other.sweep("reports"))["resumed"] == []
    assert answers(next(c for c in await kernel.claim() if c["turn_id"] == "turn_a")) == {"c1": "canceled"}


async def test_two_parents_that_create_the_same_instance_at_once_share_it(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer", "turn_b": "judge"})
    first, second = await kernel.claim()
    async with opened(kernel):
        await suspend(kernel, first, child("c1", "critic", "turn_1", instance="x"), signals=activated("critic"))
        late = suspend(other, second, child("c1", "critic", "turn_2", instance="x"), signals=activated("critic"))
        task = await when_blocked(other, late, watcher)
    assert (await task)["outcome"] == "suspended"
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_1"]
    assert (await kernel.turn("turn_2"))["state"] == "queued"


async def test_parent_does_not_wait_for_a_head_created_later(kernel: Kernel, beside: Connect) -> None:
    first, second, holder, watcher = [await beside() for _ in range(4)]
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer", "turn_b": "judge"})
    mine, others = await kernel.claim()
    take = "select from heliograph.agent_state_head where project_id = $1 and agent_id = $2 for update"
    async with opened(holder):
        async with opened(kernel):
            await kernel.connection.execute(take, kernel.project, others["agent_id"])
            late = suspend(second, others, child("c1", "critic", "turn_2", instance="x"), signals=activated("critic"))
            task = await when_blocked(second, late, watcher)
            await suspend(first, mine, child("c1", "critic", "turn_1", instance="x"), signals=activated("critic"))
            await holder.connection.execute(take, kernel.project, "run_a/critic/x")
        with pytest.raises(asyncpg.SerializationError, match="repeat the call"):
            await task  # it holds the run by now, and to wait for the head could be a deadlock
    again = await suspend(second, others, child("c1", "critic", "turn_2", instance="x"), signals=activated("critic"))
    assert again["outcome"] == "suspended"


# ── Commands, which a relay marks without any head ────────────────────────────────────────────


@pytest.mark.proves("K18")
@pytest.mark.parametrize("ends", ["report", "stop", "timeout"])
async def test_command_that_is_just_being_sent_is_not_sent_again_after_its_call_ends(
    kernel: Kernel, beside: Connect, ends: str
) -> None:
    relay, watcher = await beside(), await beside()
    await suspended(kernel, command("c1", 5))
    kernel.wait(5)
    async with opened(relay):
        assert await relay.call("mark_published", ["cmd:turn_a:c1"]) == 1
        ending = {"report": report(kernel, "turn_a", "c1", token=TOKEN), "stop": kernel.stop("turn_a"),
                  "timeout": kernel.sweep("waits")}  # fmt: skip
        task = await when_blocked(kernel, ending.pop(ends), watcher)
        for other in ending.values():
            other.close()
    await task
    kernel.wait(100)
    assert await kernel.call("read_outbox", 10) == await kernel.rows(
        "outbox", "*", "kind = 'cmd' and published_at is null"
    ) + [each for each in await kernel.call("read_outbox", 10) if each["kind"] == "task_event"]


@pytest.mark.proves("K18", "K17")
@pytest.mark.parametrize("ends", ["report", "stop"])
async def test_relay_and_answer_of_the_same_commands_do_not_deadlock(
    kernel: Kernel, beside: Connect, ends: str
) -> None:
    relays = [await beside() for _ in range(2)]
    calls = [f"c{n}" for n in range(30)]
    await suspended(kernel, *(command(call, seconds) for seconds, call in enumerate(reversed(calls), 5)))
    keys = [f"cmd:turn_a:{call}" for call in calls]
    batch = [
        {"turn_id": "turn_a", "call_id": call, "token": TOKEN, "status": "success", "result": 1}
        for call in reversed(calls)
    ]
    over = kernel.call("report", batch) if ends == "report" else kernel.stop("turn_a")
    await asyncio.gather(over, *(relay.call("mark_published", keys) for relay in relays for _ in range(1)))
    assert await kernel.rows("outbox", "*", "kind = 'cmd' and published_at is null") == []
    assert await status(kernel) in ("dispatched", "idle")
