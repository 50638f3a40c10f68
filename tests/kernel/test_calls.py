"""begin_call and record_call: an effect that its owner has here and now, announced before and recorded after (K13, K14)."""

from __future__ import annotations

import math
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.kit import Item, Kernel, draft, turn_item
from tests.kernel.waits import answers, begin, edges, record, reported, status, suspend, suspended, tool, wait

FEWER_CALLS = "make fewer calls in one turn, or raise the limit with helio db limits waits_max=NUMBER"


async def taken_over(kernel: Kernel) -> Item:
    """The turn as its next owner has it."""
    kernel.wait(31)
    assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    return await kernel.claim_one(worker="worker-2")


@pytest.mark.proves("K13", "L0-39")
async def test_effect_is_announced_before_it_happens_and_its_result_recorded_after(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await begin(kernel, claimed, "i1", step_id="s1") == {
        "turn_id": "turn_a",
        "call_id": "i1",
        "outcome": "fresh",
    }
    row = await wait(kernel, "turn_a", "i1")
    assert (row["kind"], row["state"], row["effect"], row["epoch"], row["step_id"]) == (
        "inline", "open", "once", claimed["epoch"], "s1",
    )  # fmt: skip
    assert (await edges(kernel, "turn_a"))[-1] == ("tool_call", "request", "i1")
    results = [draft("tool:result", claimed["activation_id"], payload={"id": "i1"})]
    answer = await record(kernel, claimed, "i1", {"paid": True}, *results)
    assert answer == {"turn_id": "turn_a", "call_id": "i1", "outcome": "ok", "first_seq": 3}
    assert (await kernel.names("run_a"))[2:] == ["tool:result"]  # the owner emits it, once
    row = await wait(kernel, "turn_a", "i1")
    assert (row["state"], row["status"], row["resolved_position"]) == ("resolved", "success", 1)
    card = await kernel.row("cards", "card_id", "card:turn_a:call:i1")
    assert (card["kind"], card["content"]["output"], card["content"]["trust"]) == (
        "tool.result",
        {"paid": True},
        "untrusted",
    )
    assert await status(kernel) == "running"
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("S24")
async def test_call_that_reads_untrusted_content_itself_is_recorded_as_tainted(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for call_id in ("i1", "i2"):
        await begin(kernel, claimed, call_id, effect="pure", is_trusted=True)
    await record(kernel, claimed, "i1", "a mail", taint=["state.mail"])
    await record(kernel, claimed, "i2", "a number")
    cards = {call_id: await kernel.row("cards", "card_id", f"card:turn_a:call:{call_id}") for call_id in ("i1", "i2")}
    assert [cards[each]["content"]["trust"] for each in ("i1", "i2")] == ["untrusted", "trusted"]
    waits = (await taken_over(kernel))["waits"]
    assert [each.get("taint") for each in waits] == [["state.mail"], None]


@pytest.mark.proves("K1", "L0-101")
async def test_card_state_and_signal_of_a_step_are_written_in_one_commit(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    await record(kernel, claimed, "i1", 1, draft("tool:result", claimed["activation_id"]))
    written = await kernel.connection.fetchrow(
        "select (select xmin::text from cards where project_id = $1 and card_id = 'card:turn_a:call:i1') as card,"
        " (select xmin::text from turn_waiting_tools where project_id = $1 and tool_call_id = 'i1') as state,"
        " (select xmin::text from signals where project_id = $1 and run_id = 'run_a' order by seq desc limit 1) as event",
        kernel.project,
    )
    assert written is not None
    assert written["card"] is not None
    assert len(set(written.values())) == 1


@pytest.mark.proves("K13", "L0-110")
async def test_only_the_owner_begins_and_records_calls(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    before = await kernel.everything()
    for other_owner in (
        {"epoch": 1},
        {"turn_id": "turn_b"},
        {"agent_id": "run_a/critic"},
        {"agent_id": None},
        {"epoch": None},
    ):
        assert (await begin(kernel, claimed | other_owner, "i2"))["outcome"] == "stale"
        assert (await record(kernel, claimed | other_owner, "i1"))["outcome"] == "stale"
    assert await kernel.everything() == before


@pytest.mark.proves("K13")
async def test_call_begun_again_by_its_owner_is_fresh(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    before = await kernel.everything()
    assert (await begin(kernel, claimed, "i1"))["outcome"] == "fresh"  # the reply was lost
    assert await kernel.everything() == before


@pytest.mark.proves("K14", "L0-111")
@pytest.mark.parametrize("effect", ["pure", "idempotent", "transactional"])
async def test_repeatable_call_is_repeated_by_the_next_owner(kernel: Kernel, effect: str) -> None:
    await begin(kernel, await kernel.running(), "i1", effect)
    owner = await taken_over(kernel)
    assert [(await begin(kernel, owner, "i1", effect))["outcome"] for _ in range(2)] == ["again", "fresh"]
    assert (await wait(kernel, "turn_a", "i1"))["epoch"] == owner["epoch"]
    assert (await record(kernel, owner, "i1"))["outcome"] == "ok"
    assert len(await kernel.rows("edge_overview", "edge_id", "call_id = 'i1'")) == 1


@pytest.mark.proves("K14", "L0-111")
async def test_once_call_is_in_doubt_for_the_next_owner(kernel: Kernel) -> None:
    effect = "once"
    first = await kernel.running()
    await begin(kernel, first, "i1", effect)
    owner = await taken_over(kernel)
    answer = await begin(kernel, owner, "i1", effect)
    assert (answer["outcome"], answer["status"], answer["content"]["error"]["code"]) == (
        "in_doubt",
        "unknown",
        "IN_DOUBT",
    )
    assert (await kernel.names("run_a"))[-1] == "tool:result"
    again = await begin(kernel, owner, "i1", effect)
    assert (again["outcome"], again["status"], again["content"]) == ("done", "unknown", answer["content"])
    assert (await record(kernel, owner, "i1"))["outcome"] == "duplicate"
    assert (await record(kernel, first, "i1"))["outcome"] == "stale"  # the first owner comes back with its result
    assert (await wait(kernel, "turn_a", "i1"))["status"] == "unknown"


@pytest.mark.proves("K14")
async def test_first_effect_of_a_call_decides_about_its_repetition(kernel: Kernel) -> None:
    await begin(kernel, await kernel.running(), "i1", "once")
    assert (await begin(kernel, await taken_over(kernel), "i1", "pure"))["outcome"] == "in_doubt"


@pytest.mark.proves("K14", "K13")
@pytest.mark.parametrize("effect", ["pure", "once"])
async def test_recorded_call_is_never_repeated(kernel: Kernel, effect: str) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1", effect)
    await record(kernel, claimed, "i1", [1, 2])
    first = await begin(kernel, claimed, "i1", effect)
    owner = await taken_over(kernel)
    for answer in (first, await begin(kernel, owner, "i1", effect)):
        assert (answer["outcome"], answer["status"], answer["content"]["output"]) == ("done", "success", [1, 2])
    assert answers(owner) == answers(await suspend(kernel, owner)) == {"i1": "success"}


async def test_result_is_recorded_and_emitted_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    results = draft("tool:result", claimed["activation_id"])
    await record(kernel, claimed, "i1", "first", results)
    before = await kernel.everything()
    assert (await record(kernel, claimed, "i1", "second", results))["outcome"] == "duplicate"  # a retry, or a mistake
    assert await kernel.everything() == before
    await kernel.append(claimed, draft("note", claimed["activation_id"]), signals_emitted=1)
    await kernel.append(
        claimed, draft("note", claimed["activation_id"]), signals_emitted=1
    )  # the kernel counts the signals of record_call
    assert (await kernel.names("run_a"))[2:] == ["tool:result", "note"]


@pytest.mark.parametrize("how", ["failed", "timeout", "unknown", "canceled"])
async def test_effect_may_be_recorded_as_a_failure(kernel: Kernel, how: str) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    assert (await record(kernel, claimed, "i1", status=how, error={"code": "TOOL_ERROR"}))["outcome"] == "ok"
    answer = await begin(kernel, claimed, "i1")
    assert (answer["status"], answer["content"]["error"]) == (how, {"code": "TOOL_ERROR"})


async def test_batch_of_calls_is_answered_in_its_order(kernel: Kernel) -> None:
    claimed = await kernel.running()
    begun = [
        turn_item(claimed, call_id=call, tool="t", effect="once", timeout_seconds=None) for call in ("i1", "i2", "i1")
    ]
    begun.insert(1, begun[0] | {"epoch": 99})
    assert [each["outcome"] for each in await kernel.call("begin_call", begun)] == ["fresh", "stale", "fresh", "fresh"]
    recorded = [
        turn_item(claimed, draft("one", claimed["activation_id"]), call_id="i1", status="success", result=1),
        turn_item(
            claimed,
            draft("again", claimed["activation_id"]),
            call_id="i1",
            status="success",
            result=1,
            signals_emitted=1,
        ),
        turn_item(
            claimed, draft("two", claimed["activation_id"]), call_id="i2", status="success", result=2, signals_emitted=1
        ),
        turn_item(claimed, call_id="i3", status="success", result=3),
    ]
    outcomes = [each["outcome"] for each in await kernel.call("record_call", recorded)]
    assert outcomes == ["ok", "duplicate", "ok", "rejected"]
    assert (await kernel.names("run_a"))[2:] == ["one", "two"]
    assert [(await wait(kernel, "turn_a", call))["resolved_position"] for call in ("i1", "i2")] == [1, 2]


@pytest.mark.proves("K13")
async def test_result_without_an_intent_is_rejected(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    answer = await record(kernel, claimed, "i1")
    assert (answer["outcome"], answer["code"]) == ("rejected", "not_begun")
    assert await kernel.everything() == before


async def test_suspended_call_is_not_recorded_inline(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"), tool("c2"), join="each")
    await reported(kernel, "turn_a", "c1")
    owner = await kernel.claim_one()
    before = await kernel.everything()
    assert [(await f(kernel, owner, "c2"))["code"] for f in (begin, record)] == ["not_inline", "not_inline"]
    assert await kernel.everything() == before


@pytest.mark.proves("S11", "S12")
async def test_inline_calls_and_their_results_have_limits(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.connection.execute(
        'select heliograph.set_limits($1, \'{"waits_max": 2, "result_bytes_max": 100, "payload_bytes_max": 300}\')',
        kernel.project,
    )
    items = [turn_item(claimed, call_id=f"i{n}", tool="t", effect="once") for n in range(3)]
    outcomes = [(each["outcome"], each.get("code")) for each in await kernel.call("begin_call", items)]
    assert outcomes == [("fresh", None), ("fresh", None), ("rejected", "too_many_waits")]
    assert (await begin(kernel, claimed, "i0"))["outcome"] == "fresh"  # one that is known takes no place
    before = await kernel.everything()
    assert (await record(kernel, claimed, "i0", "x" * 99))["code"] == "payload_too_large"
    large = draft("note", claimed["activation_id"], payload={"text": "x" * 300})
    assert (await record(kernel, claimed, "i0", "x", large))["code"] == "payload_too_large"
    assert await kernel.everything() == before
    assert (await record(kernel, claimed, "i0", "x" * 98))["outcome"] == "ok"


WRONG: list[tuple[str, Item]] = [
    ("call id", {"call_id": None}), ("call id", {"call_id": "i" * 201}), ("tool", {"tool": ""}), ("effect", {"effect": "twice"}),
    ("timeout_seconds", {"timeout_seconds": "NaN"}), ("timeout_seconds", {"timeout_seconds": math.nan}),
    ("timeout_seconds", {"timeout_seconds": -0.1}), ("taint", {"taint": "mail"}), ("step id", {"step_id": "s" * 201}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "wrong"), WRONG, ids=lambda value: str(value)[:40])
async def test_malformed_call_is_not_begun(kernel: Kernel, field: str, wrong: Item) -> None:
    claimed = await kernel.running()
    item = turn_item(claimed, call_id="i1", tool="t", effect="once") | wrong
    with pytest.raises((asyncpg.InvalidParameterValueError, KernelRejected), match=field):
        await kernel.call("begin_call", [item])


@pytest.mark.parametrize(
    "wrong", [{"status": None}, {"status": "odd"}, {"status": "failed"}, {"status": "failed", "error": None}], ids=str
)
async def test_malformed_result_is_not_recorded(kernel: Kernel, wrong: dict[str, Any]) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    with pytest.raises(asyncpg.InvalidParameterValueError, match="status must be success"):
        await record(kernel, claimed, "i1", **wrong)


@pytest.mark.proves("K12")
async def test_open_effect_ends_with_its_turn(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    await kernel.stop("turn_a")
    assert (await wait(kernel, "turn_a", "i1"))["state"] == "closed"
    assert (await record(kernel, claimed, "i1"))["outcome"] == "stale"


# ── Calls that are not made ──


OPEN_AS = {"step_id": "s1", "tool": "charge"}
REJECTED: Item = {"status": "failed", "result": None, "error": {"code": "NO", "message": "no"}, "open_as": OPEN_AS}


async def test_rejected_call_is_opened_and_recorded_in_one_commit(kernel: Kernel) -> None:
    claimed = await kernel.running()
    results = [draft("tool:result", claimed["activation_id"], payload={"id": "i1"})]
    answer = await record(kernel, claimed, "i1", None, *results, **REJECTED)
    assert answer == {"turn_id": "turn_a", "call_id": "i1", "outcome": "ok", "first_seq": 3}
    row = await wait(kernel, "turn_a", "i1")
    assert [row[key] for key in ("kind", "state", "status", "tool", "step_id", "epoch", "resolved_position")] == [
        "inline", "resolved", "failed", "charge", "s1", claimed["epoch"], 1,
    ]  # fmt: skip
    assert (await edges(kernel, "turn_a"))[-1] == ("tool_call", "request", "i1")
    assert (await record(kernel, claimed, "i1", None, *results, **REJECTED))["outcome"] == "duplicate"
    again = await taken_over(kernel)
    assert (await begin(kernel, again, "i1", "pure"))["outcome"] == "done"
    assert (await record(kernel, claimed, "i2", None, **REJECTED))["outcome"] == "stale"
    assert await kernel.checks() == []


@pytest.mark.proves("K2")
async def test_end_of_a_phase_is_opened_and_recorded_with_its_signals_and_the_next_phase(kernel: Kernel) -> None:
    claimed = await kernel.running()
    ready = draft("ready", claimed["activation_id"])
    end: Item = {
        "result": {"value": None},
        "open_as": {"step_id": "init", "tool": "init", "taint": ["mail"]},
        "phase": "plan",
    }
    assert (await record(kernel, claimed, "init", None, ready, **end))["outcome"] == "ok"
    row = await wait(kernel, "turn_a", "init")
    assert [row[key] for key in ("state", "status", "taint")] == ["resolved", "success", ["mail"]]
    assert (await kernel.head("run_a/writer"))["phase"] == "plan"
    count = "select signal_seq from heliograph.runs where run_id = 'run_a'"
    logged = await kernel.connection.fetchval(count)
    assert (await record(kernel, claimed, "init", None, ready, **{**end, "phase": "act"}))["outcome"] == "duplicate"
    assert (await kernel.head("run_a/writer"))["phase"] == "plan"
    assert await kernel.connection.fetchval(count) == logged
    with pytest.raises(asyncpg.InvalidParameterValueError, match="phase must be init, plan, act, reflect or terminate"):
        await record(kernel, claimed, "plan-1", None, **{**end, "phase": "dance"})


async def test_call_twice_in_a_batch_is_recorded_once_within_the_limits(kernel: Kernel) -> None:
    claimed = await kernel.running()
    twice = [turn_item(claimed, call_id="i1", **REJECTED) for _ in range(2)]
    assert [row["outcome"] for row in await kernel.call("record_call", twice)] == ["ok", "duplicate"]
    await kernel.call("set_limits", {"waits_max": 1})
    refused = await record(kernel, claimed, "i2", None, **REJECTED)
    message = "the turn would have 2 calls; at most 1 are allowed: " + FEWER_CALLS
    assert (refused["code"], refused["message"]) == ("too_many_waits", message)
    assert await kernel.checks() == []


@pytest.mark.proves("S12")
async def test_batch_of_rejected_calls_exceeds_no_limit(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i0")
    await kernel.call("set_limits", {"waits_max": 3})
    items = [turn_item(claimed, call_id=f"i{n}", **REJECTED) for n in (1, 2, 3, 2, 4, 0)]
    answers = await kernel.call("record_call", items)
    assert [each["outcome"] for each in answers] == ["ok", "ok", "rejected", "duplicate", "rejected", "ok"]
    message = "the turn would have 4 calls; at most 3 are allowed: " + FEWER_CALLS
    assert {(each["code"], each["message"]) for each in answers if "code" in each} == {("too_many_waits", message)}
    assert (await edges(kernel, "turn_a"))[-2:] == [("tool_call", "request", "i1"), ("tool_call", "request", "i2")]
    assert await kernel.checks() == []


async def test_begun_call_is_recorded_with_its_first_options(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1", "idempotent", step_id="s0")
    assert (await record(kernel, claimed, "i1", None, **REJECTED))["outcome"] == "ok"
    row = await wait(kernel, "turn_a", "i1")
    assert (row["effect"], row["step_id"], row["state"]) == ("idempotent", "s0", "resolved")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ("charge", "open_as must be an object with the step_id and the tool of the call"),
        ([], "open_as must be an object with the step_id and the tool of the call"),
        ({"step_id": "s1"}, "the tool of a call must have 1 to 200 bytes"),
        ({"tool": "charge", "step_id": "s" * 201}, "a step id must have at most 200 bytes"),
    ],
)
async def test_malformed_rejected_call_is_not_opened(kernel: Kernel, results: Any, message: str) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await record(kernel, claimed, "i1", None, **{**REJECTED, "open_as": results})
