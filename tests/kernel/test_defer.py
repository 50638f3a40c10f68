"""defer: the owner cannot go on now; the turn is due again later, and no process waits for it (L0-64, G-71)."""

from __future__ import annotations

import math
from datetime import timedelta

import asyncpg
import pytest

from tests.kernel.kit import Item, Kernel, turn_item
from tests.kernel.waits import answers, defer, inbox, report, status, suspend, suspended, tool


@pytest.mark.proves("L0-64", "G-71", "L0-05")
async def test_deferred_turn_is_claimable_at_its_time_and_not_before(kernel: Kernel) -> None:
    claimed = await kernel.running()
    answer = await defer(kernel, claimed, 10)
    assert answer == {
        "turn_id": "turn_a", "outcome": "deferred", "targets": [], "due_at": kernel.now + timedelta(seconds=10),
    }  # fmt: skip
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["turn_epoch"], head["due_at"], head["owner"]) == (
        "dispatched", claimed["epoch"] + 1, kernel.now + timedelta(seconds=10), None,
    )  # fmt: skip
    (row,) = await kernel.rows("agent_inbox")
    assert (row["status"], row["retry_count"], row["next_retry_at"], row["defer_reason"]) == (
        "deferred", 1, kernel.now + timedelta(seconds=10), "the model is busy",
    )  # fmt: skip
    kernel.wait(9.999)
    assert await kernel.claim() == []
    kernel.wait(0.001)
    again = await kernel.claim_one()
    assert (again["turn_id"], again["epoch"], again["defer_count"], again["attempts"]) == (
        "turn_a",
        claimed["epoch"] + 2,
        1,
        0,
    )
    assert [each["message_type"] for each in again["inbox"]] == ["turn"]
    assert (await kernel.finish(again, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("G-71", "L0-64", "L0-80")
@pytest.mark.parametrize("given", [None, 1, 0])
async def test_turn_past_its_deferral_cap_fails(kernel: Kernel, given: int | None) -> None:
    claimed = await kernel.running()
    for n in range(3 if given is None else given):  # three by default
        assert (await defer(kernel, claimed, 0, deferrals_max=given))["outcome"] == "deferred"
        claimed = await kernel.claim_one()
        assert claimed["defer_count"] == n + 1
    assert (await defer(kernel, claimed, 0, deferrals_max=given))["outcome"] == "exhausted"
    turn = await kernel.turn("turn_a")
    assert (turn["state"], turn["outcome"]) == ("done", "failed")
    card = await kernel.row("cards", "card_id", "card:turn_a:end")
    assert (card["content"]["error"]["code"], "the model is busy" in card["content"]["text"]) == (
        "RESOURCE_EXHAUSTED",
        True,
    )


@pytest.mark.proves("S24")
@pytest.mark.parametrize("trust", ["untrusted", None])
async def test_end_that_quotes_the_reason_of_a_tainted_turn_is_untrusted(kernel: Kernel, trust: str | None) -> None:
    claimed = await kernel.running()
    given = {} if trust is None else {"trust": trust}
    assert (await defer(kernel, claimed, 0, deferrals_max=0, **given))["outcome"] == "exhausted"
    card = await kernel.row("cards", "card_id", "card:turn_a:end")
    (row,) = await kernel.rows("signal_log", "trust", "name = 'agent:failed'")
    assert (card["content"].get("trust"), row["trust"]) == (trust, trust or "trusted")


async def test_deferral_cap_of_the_project_applies(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.connection.execute("select heliograph.set_limits($1, '{\"deferrals_max\": 0}')", kernel.project)
    assert (await defer(kernel, claimed))["outcome"] == "exhausted"


@pytest.mark.proves("K22")
async def test_deferred_turn_keeps_its_place_before_younger_turns(kernel: Kernel) -> None:
    claimed = await kernel.running()
    kernel.wait(1)
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    await defer(kernel, claimed, 5)
    assert (await kernel.claim_one())["turn_id"] == "turn_b"  # it is not in the way while it is not due
    kernel.wait(1)
    await kernel.start("run_c", ["writer"], {"turn_c": "writer"})
    kernel.wait(5)
    assert (await kernel.claim_one())["turn_id"] == "turn_a"


@pytest.mark.proves("L0-02", "L0-110", "K6")
async def test_only_the_owner_defers_a_turn_and_only_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await defer(kernel, claimed)
    before = await kernel.everything()
    for other_owner in (
        claimed,
        claimed | {"epoch": None},
        claimed | {"agent_id": "run_a/critic"},
        claimed | {"turn_id": None},
    ):
        assert (await defer(kernel, other_owner))["outcome"] == "stale"
    assert await kernel.everything() == before


async def test_deferred_turn_keeps_the_results_of_its_calls(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"), tool("c2"), join="each")
    await report(kernel, "turn_a", "c1")
    resumed = await kernel.claim_one()
    await defer(kernel, resumed, 5)
    await report(kernel, "turn_a", "c2")  # while it is deferred
    assert await inbox(kernel, "turn_a") == [
        ("turn", "consumed"),
        ("tool_result", "deferred"),
        ("tool_result", "pending"),
    ]
    assert await kernel.claim() == []
    kernel.wait(5)
    again = await kernel.claim_one()
    assert answers(again) == {"c1": "success", "c2": "success"}
    assert {each["correlation_id"] for each in again["inbox"]} == {"c1", "c2"}
    assert (await suspend(kernel, again, tool("c3")))["outcome"] == "suspended"


@pytest.mark.proves("K12", "L0-87")
async def test_stopping_turn_ends_instead_of_being_deferred(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.stop("turn_a", "graceful", grace_seconds=60)
    assert (await defer(kernel, claimed))["outcome"] == "stopped"
    assert (await kernel.turn("turn_a"))["outcome"] == "canceled"


async def test_deferred_turn_can_be_stopped_and_expires(kernel: Kernel) -> None:
    await defer(kernel, await kernel.running(ttl_seconds=30), 20)
    await defer(kernel, await kernel.running("run_b", "turn_b"), 20)
    assert (await kernel.stop("turn_b"))["outcome"] == "stopped"
    kernel.wait(30)
    assert (await kernel.sweep("expired"))["ended"] == ["turn_a"]
    assert await kernel.claim() == []


async def test_batch_has_the_effect_of_its_items_one_after_another(kernel: Kernel) -> None:
    first, second = await kernel.running(), await kernel.running("run_b", "turn_b")
    items: list[Item] = [
        turn_item(each, reason=None, delay_seconds=n) for n, each in enumerate((second, first, second))
    ]
    outcomes = [(each["turn_id"], each["outcome"]) for each in await kernel.call("defer", items)]
    assert outcomes == [("turn_b", "deferred"), ("turn_a", "deferred"), ("turn_b", "stale")]
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_b"]


@pytest.mark.parametrize(
    "wrong",
    [{"delay_seconds": d} for d in (None, -1, math.nan, math.inf, 1e15)] + [{"deferrals_max": n} for n in (-1, 2**31)],
    ids=str,
)
async def test_time_or_a_cap_out_of_range_is_rejected_by_name(kernel: Kernel, wrong: Item) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=next(iter(wrong))):
        await defer(kernel, claimed, **({"seconds": 1} | wrong))
    assert await kernel.everything() == before
    assert await status(kernel) == "running"


async def test_long_deferral_reason_is_truncated(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert (await defer(kernel, claimed, reason="ü" * 5_000))["outcome"] == "deferred"
    (row,) = await kernel.rows("agent_inbox")
    assert row["defer_reason"] == "ü" * 1000
