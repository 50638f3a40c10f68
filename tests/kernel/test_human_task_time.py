"""Time that a turn waits for humans does not count toward its time to live (48_human_waits.sql)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.kernel.kit import Item, Kernel, ending, turn_item
from tests.kernel.waits import activated, child, report, suspend, suspended, tool

TTL = 10.0


def question(call_id: str, timeout: float | None = None) -> Item:
    return tool(call_id, timeout, tool="ask", kind="human")


def question_card(call_id: str, text: str) -> Item:
    """The card with the question of a call."""
    content = {"tool_call_id": call_id, "tool_name": "ask", "arguments": {"question": text}}
    return {"card_id": f"card_{call_id}", "kind": "tool.call", "content": content}


async def expired(kernel: Kernel) -> list[str]:
    return list((await kernel.sweep("expired"))["ended"])


@pytest.mark.proves("K19")
async def test_question_outlives_ttl_and_turn_keeps_its_remaining_time(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    kernel.wait(4)
    await suspend(kernel, claimed, question("c1"))
    kernel.wait(100_000)
    assert await expired(kernel) == []
    assert await kernel.call("liveness") == []
    assert (await report(kernel, "turn_a", "c1"))["resumed"]
    again = await kernel.claim_one()
    assert again["ttl_seconds"] == pytest.approx(6)
    kernel.wait(5.999)
    assert await expired(kernel) == []
    kernel.wait(0.001)
    assert await expired(kernel) == ["turn_a"]


@pytest.mark.proves("K19")
async def test_time_counts_while_a_tool_is_awaited_beside_the_question(kernel: Kernel) -> None:
    await suspended(kernel, question("c1"), tool("c2", None), limits={"ttl_seconds": TTL})
    kernel.wait(4)
    assert not (await report(kernel, "turn_a", "c2"))["resumed"]
    kernel.wait(1000)
    assert await expired(kernel) == []
    assert (await report(kernel, "turn_a", "c1"))["resumed"]
    assert (await kernel.claim_one())["ttl_seconds"] == pytest.approx(6)


async def test_expiry_names_the_open_question_and_the_setting(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    await suspend(kernel, claimed, question("c1"), tool("c2", None), cards=[question_card("c1", "May I?")])
    kernel.wait(TTL)
    assert await expired(kernel) == ["turn_a"]
    (content,) = [c["content"] for c in await kernel.rows("cards") if c["kind"] == "task.deliverable"]
    assert content["error"] == {
        "code": "TIMEOUT", "recoverable": False, "details": {"scope": "total"},
        "message": 'not finished within its ttl_seconds, 10.000 s; still open: call c1 asks a person "May I?", call c2 of search',
    }  # fmt: skip


async def marks(kernel: Kernel, card_kind: str, signal: str) -> list[Any]:
    """The mark of the one card of a kind, and that of the one signal of a name."""
    (card,) = await kernel.rows("cards", "content", "kind = $2", card_kind)
    (row,) = await kernel.rows("signal_log", "trust", "name = $2", signal)
    return [card["content"].get("trust"), row["trust"]]


@pytest.mark.proves("S24")
@pytest.mark.parametrize(("taint", "mark"), [(["mail"], ["untrusted"] * 2), (None, [None, "trusted"])])
async def test_expiry_that_quotes_the_question_of_a_tainted_turn_is_untrusted(
    kernel: Kernel, taint: list[str] | None, mark: list[str | None]
) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    calls = [{**question("c1"), "taint": taint}, tool("c2", None)]
    await suspend(kernel, claimed, *calls, cards=[question_card("c1", "Pay Mallory?")])
    kernel.wait(TTL)
    assert await expired(kernel) == ["turn_a"]
    assert await marks(kernel, "task.deliverable", "agent:failed") == mark


@pytest.mark.proves("S24")
@pytest.mark.parametrize(("taint", "mark"), [(["mail"], "untrusted"), (None, "trusted")])
async def test_timeout_that_quotes_the_question_of_a_tainted_turn_is_untrusted(
    kernel: Kernel, taint: list[str] | None, mark: str
) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    await suspend(kernel, claimed, {**question("c1", 60), "taint": taint}, cards=[question_card("c1", "Pay Mallory?")])
    kernel.wait(60)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    assert await marks(kernel, "tool.result", "tool:result") == [mark, mark]


async def test_unanswered_question_is_named_when_its_deadline_passes(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    await suspend(kernel, claimed, question("c1", 60), cards=[question_card("c1", "May I?")])
    kernel.wait(60)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    (wait,) = (await kernel.claim_one())["waits"]
    assert wait["content"]["error"]["message"] == 'nobody answered "May I?" within 60.000 s'


async def delegated(kernel: Kernel, parent_ttl: float, child_ttl: float) -> Item:
    """turn_a waits for turn_b, which has just been claimed."""
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, ttl_seconds=parent_ttl)
    (claimed,) = await kernel.claim()
    call = child("c1", "critic", "turn_b", ttl_seconds=child_ttl)
    await kernel.call("suspend", [turn_item(claimed, *activated("critic"), calls=[call])])
    (below,) = await kernel.claim()
    return below


@pytest.mark.proves("K19")
async def test_parent_does_not_expire_while_a_delegated_turn_waits_for_a_person(kernel: Kernel) -> None:
    below = await delegated(kernel, TTL, TTL)
    kernel.wait(3)
    await suspend(kernel, below, question("c1"))
    kernel.wait(1000)
    assert await expired(kernel) == []
    assert await kernel.call("liveness") == []  # the sweep has deferred the parent
    assert (await report(kernel, "turn_b", "c1"))["resumed"]
    (below,) = await kernel.claim()
    assert below["ttl_seconds"] == pytest.approx(7)
    kernel.wait(7)  # the delegated turn hangs: it expires, and its parent continues
    assert await expired(kernel) == ["turn_b"]
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]


@pytest.mark.proves("K19")
async def test_parent_gets_back_the_time_its_delegated_turn_waited_for_a_person(kernel: Kernel) -> None:
    below = await delegated(kernel, TTL, TTL)
    kernel.wait(2)
    await suspend(kernel, below, question("c1"))
    kernel.wait(7)
    await report(kernel, "turn_b", "c1")
    (below,) = await kernel.claim()
    await kernel.finish(below)
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    (above,) = await kernel.claim()
    assert above["ttl_seconds"] == pytest.approx(8)


@pytest.mark.proves("K19")
async def test_turn_that_waits_for_a_person_a_tool_and_a_turn_gets_each_second_back_once(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, ttl_seconds=TTL)
    (claimed,) = await kernel.claim()
    calls = [child("c1", "critic", "turn_b", ttl_seconds=TTL), question("c2"), tool("c3", None)]
    await kernel.call("suspend", [turn_item(claimed, *activated("critic"), calls=calls)])
    (below,) = await kernel.claim()
    kernel.wait(1)
    await suspend(kernel, below, question("c1"))
    kernel.wait(3)
    assert not (await report(kernel, "turn_a", "c3"))["resumed"]
    kernel.wait(50)
    assert await expired(kernel) == []
    await report(kernel, "turn_b", "c1")
    (below,) = await kernel.claim()
    await kernel.finish(below)
    assert (await kernel.sweep("reports"))["resolved"] == ["turn_a"]
    kernel.wait(100)
    assert await expired(kernel) == []
    await report(kernel, "turn_a", "c2")
    assert (await kernel.claim_one())["ttl_seconds"] == pytest.approx(
        9
    )  # one second had passed before the turn waited for a person


async def nested(kernel: Kernel) -> Item:
    """turn_a waits for turn_b, which waits for turn_c, which has just been claimed."""
    await kernel.start("run_a", ["writer", "critic", "editor"], {"turn_a": "writer"}, ttl_seconds=TTL)
    for agent, turn_id in (("critic", "turn_b"), ("editor", "turn_c")):
        (claimed,) = await kernel.claim()
        call = child("c1", agent, turn_id, ttl_seconds=TTL)
        await kernel.call("suspend", [turn_item(claimed, *activated(agent), calls=[call])])
    (below,) = await kernel.claim()
    return below


@pytest.mark.proves("K19")
async def test_parent_gets_back_the_time_waited_below_a_delegated_turn_that_is_stopped(kernel: Kernel) -> None:
    await suspend(kernel, await nested(kernel), question("c1"))
    kernel.wait(9)
    assert (await kernel.stop("turn_b"))["outcome"] == "stopped"
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    (above,) = await kernel.claim()
    assert above["ttl_seconds"] == pytest.approx(10)


async def test_met_goal_stops_questions_and_not_the_work_that_a_deferred_parent_awaits(
    kernel: Kernel,
) -> None:
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer"}, ttl_seconds=TTL)
    (claimed,) = await kernel.claim()
    await kernel.enqueue("run_a", "judge", "turn_j")
    (judge,) = await kernel.claim(lease=600)
    call = child("c1", "critic", "turn_b", ttl_seconds=TTL)
    await kernel.call("suspend", [turn_item(claimed, *activated("critic"), calls=[call])])
    (below,) = await kernel.claim()
    await suspend(kernel, below, question("c1"))
    kernel.wait(2 * TTL)
    assert await expired(kernel) == []  # the sweep has deferred turn_a
    await report(kernel, "turn_b", "c1")
    (below,) = await kernel.claim()
    ((version,),) = await kernel.rows("runs", "version")
    met = ending(judge, version=version, status="terminating", stops={"turns": "human_waits", "reason": "end_when"})
    assert (await kernel.call("finish", [met]))[0]["outcome"] == "ok"
    assert (await kernel.sweep("stops"))["stopped"] == []
    assert (await kernel.finish(below, version=version + 1))["outcome"] == "ok"
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]


@pytest.mark.proves("K19")
async def test_parent_of_a_turn_without_open_questions_expires(kernel: Kernel) -> None:
    await delegated(kernel, TTL, 1000)
    kernel.wait(TTL)
    assert await expired(kernel) == ["turn_a"]


@pytest.mark.proves("K19")
async def test_question_in_a_run_that_is_ending_expires_with_its_turn(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=TTL)
    await kernel.connection.execute(
        "update heliograph.runs set status = 'terminating' where project_id = $1", kernel.project
    )
    await suspend(kernel, claimed, question("c1"))
    kernel.wait(TTL)
    assert await expired(kernel) == ["turn_a"]


async def test_migration_finds_turns_that_already_wait_for_humans(kernel: Kernel, shared_url: Any) -> None:
    """The statement of the migration, on turns that were suspended before it."""
    from heliograph.ledger.install import migrations

    await suspended(kernel, question("c1"), run_id="run_a")
    await suspended(kernel, question("c2"), tool("c3"), run_id="run_b", turn_id="turn_b")
    table = "update heliograph.agent_turns set human_wait_since = null where project_id = $1"
    await kernel.connection.execute(table, kernel.project)
    (text,) = [m.sql for m in migrations() if m.name == "people_time"]
    statement = next(part for part in text.split(";") if "update heliograph.agent_turns" in part)
    await kernel.connection.execute(statement.replace("people_since", "human_wait_since"))
    assert (await kernel.turn("turn_a"))["human_wait_since"] is not None
    assert (await kernel.turn("turn_b"))["human_wait_since"] is None


async def test_turn_with_an_open_question_after_a_met_goal_ends_by_its_time_limit(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer"}, ttl_seconds=TTL)
    (claimed,) = await kernel.claim()
    await kernel.enqueue("run_a", "judge", "turn_j")
    (judge,) = await kernel.claim(lease=600)
    calls = [child("c1", "critic", "turn_b", ttl_seconds=TTL), question("c2")]
    await kernel.call("suspend", [turn_item(claimed, *activated("critic"), calls=calls)])
    (below,) = await kernel.claim()
    await suspend(kernel, below, question("c1"))
    kernel.wait(2 * TTL)
    await expired(kernel)  # keeps the writer: the turn below it waits for a person
    ((version,),) = await kernel.rows("runs", "version")
    goal = ending(judge, version=version, status="terminating", stops={"turns": "human_waits", "reason": "end_when"})
    await kernel.call("finish", [goal])
    await kernel.sweep("stops")
    await kernel.sweep("reports")
    kernel.wait(100 * TTL)
    await expired(kernel)
    outcomes = {row["agent_turn_id"]: row["outcome"] for row in await kernel.rows("agent_turns")}
    assert outcomes == {"turn_a": "timeout", "turn_b": "canceled", "turn_j": "success"}


@pytest.mark.proves("K19")
async def test_deferred_parent_gets_back_the_wait_of_its_child_and_not_its_work(kernel: Kernel) -> None:
    below = await delegated(kernel, TTL, 1000)
    kernel.wait(2)
    await suspend(kernel, below, question("c1"))
    kernel.wait(20)
    assert await expired(kernel) == []  # the sweep has deferred the parent
    await report(kernel, "turn_b", "c1")
    (below,) = await kernel.claim(lease=600)
    kernel.wait(7)
    await kernel.finish(below)
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    (above,) = await kernel.claim()
    assert above["ttl_seconds"] == pytest.approx(1)  # 2 s and 7 s of work count
    assert (await kernel.turn("turn_a"))["human_wait_time"] == timedelta(seconds=20)


@pytest.mark.proves("K19")
async def test_deferred_parent_with_a_question_of_its_own_gets_each_wait_back_without_the_work(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, ttl_seconds=TTL)
    (claimed,) = await kernel.claim()
    calls = [child("c1", "critic", "turn_b", ttl_seconds=1000), question("c2")]
    await kernel.call("suspend", [turn_item(claimed, *activated("critic"), calls=calls)])
    (below,) = await kernel.claim()
    await suspend(kernel, below, question("c1"))
    kernel.wait(20)
    assert await expired(kernel) == []
    await report(kernel, "turn_b", "c1")
    (below,) = await kernel.claim(lease=600)
    kernel.wait(7)
    await kernel.finish(below)
    assert (await kernel.sweep("reports"))["resolved"] == ["turn_a"]
    kernel.wait(30)
    await report(kernel, "turn_a", "c2")
    assert (await kernel.claim_one())["ttl_seconds"] == pytest.approx(3)


@pytest.mark.proves("K19")
async def test_wait_below_a_deferred_turn_that_is_stopped_does_not_contain_work(kernel: Kernel) -> None:
    below = await nested(kernel)
    await suspend(kernel, below, question("c1"))
    kernel.wait(20)
    assert await expired(kernel) == []  # the sweep has deferred turn_a and turn_b
    await report(kernel, "turn_c", "c1")
    (below,) = await kernel.claim(lease=600)
    kernel.wait(3)
    assert (await kernel.stop("turn_b"))["outcome"] == "stopped"
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    (above,) = await kernel.claim()
    assert above["ttl_seconds"] == pytest.approx(7)
