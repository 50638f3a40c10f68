"""The kernel records the mark of untrusted content beside each value, and returns it to every reader of the value."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Item, Kernel, ending
from tests.kernel.waits import activated, begin, child, record, report, suspend, suspended, tool

MARK = {"trust": "untrusted"}


async def cards(kernel: Kernel) -> dict[str, str]:
    """The mark of each result by its call."""
    rows = await kernel.rows("cards", "position, content", "kind = 'tool.result'")
    return {row["content"]["call_id"]: row["content"]["trust"] for row in rows}


async def taken_over(kernel: Kernel) -> Item:
    kernel.wait(31)
    await kernel.sweep("leases")
    return await kernel.claim_one(worker="worker-2")


@pytest.mark.proves("S24")
async def test_next_owner_receives_the_taint_of_each_call(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1", "pure", is_trusted=True)
    await begin(kernel, claimed, "i2", "pure", taint=["mail", "state.order"])
    claimed = await taken_over(kernel)
    assert [each.get("taint") for each in claimed["waits"]] == [None, ["mail", "state.order"]]
    await suspend(kernel, claimed, tool("c1", taint=["mail"]), tool("c2"), tool("c3", taint=[]))
    for call_id in ("c1", "c2", "c3"):
        await report(kernel, "turn_a", call_id)
    claimed = await kernel.claim_one()
    assert [each.get("taint") for each in claimed["waits"]][2:] == [["mail"], None, None]


@pytest.mark.proves("S9", "S24")
async def test_card_and_signal_of_a_result_are_marked_unless_it_is_trusted(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call_id, fields in (
        ("own", {"is_trusted": True}), ("mail", {}), ("after", {"is_trusted": True, "taint": ["mail"]}),
    ):  # fmt: skip
        await begin(kernel, claimed, call_id, **fields)
        await record(kernel, claimed, call_id)
    person = {"call_id": "person", "tool": "ask", "kind": "human", "timeout_seconds": 60.0, "taint": ["mail"]}
    await suspend(kernel, claimed, tool("near", is_trusted=True), tool("far"), person)
    for call_id in ("near", "far", "person"):
        await report(kernel, "turn_a", call_id)
    assert await cards(kernel) == {
        "own": "trusted", "mail": "untrusted", "after": "untrusted",
        "near": "trusted", "far": "untrusted", "person": "trusted",
    }  # fmt: skip
    rows = await kernel.rows("signal_log", "seq, payload, trust", "name = 'tool:result'")
    assert {row["payload"]["id"]: row["trust"] for row in rows} == {
        "near": "trusted", "far": "untrusted", "person": "trusted",
    }  # fmt: skip


@pytest.mark.proves("S24")
@pytest.mark.parametrize("outcome", ["success", "failed"])
async def test_result_of_a_child_has_the_mark_of_its_deliverable(kernel: Kernel, outcome: str) -> None:
    calls = [child(f"c{n}", "critic", f"turn_{n}", n - 1, instance=f"own_{n}") for n in (1, 2)]
    await suspended(kernel, *calls, signals=activated("critic", "critic"))
    for claimed in await kernel.claim():
        version = (await kernel.run("run_a"))["version"]
        item = ending(claimed, version=version, outcome=outcome)
        error = {} if outcome == "success" else {"error": {"code": "X", "message": "done"}}
        item["content"] |= error | (MARK if claimed["turn_id"] == "turn_2" else {})
        (answer,) = await kernel.call("finish", [item])
        assert answer["outcome"] == "ok"
    await kernel.sweep("reports")
    assert await cards(kernel) == {"c1": "trusted", "c2": "untrusted"}
    rows = await kernel.rows("signal_log", "seq, payload, trust", "name = 'delegation_response'")
    assert {row["payload"]["id"]: row["trust"] for row in rows} == {"c1": "trusted", "c2": "untrusted"}


@pytest.mark.proves("S24")
async def test_claimed_turn_has_the_mark_of_the_signal_that_woke_it(kernel: Kernel) -> None:
    claimed = await kernel.running()
    item = ending(claimed, wakes={"turn_1": "critic"})
    item["signals"][0] |= MARK
    await kernel.call("finish", [item])
    assert (await kernel.claim_one())["cause"]["trust"] == "untrusted"
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    assert "trust" not in (await kernel.claim_one())["cause"]


@pytest.mark.proves("S24")
async def test_memory_is_found_with_its_mark_and_stored_once(kernel: Kernel) -> None:
    items = [{"memory_id": "m1", "text": "one"}, {"memory_id": "m2", "text": "two", **MARK}]
    await kernel.call("remember", items)
    again = await kernel.call("remember", [{"memory_id": "m1", "text": "one", **MARK}])
    assert [each["outcome"] for each in again] == ["duplicate"]
    found = await kernel.call("recall", "", None, 10)
    assert {each["memory_id"]: each["trust"] for each in found} == {"m1": "trusted", "m2": "untrusted"}
