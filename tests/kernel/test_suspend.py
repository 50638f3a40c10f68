"""suspend: an owner releases its turn until its calls are answered, in one commit (K3)."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.kernel.filled import RATE
from tests.kernel.kit import START, TARGET, Item, Kernel, draft, turn_item
from tests.kernel.waits import (
    TOKEN,
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


@pytest.mark.proves("K3", "L0-13", "L0-20", "L0-39", "L0-51", "L0-52", "L0-53", "L0-55", "L0-21", "G-63")
async def test_waits_edges_commands_and_the_suspended_head_are_written_in_one_commit(kernel: Kernel) -> None:
    claimed = await suspended(kernel, command("c1", step_id="s1"), tool("c2", 5), tool("c3", None), phase="act")
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["phase"], head["turn_epoch"], head["active_agent_turn_id"]) == (
        "suspended", "act", claimed["epoch"], "turn_a",
    )  # fmt: skip
    assert (head["owner"], head["lease_until"], head["resumes_on"]) == (None, None, "all")
    assert (head["waiting_tool_count"], head["resume_deadline"]) == (3, START + timedelta(seconds=5))
    first = await wait(kernel, "turn_a", "c1")
    assert (first["state"], first["step_id"], first["tool"], first["kind"], first["effect"], first["epoch"]) == (
        "open", "s1", "search", "tool", "once", claimed["epoch"],
    )  # fmt: skip
    deadlines = [(await wait(kernel, "turn_a", call))["deadline"] for call in ("c1", "c2", "c3")]
    assert deadlines == [START + timedelta(seconds=60), START + timedelta(seconds=5), None]
    assert (await edges(kernel, "turn_a"))[1:] == [("tool_call", "request", call) for call in ("c1", "c2", "c3")]
    assert await inbox(kernel, "turn_a") == [("turn", "consumed")]
    (lease,) = await kernel.rows("leases", "ended_at")
    assert lease["ended_at"] == START
    await kernel.call("declare_wire", "nats")
    (sent,) = await kernel.call("read_outbox", 10)
    assert (sent["key"], sent["subject"]) == ("cmd:turn_a:c1", "cmd.tool.search")
    assert sent["body"] == {
        "tool_call_id": "c1", "agent_turn_id": "turn_a", "turn_epoch": claimed["epoch"], "agent_id": "run_a/writer", "run_id": "run_a",
        "step_id": "s1", "tool_name": "search", "after_execution": "suspend", "query": "c1", "token": TOKEN,
    }  # fmt: skip


@pytest.mark.proves("K3", "L0-51")
async def test_command_is_sent_only_after_the_commit_of_the_suspension(kernel: Kernel) -> None:
    claimed = await kernel.running()
    undone = kernel.connection.transaction()
    await undone.start()
    assert (await suspend(kernel, claimed, command("c1")))["outcome"] == "suspended"
    await undone.rollback()
    assert await kernel.call("read_outbox", 10) == []
    assert (await status(kernel), await kernel.rows("turn_waiting_tools")) == ("running", [])


@pytest.mark.proves("G-67")
async def test_card_of_a_repeated_suspension_is_not_written_again_and_another_one_is_rejected(kernel: Kernel) -> None:
    """The turn keeps running, because its call has a result already: its owner may repeat a request whose answer it lost."""
    claimed = await kernel.running()
    await reported(kernel, "turn_a", "c1")
    old, new = ({"card_id": f"card_{name}", "kind": "tool.call", "content": {"a": name}} for name in ("old", "new"))
    for cards in ([old], [old], [new, old, new]):
        assert (await suspend(kernel, claimed, tool("c1"), cards=cards))["outcome"] == "resolved"
    written = await kernel.rows("cards", "position, card_id, content", "kind = 'tool.call'")
    assert [(card["card_id"], card["content"]) for card in written] == [
        ("card_old", {"a": "old"}),
        ("card_new", {"a": "new"}),
    ]
    assert (await kernel.turn("turn_a"))["card_count"] == 2
    for wrong in ([old | {"content": 7}], [{**new, "card_id": "card_x"}, {**old, "card_id": "card_x"}]):
        with pytest.raises(asyncpg.UniqueViolationError, match="card_exists"):
            await suspend(kernel, claimed, tool("c1"), cards=wrong)


@pytest.mark.proves("S14")
async def test_token_is_stored_as_a_hash_and_removed_with_the_answer(kernel: Kernel) -> None:
    """Its command is deleted. That of a call which has not started under its rate limit remains, for reset_rate."""
    waiting = [command(f"c{n}", 7200, rates=[{**RATE, "count": 1, "seconds": 3600}]) for n in (2, 3)]
    await suspended(kernel, command("c1"), *waiting)
    assert (await wait(kernel, "turn_a", "c1"))["token_hash"] == hashlib.sha256(TOKEN.encode()).digest()
    await kernel.call("take_commands", ["search"], 9, 0)  # c1 and c2
    for call_id in ("c1", "c2", "c3"):
        assert await reported(kernel, "turn_a", call_id, token=TOKEN) == "applied"
    (row,) = await kernel.rows("outbox", "call_id, body, published_at", "kind = 'cmd'")
    assert tuple(row.values()) == ("c3", {"query": "c3"}, START)
    stored = repr(await kernel.everything())
    assert TOKEN not in stored


@pytest.mark.proves("L0-15", "L0-54", "L0-19")
async def test_suspension_clears_the_leased_action(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {})
    await kernel.enqueue("run_a", "writer", "turn_a", message_type="ui_action")
    assert (await kernel.head("run_a/writer"))["expecting_correlation_id"] is not None
    assert (await suspend(kernel, await kernel.claim_one(), tool("c1")))["outcome"] == "suspended"
    assert (await kernel.head("run_a/writer"))["expecting_correlation_id"] is None


@pytest.mark.proves("K3", "K6", "L0-02", "L0-110")
async def test_only_the_owner_suspends_a_turn_and_only_once(kernel: Kernel) -> None:
    claimed = await suspended(kernel, tool("c1"))
    before = await kernel.everything()
    other_owners = [
        claimed | {"epoch": claimed["epoch"] - 1},
        claimed | {"turn_id": "turn_b"},
        claimed | {"agent_id": "run_a/critic"},
    ]
    for other_owner in [claimed, *other_owners]:  # the first one is a retry after a lost reply
        assert await suspend(kernel, other_owner, command("c2")) == {
            "turn_id": other_owner["turn_id"], "outcome": "stale", "targets": [],
        }  # fmt: skip
    assert await kernel.everything() == before


@pytest.mark.proves("K22", "L0-63", "L0-14", "L0-15")
async def test_resumed_turn_is_claimable_by_any_worker_before_younger_ones(kernel: Kernel) -> None:
    claimed = await suspended(kernel, tool("c1"))
    kernel.wait(1)
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    kernel.wait(1)
    assert (await report(kernel, "turn_a", "c1"))["targets"] == [TARGET]
    resumed = await kernel.claim_one(worker="worker-2")
    assert (resumed["turn_id"], resumed["epoch"], answers(resumed)) == (
        "turn_a",
        claimed["epoch"] + 1,
        {"c1": "success"},
    )
    assert resumed["inbox"] == [{"message_type": "tool_result", "correlation_id": "c1"}]
    assert (await kernel.finish(resumed, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("K16")
async def test_turn_without_open_waits_keeps_running(kernel: Kernel) -> None:
    claimed = await kernel.running()
    answer = await suspend(kernel, claimed, signals=[draft("note", claimed["activation_id"])], phase="reflect")
    assert (answer["outcome"], answer["waits"], await status(kernel)) == ("resolved", [], "running")
    assert (await kernel.names("run_a"))[-1] == "note"
    head = await kernel.head("run_a/writer")
    assert (head["phase"], head["owner"]) == ("reflect", "worker-1")
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"


async def test_suspension_commits_its_signals_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    card = {"card_id": "card_call", "kind": "tool.call", "content": {"query": "x"}}
    drafts = [draft("tool:call", claimed["activation_id"]), draft("echo", 0)]
    await kernel.append(claimed, draft("early", claimed["activation_id"]))
    answer = await suspend(kernel, claimed, tool("c1"), signals=drafts, signals_emitted=1, cards=[card])
    assert answer["first_seq"] == 4
    log = [tuple(row) for row in await kernel.rows("signal_log", "seq, name, parent", "run_id = 'run_a' and seq > 2")]
    assert log == [(3, "early", "sig_run_a_2"), (4, "tool:call", "sig_run_a_2"), (5, "echo", "sig_run_a_4")]
    assert [row["card_id"] for row in await kernel.rows("cards")] == ["card_call"]
    assert (await kernel.turn("turn_a"))["card_count"] == 1


async def test_committed_drafts_are_not_emitted_again(kernel: Kernel) -> None:
    claimed = await kernel.running()
    drafts = [draft("one", claimed["activation_id"])]
    first = await suspend(kernel, claimed, signals=drafts)  # nothing is open: it runs on, and this reply is lost
    again = await suspend(kernel, claimed, signals=drafts)
    assert (first["outcome"], again["outcome"], first["first_seq"]) == ("resolved", "resolved", again["first_seq"])
    await kernel.append(claimed, draft("two", claimed["activation_id"]), signals_emitted=1)
    assert (await kernel.names("run_a"))[2:] == ["one", "two"]


@pytest.mark.proves("K25", "L0-39")
async def test_draft_with_a_subscriber_is_a_pending_reaction(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = (await kernel.run("run_a"))["version"]
    signals = [draft("tool:call", claimed["activation_id"], is_pending=True), draft("note", 0)]
    await suspend(kernel, claimed, tool("c1"), signals=signals)
    run = await kernel.run("run_a")
    assert (run["pending_reactions"], run["version"]) == (1, before + 1)
    ((pending,),) = [each["signals"] for each in await kernel.pending()]
    assert pending["name"] == "tool:call"


async def test_repeated_call_of_a_suspension_is_unchanged(kernel: Kernel) -> None:
    await suspended(kernel, command("c1", 30))
    await report(kernel, "turn_a", "c1", token=TOKEN)
    resumed = await kernel.claim_one()
    before = await wait(kernel, "turn_a", "c1")
    again = command("c1", 900) | {"tool": "another", "token": "another"}
    assert (await suspend(kernel, resumed, again))["outcome"] == "resolved"
    assert await wait(kernel, "turn_a", "c1") == before
    assert (await suspend(kernel, resumed, again, tool("c2")))["outcome"] == "suspended"
    assert (await wait(kernel, "turn_a", "c1"), await kernel.rows("outbox")) == (before, [])


@pytest.mark.proves("K15", "L0-62")
async def test_suspension_counts_every_open_call_and_not_only_its_own(kernel: Kernel) -> None:
    claimed = await suspended(kernel, tool("c1"), tool("c2"), join="each")
    await report(kernel, "turn_a", "c1")
    resumed = await kernel.claim_one()
    assert (resumed["turn_id"], answers(resumed)) == (claimed["turn_id"], {"c1": "success", "c2": None})
    assert (await suspend(kernel, resumed, tool("c3")))["outcome"] == "suspended"
    assert (await kernel.head("run_a/writer"))["waiting_tool_count"] == 2
    await report(kernel, "turn_a", "c3")
    assert await status(kernel) == "suspended"
    await report(kernel, "turn_a", "c2")
    assert await status(kernel) == "dispatched"


@pytest.mark.proves("K15", "K16")
@pytest.mark.parametrize("by_seen", [True, False], ids=["told by seen", "told by the inbox"])
async def test_streaming_join_never_suspends_on_a_result_that_its_owner_has_not_received(
    kernel: Kernel, by_seen: bool
) -> None:
    await suspended(kernel, tool("c1"), tool("c2"), tool("c3"), join="each")
    await report(kernel, "turn_a", "c1")
    resumed = await kernel.claim_one()
    await report(kernel, "turn_a", "c2")  # while the owner runs
    seen = {"seen": 1} if by_seen else {}
    first = await suspend(kernel, resumed, join="each", **seen)
    assert (first["outcome"], answers(first)) == ("resolved", {"c1": "success", "c2": "success", "c3": None})
    if by_seen:  # the reply was lost: the owner has received only one result
        assert (await suspend(kernel, resumed, join="each", seen=1))["outcome"] == "resolved"
    assert (await suspend(kernel, resumed, join="each", **({"seen": 2} if by_seen else {})))["outcome"] == "suspended"
    await report(kernel, "turn_a", "c3")
    assert answers(await kernel.claim_one()) == dict.fromkeys(["c1", "c2", "c3"], "success")


@pytest.mark.proves("K13", "K15")
async def test_inline_call_does_not_suspend_its_turn(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    assert (await suspend(kernel, claimed))["outcome"] == "resolved"
    assert (await suspend(kernel, claimed, tool("c1")))["outcome"] == "suspended"
    assert (await kernel.head("run_a/writer"))["waiting_tool_count"] == 1
    await report(kernel, "turn_a", "c1")
    assert await status(kernel) == "dispatched"


async def test_batch_has_the_effect_of_its_items_one_after_another(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_c": "critic"})
    await kernel.start("run_b", ["writer"], {"turn_b": "writer"})
    claimed = {each["turn_id"]: each for each in await kernel.claim()}
    note = draft("note", "sig_run_a_1")
    items = [turn_item(claimed[turn], note, calls=[tool("c1")]) for turn in ("turn_a", "turn_b", "turn_a", "turn_c")]
    items.insert(1, turn_item(claimed["turn_a"] | {"epoch": 99}, calls=[tool("c1")]))
    outcomes = [(each["turn_id"], each["outcome"]) for each in await kernel.call("suspend", items)]
    assert outcomes == [("turn_a", "suspended"), ("turn_a", "stale"), ("turn_b", "suspended"), ("turn_a", "stale"),
                        ("turn_c", "suspended")]  # fmt: skip
    assert (await kernel.names("run_a")).count("note") == 2


@pytest.mark.proves("S11", "S12")
@pytest.mark.parametrize(
    ("limit", "code", "item"),
    [
        ({"waits_max": 2}, "too_many_waits", {"calls": [tool("c1"), tool("c2"), tool("c3")]}),
        (
            {"payload_bytes_max": 100},
            "payload_too_large",
            {"signals": [draft("note", "sig_run_a_1", payload={"text": "x" * 101})]},
        ),
        (
            {"cards_max": 1},
            "too_many_cards",
            {"cards": [{"card_id": f"card_{n}", "kind": "n", "content": n} for n in "ab"]},
        ),
        (
            {"result_bytes_max": 600},
            "payload_too_large",
            {"calls": [tool("c1", command={"body": {"text": "x" * 600}})]},
        ),
    ],
    ids=["waits", "signal", "cards", "command"],
)
async def test_suspension_over_a_limit_is_rejected_and_writes_nothing(
    kernel: Kernel, limit: Item, code: str, item: Item
) -> None:
    claimed = await kernel.running()
    await set_limits(kernel, limit)
    before = await kernel.everything()
    (answer,) = await kernel.call("suspend", [turn_item(claimed, calls=[tool("c0")], cards=[]) | item])
    assert (answer["outcome"], answer["code"]) == ("rejected", code)
    assert await kernel.everything() == before


async def set_limits(kernel: Kernel, limit: Item) -> None:
    await kernel.connection.fetchval("select heliograph.set_limits($1, $2::jsonb)", kernel.project, limit)


@pytest.mark.proves("S11")
async def test_calls_up_to_the_limit_are_taken_and_known_ones_count_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await set_limits(kernel, {"waits_max": 2})
    assert (await suspend(kernel, claimed, tool("c1"), tool("c2"), join="each"))["outcome"] == "suspended"
    await report(kernel, "turn_a", "c1")
    resumed = await kernel.claim_one()
    assert (await suspend(kernel, resumed, tool("c1"), tool("c2"), tool("c3")))["code"] == "too_many_waits"
    assert (await suspend(kernel, resumed, tool("c1"), tool("c2")))["outcome"] == "suspended"


@pytest.mark.proves("K12", "L0-87")
async def test_stopping_turn_ends_instead_of_being_suspended(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert (await kernel.stop("turn_a", "graceful", grace_seconds=60))["outcome"] == "stopping"
    assert (await suspend(kernel, claimed, command("c1")))["outcome"] == "stopped"
    assert (await kernel.turn("turn_a"))["outcome"] == "canceled"
    assert await kernel.rows("turn_waiting_tools") == []


WRONG: list[tuple[str, Any]] = [
    ("call id", {"call_id": None}), ("call id", {"call_id": ""}), ("call id", {"call_id": "i" * 201}),
    ("call id", {"call_id": "ü" * 101}), ("tool", {"tool": None}), ("tool", {"tool": "t" * 201}), ("step id", {"step_id": "s" * 201}),
    ("timeout_seconds", {"timeout_seconds": -1}), ("timeout_seconds", {"timeout_seconds": "NaN"}),
    ("timeout_seconds", {"timeout_seconds": "inf"}), ("timeout_seconds", {"timeout_seconds": 1e15}),
    ("effect", {"effect": "twice"}), ("kind", {"kind": None}), ("kind", {"kind": "inline"}), ("child", {"kind": "child"}),
    ("child", {"child": {"agent": "critic"}}), ("timer", {"kind": "timer", "timeout_seconds": None}),
    ("after_execution", {"after_execution": "explode"}), ("token", {"token": ""}), ("token", {"token": "t" * 1001}),
    ("command", {"command": "go"}), ("command", {"command": {"body": [1]}}), ("command", {"command": {"subject": "s" * 201}}),
]  # fmt: skip


@pytest.mark.parametrize(("field", "wrong"), WRONG, ids=lambda value: str(value)[:40])
async def test_malformed_call_is_rejected_by_name_and_writes_nothing(kernel: Kernel, field: str, wrong: Item) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=field):
        await suspend(kernel, claimed, tool("c1") | wrong)
    assert await kernel.everything() == before


@pytest.mark.parametrize(
    ("what", "item"),
    [
        ("join", {"join": "some"}),
        ("same id", {"calls": [tool("c1"), tool("c1")]}),
        ("activation", {"calls": [child("c1", "critic", "turn_c", 0)]}),
        ("cause", {"signals": activated("critic"), "calls": [child("c1", "critic", "turn_c", 0, cause=1)]}),
        ("agent of a child", {"signals": activated("critic"), "calls": [child("c1", "critic/other", "turn_c", 0)]}),
        ("instance", {"signals": activated("critic"), "calls": [child("c1", "critic", "turn_c", 0, instance="a/b")]}),
        ("turn id", {"signals": activated("critic"), "calls": [child("c1", "critic", "t" * 201, 0)]}),
    ],
)
async def test_malformed_item_is_rejected_by_name(kernel: Kernel, what: str, item: Item) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=what):
        await kernel.call("suspend", [turn_item(claimed, calls=[]) | item])
    assert await kernel.everything() == before


@pytest.mark.proves("L0-18", "L0-16", "L0-17")
async def test_open_calls_of_a_suspended_turn_are_visible(kernel: Kernel) -> None:
    await suspended(kernel, timer("c1", 5), tool("c2"))
    row = await kernel.row("turn_overview", "turn_id", "turn_a")
    assert (row["activity"], row["current_tool"], row["waiting_tool_count"]) == ("awaiting_tool_result", "search", 2)
