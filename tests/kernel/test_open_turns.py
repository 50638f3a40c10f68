"""read_open_turns and read_ended_turns: turns with their calls and arguments, page by page; they write nothing."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Item, Kernel, draft, turn_item
from tests.kernel.waits import TOKEN, activated, child, command


async def pages(kernel: Kernel, run_id: str | None = None, limit: int = 1000) -> list[Item]:
    place: Any = {"agent_id": "", "queue_seq": 0}
    found: list[Item] = []
    while place is not None:
        page = await kernel.call("read_open_turns", TARGET, run_id, place["agent_id"], place["queue_seq"], limit)
        assert len(page["turns"]) <= limit
        found += page["turns"]
        place = page["next"]
    return found


async def test_open_turns_are_read_with_their_calls_and_arguments(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"})
    [dispatched] = await pages(kernel)
    assert (dispatched["status"], dispatched["requests"], dispatched["claimed"]["waits"]) == ("dispatched", {}, [])
    claimed = await kernel.claim_one()
    [running] = await pages(kernel)
    assert running["status"] == "running"
    alike = ("agent_id", "agent", "run_id", "target", "turn_id", "epoch", "attempts", "max_attempts", "output_box_id", "activation_id",
             "cause", "run", "waits", "depth", "message_type", "budget", "stop", "parent_turn_id", "context_box_id")  # fmt: skip
    assert {key: running["claimed"][key] for key in alike} == {key: claimed[key] for key in alike}
    card = {"card_id": f"card_turn_a_{claimed['epoch']}_c1", "kind": "tool.call", "content": {"arguments": {"n": 1}}}
    calls = [command("c1"), child("c2", "critic", "turn_b")]
    drafts = list(activated("critic"))
    drafts[0] |= {"payload": {"task": {"n": 2}, "context": None}}
    await kernel.call("suspend", [turn_item(claimed, *drafts, calls=calls, cards=[card])])
    suspended, of_child = sorted(await pages(kernel), key=lambda turn: turn["claimed"]["turn_id"])
    assert (suspended["status"], of_child["status"]) == ("suspended", "dispatched")
    assert [wait["call_id"] for wait in suspended["claimed"]["waits"]] == ["c1", "c2"]
    assert suspended["requests"]["c1"] == {"n": 1}
    assert "c2" in suspended["requests"]
    assert [turn["claimed"]["turn_id"] for turn in await pages(kernel, "run_a", limit=1)] == ["turn_a", "turn_b"]


@pytest.mark.proves("P-25")
async def test_arguments_of_steps_and_of_calls_through_a_gateway_are_read_from_the_signals_of_their_own_turn(
    kernel: Kernel,
) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_b": "critic"})
    claims = [await kernel.claim_one() for _ in range(2)]
    for claimed in claims:
        for call_id in ("c1", "c2"):
            begun = turn_item(claimed, call_id=call_id, step_id="s1", tool="pay", effect="once")
            await kernel.call("begin_call", [begun])
    for claimed in reversed(claims):  # so the signals of the other turn are between the two positions of a call
        of, parent = claimed["turn_id"], claimed["activation_id"]
        called = [
            draft("tool:call", parent, payload={"id": each, "input_hash": f"{each}-{of}"}) for each in ("c1", "c2")
        ]
        recorded = turn_item(claimed, *called, call_id="c1", status="success", result=1, error=None)
        await kernel.call("record_call", [recorded])
        sent = draft("delegation", parent, payload={"id": "c3", "target_agent": "far", "task": of})
        call = {"call_id": "c3", "tool": "runtime:gateway", "kind": "tool", "timeout_seconds": None, "token": TOKEN}
        await kernel.call("suspend", [turn_item(claimed, sent, calls=[call], signals_emitted=2)])
    found = {turn["claimed"]["turn_id"]: turn["requests"] for turn in await pages(kernel)}
    for of in ("turn_a", "turn_b"):
        assert found[of] == {
            "c1": {"input_hash": f"c1-{of}"},
            "c3": {"agent": "far", "task": of, "context": None},
        }, "the step c2 has no result yet: it runs again, or is in doubt"


async def test_pages_contain_each_open_turn_once_and_no_ended_one(kernel: Kernel) -> None:
    for run in "abc":
        await kernel.start(f"run_{run}", ["writer"], {f"turn_{run}": "writer"})
    done = await kernel.claim_one()
    await kernel.finish(done, ends="success")
    expected = sorted({"turn_a", "turn_b", "turn_c"} - {done["turn_id"]})
    for limit in (1, 2, 1000):
        assert sorted(turn["claimed"]["turn_id"] for turn in await pages(kernel, limit=limit)) == expected
    assert await pages(kernel, done["run_id"]) == []
    other = await kernel.call("read_open_turns", "another", None, "", 0, 10)
    assert other == {"turns": [], "next": None}


async def test_open_turns_are_read_in_a_transaction_that_rejects_writes(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"})
    async with kernel.connection.transaction(readonly=True):
        assert len(await pages(kernel)) == 1


async def test_limit_out_of_range_is_rejected(kernel: Kernel) -> None:
    for limit, after in ((0, 0), (1001, 0), (10, -1)):
        with pytest.raises(asyncpg.PostgresError, match="p_limit must be"):
            await kernel.call("read_open_turns", TARGET, None, "", after, limit)


async def test_ended_turns_of_a_run_are_read_with_results_and_deliverables(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_b": "critic"})
    await kernel.start("run_b", ["writer"], {"turn_c": "writer"})
    assert await kernel.call("read_ended_turns", "run_none", 0, 10) == {"turns": [], "next": None, "memory": None}
    assert (await kernel.call("read_ended_turns", "run_a", 0, 10))["turns"] == []
    ended: dict[str, Item] = {}
    for _ in range(3):
        claimed = await kernel.claim_one()
        ended[claimed["turn_id"]] = claimed
        is_last = claimed["run_id"] == "run_b" or {"turn_a", "turn_b"} <= ended.keys()
        await kernel.finish(claimed, **({"ends": "success"} if is_last else {}))
    found: list[Item] = []
    place: int | None = 0
    while place is not None:
        page = await kernel.call("read_ended_turns", "run_a", place, 1)
        found, place = found + page["turns"], page["next"]
    assert [turn["claimed"]["turn_id"] for turn in found] == ["turn_a", "turn_b"]
    assert {turn["outcome"] for turn in found} == {"success"}
    assert all(turn["content"] is not None and turn["claimed"]["run"]["state"] == {} for turn in found)
    alike = (
        "agent_id",
        "agent",
        "run_id",
        "target",
        "turn_id",
        "output_box_id",
        "activation_id",
        "cause",
        "waits",
        "depth",
        "message_type",
    )
    for turn in found:
        assert {key: turn["claimed"][key] for key in alike} == {
            key: ended[turn["claimed"]["turn_id"]][key] for key in alike
        }
    for after, limit in ((-1, 10), (0, 0), (0, 1001)):
        with pytest.raises(asyncpg.PostgresError, match="p_limit must be"):
            await kernel.call("read_ended_turns", "run_a", after, limit)
