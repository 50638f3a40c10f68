"""The record of a call carries the intents of the calls that its owner makes next: one commit, behind one gate (K13, K14)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kit import Item, Kernel, turn_item
from tests.kernel.test_calls import taken_over
from tests.kernel.waits import begin, edges, record, wait


def intent(call_id: str, effect: str = "once", **fields: Any) -> Item:
    return {"call_id": call_id, "tool": "charge", "effect": effect, **fields}


def fresh(call_id: str) -> Item:
    return {"turn_id": "turn_a", "call_id": call_id, "outcome": "fresh"}


@pytest.mark.proves("K13")
async def test_result_and_the_next_intents_are_one_commit(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    answer = await record(kernel, claimed, "i1", intents=[intent("i2", step_id="s2"), intent("i3")])
    assert (answer["outcome"], answer["begun"]) == ("ok", [fresh("i2"), fresh("i3")])
    row = await wait(kernel, "turn_a", "i2")
    assert (row["kind"], row["state"], row["epoch"], row["step_id"]) == ("inline", "open", claimed["epoch"], "s2")
    assert (await edges(kernel, "turn_a"))[-2:] == [("tool_call", "request", "i2"), ("tool_call", "request", "i3")]
    written = await kernel.connection.fetch(
        "select distinct xmin::text from turn_waiting_tools where project_id = $1", kernel.project
    )
    assert len(written) == 1
    assert (await record(kernel, claimed, "i2"))["outcome"] == "ok"


@pytest.mark.proves("K13")
async def test_repeated_record_begins_the_intents_again_and_writes_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    await record(kernel, claimed, "i1", intents=[intent("i2")])
    before = await kernel.everything()
    answer = await record(kernel, claimed, "i1", intents=[intent("i2")])  # the reply was lost
    assert (answer["outcome"], answer["begun"]) == ("duplicate", [fresh("i2")])
    assert await kernel.everything() == before


@pytest.mark.proves("K13")
async def test_record_that_is_stale_or_rejected_begins_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    before = await kernel.everything()
    for owner, call_id, outcome in ((claimed | {"epoch": 1}, "i1", "stale"), (claimed, "i9", "rejected")):
        answer = await record(kernel, owner, call_id, intents=[intent("i2")])
        assert (answer["outcome"], "begun" in answer) == (outcome, False)
    assert await kernel.everything() == before


@pytest.mark.proves("K14")
async def test_next_owner_finds_an_intent_in_doubt_and_another_one_to_repeat(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    await record(kernel, claimed, "i1", intents=[intent("i2"), intent("i3", "idempotent")])
    owner = await taken_over(kernel)
    await begin(kernel, owner, "i4")
    begun = (await record(kernel, owner, "i4", intents=[intent("i2"), intent("i3")]))["begun"]
    assert [(each["outcome"], each.get("status")) for each in begun] == [("in_doubt", "unknown"), ("again", None)]


async def test_reservation_of_the_result_is_settled_before_the_next_call_reserves(kernel: Kernel) -> None:
    claimed = await kernel.running(budget={"tokens": 100})
    await begin(kernel, claimed, "i1", reserve={"tokens": 100})
    intents = [intent("i2", reserve={"tokens": 90}), intent("i3", reserve={"tokens": 1})]
    begun = (await record(kernel, claimed, "i1", used={"tokens": 10}, intents=intents))["begun"]
    assert [(each["outcome"], each.get("code")) for each in begun] == [("fresh", None), ("rejected", "BUDGET_EXCEEDED")]


async def test_answers_of_a_batch_are_those_of_its_items(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call_id in ("i1", "i2"):
        await begin(kernel, claimed, call_id)
    items = [turn_item(claimed, call_id=call_id, status="success") for call_id in ("i1", "i2", "i1")]
    items[1]["intents"], items[2]["intents"] = [intent("i3")], [intent("i3"), intent("i4")]
    answers = await kernel.call("record_call", items)
    assert [each["outcome"] for each in answers] == ["ok", "ok", "duplicate"]
    assert [each.get("begun") for each in answers] == [None, [fresh("i3")], [fresh("i3"), fresh("i4")]]
