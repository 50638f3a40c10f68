"""report: results of calls from outside. The first report resolves its call, once (K4)."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.kernel.kit import START, TARGET, Item, Kernel, new_project
from tests.kernel.waits import (
    TOKEN,
    activated,
    answers,
    begin,
    child,
    command,
    edges,
    failure,
    inbox,
    report,
    reported,
    result,
    status,
    suspend,
    suspended,
    timer,
    tool,
    wait,
)

DUPLICATES_KEPT = 8


@pytest.mark.proves("K4", "L0-37", "L0-60", "L0-61", "L0-63", "L0-106", "K18", "L0-04", "L0-05", "S9")
async def test_report_resolves_the_call_and_resumes_the_turn_in_one_commit(kernel: Kernel) -> None:
    claimed = await suspended(kernel, command("c1"))
    kernel.wait(1)
    answer = await report(kernel, "turn_a", "c1", {"answer": 42}, token=TOKEN, actor="the tool")
    assert answer == {
        "turn_id": "turn_a", "call_id": "c1", "outcome": "applied", "resumed": True, "targets": [TARGET],
        "woken": ["run_a/writer"],
    }  # fmt: skip
    row = await wait(kernel, "turn_a", "c1")
    assert (row["state"], row["status"], row["resolved_position"], row["resolved_at"]) == (
        "resolved", "success", 1, kernel.now,
    )  # fmt: skip
    card = await kernel.row("cards", "card_id", "card:turn_a:call:c1")
    content = {"call_id": "c1", "tool": "search", "status": "success", "output": {"answer": 42}, "trust": "untrusted"}
    assert (card["kind"], card["box_id"], card["content"]) == ("tool.result", "box_turn_a", content)
    message = (await kernel.rows("agent_inbox", "inbox_id, *"))[-1]
    assert (message["message_type"], message["status"], message["correlation_id"], message["applied"]) == (
        "tool_result", "pending", "c1", True,
    )  # fmt: skip
    assert (message["report_status"], message["actor"], message["turn_epoch"]) == (
        "success",
        "the tool",
        claimed["epoch"],
    )
    shown = (await kernel.rows("inbox_overview", "inbox_id, agent_id, payload_card_id", "turn_id = 'turn_a'"))[-1]
    assert (shown["agent_id"], shown["payload_card_id"]) == ("run_a/writer", "card:turn_a:call:c1")
    assert (await edges(kernel, "turn_a"))[-1] == ("report", "response", "c1")
    signal = (await kernel.rows("signal_log", "seq, name, payload, agent, parent, id"))[-1]
    assert (signal["name"], signal["agent"], signal["parent"]) == ("tool:result", "writer", claimed["activation_id"])
    assert signal["payload"] == {"id": "c1", "call_id": "c1", "name": "search", "status": "success", "output": {"answer": 42},
                                 "card_id": "card:turn_a:call:c1"}  # fmt: skip
    edge = (await kernel.rows("edge_overview", "edge_id, cause_id", "turn_id = 'turn_a'"))[-1]
    assert edge["cause_id"] == signal["id"]
    assert await kernel.rows("outbox", "key", "kind = 'cmd'") == []
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["waiting_tool_count"], head["resume_deadline"], head["resumes_on"]) == (
        "dispatched", 0, None, None,
    )  # fmt: skip


@pytest.mark.proves("L0-62", "L0-63", "K15", "G-63", "L0-47", "L0-112")
@pytest.mark.parametrize("order", list(itertools.permutations(["c1", "c2", "c3"])), ids="".join)
async def test_results_in_any_order_resume_the_turn_with_the_last(kernel: Kernel, order: tuple[str, ...]) -> None:
    timeouts = {"c1": 10, "c2": 20, "c3": 30}
    await suspended(kernel, *(tool(call, seconds) for call, seconds in timeouts.items()))
    for left, call in zip((2, 1), order[:-1], strict=True):
        del timeouts[call]
        assert not (await report(kernel, "turn_a", call))["resumed"]
        head = await kernel.head("run_a/writer")
        deadline = START + timedelta(seconds=min(timeouts.values()))
        assert (head["status"], head["waiting_tool_count"], head["resume_deadline"]) == ("suspended", left, deadline)
    assert (await report(kernel, "turn_a", order[-1]))["resumed"]
    claimed = await kernel.claim_one()
    assert [each["call_id"] for each in claimed["waits"]] == ["c1", "c2", "c3"]  # as they were opened
    assert [each["call_id"] for each in sorted(claimed["waits"], key=lambda w: w["resolved_position"])] == list(order)
    assert [each["correlation_id"] for each in claimed["inbox"]] == list(order)


async def test_failure_is_a_result(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    (answer,) = await kernel.call("report", [failure("turn_a", "c1")])
    assert answer["outcome"] == "applied"
    (waited,) = (await kernel.claim_one())["waits"]
    assert (waited["status"], waited["content"]["error"]) == ("failed", {"code": "TOOL_ERROR"})
    assert "output" not in waited["content"]


@pytest.mark.proves("K4", "L0-112", "K21")
async def test_first_of_several_results_applies_and_the_others_are_counted(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"), tool("c2"))
    assert await reported(kernel, "turn_a", "c1", "first") == "applied"
    card = await kernel.rows("cards")
    for n in range(DUPLICATES_KEPT + 3):
        assert await reported(kernel, "turn_a", "c1", f"another {n}") == "duplicate"
    assert (await wait(kernel, "turn_a", "c1"))["duplicates"] == DUPLICATES_KEPT + 3
    assert (await inbox(kernel, "turn_a")).count(("tool_result", "duplicate")) == DUPLICATES_KEPT
    assert (await kernel.rows("cards"), await status(kernel)) == (card, "suspended")
    assert (await kernel.names("run_a")).count("tool:result") == 1


@pytest.mark.proves("G-73", "K4", "K11")
async def test_result_after_the_timeout_is_late_and_not_applied(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1", 5))
    kernel.wait(5)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    assert await reported(kernel, "turn_a", "c1") == "late"
    assert answers(await kernel.claim_one()) == {"c1": "timeout"}
    assert (await inbox(kernel, "turn_a"))[-1] == ("tool_result", "duplicate")


@pytest.mark.proves("L0-112", "K4")
async def test_result_after_the_end_is_acknowledged_and_changes_nothing(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    await kernel.stop("turn_a")
    before = await kernel.everything()
    assert await reported(kernel, "turn_a", "c1") == "turn_done"
    assert await reported(kernel, "turn_a", "c9") == "turn_done"
    assert await kernel.everything() == before


@pytest.mark.proves("L0-112")
async def test_result_for_a_pruned_turn_is_acknowledged(kernel: Kernel) -> None:
    await kernel.harm("insert into pruned (project_id, id, pruned_at) values ($1, 'turn:turn_old', now())")
    assert await reported(kernel, "turn_old", "c1") == "turn_done"


@pytest.mark.proves("S1", "L0-42")
async def test_unknown_turns_and_calls_and_those_of_other_projects_are_unknown_and_store_nothing(
    kernel: Kernel,
) -> None:
    await suspended(kernel, tool("c1"))
    await kernel.enqueue("run_a", "writer", "turn_queued")
    before = await kernel.everything()
    assert await reported(kernel, "turn_b", "c1") == "unknown_turn"
    assert await reported(kernel, "turn_a", "c2") == "unknown_call"
    assert await reported(kernel, "turn_queued", "c1") == "unknown_call"
    (foreign,) = await kernel.call("report", [result("turn_a", "c1")], project=new_project())
    assert foreign["outcome"] == "unknown_turn"
    assert await kernel.everything() == before


@pytest.mark.proves("S14")
@pytest.mark.parametrize("given", [None, "", "another", TOKEN + " ", TOKEN[:-1]], ids=repr)
async def test_wrong_token_is_rejected_and_stores_nothing(kernel: Kernel, given: str | None) -> None:
    await suspended(kernel, command("c1"), command("c2", None))
    before = await kernel.everything()
    assert await reported(kernel, "turn_a", "c1", token=given) == "bad_token"
    assert await kernel.everything() == before
    assert await reported(kernel, "turn_a", "c1", token=TOKEN) == "applied"
    assert (
        await reported(kernel, "turn_a", "c1", token=given) == "bad_token"
    )  # nor does it learn that the call is resolved


@pytest.mark.proves("S14", "K13")
async def test_report_for_a_child_a_timer_or_an_inline_call_is_rejected(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await begin(kernel, claimed, "i1")
    calls = [timer("c1", 5), child("c2", "critic", "turn_c")]
    assert (await suspend(kernel, claimed, *calls, signals=activated("critic")))["outcome"] == "suspended"
    before = await kernel.everything()
    assert [await reported(kernel, "turn_a", call) for call in ("i1", "c1", "c2")] == ["bad_token"] * 3
    assert await kernel.everything() == before


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"status": "done"}, "invalid_result"), ({"status": None}, "invalid_result"), ({"status": "timeout"}, "invalid_result"),
        ({"status": "failed"}, "invalid_result"), ({"status": "failed", "error": None}, "invalid_result"),
        ({"actor": "a" * 201}, "invalid_result"), ({"result": "x" * 99}, "payload_too_large"),
        ({"status": "failed", "error": "x" * 99}, "payload_too_large"), ({"result": "\x01" * 17}, "payload_too_large"),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
@pytest.mark.parametrize("call", ["c1", "early"])
async def test_report_without_a_result_is_invalid_and_stores_nothing(
    kernel: Kernel, wrong: Item, code: str, call: str
) -> None:
    await suspended(kernel, tool("c1"), join="each")
    if call == "early":
        await report(kernel, "turn_a", "c1")
    await kernel.connection.execute("select heliograph.set_limits($1, '{\"result_bytes_max\": 100}')", kernel.project)
    before = await kernel.everything()
    answer = await report(kernel, "turn_a", call, **wrong)
    assert (answer["outcome"], answer["code"], bool(answer["message"])) == ("invalid", code, True)
    assert await kernel.everything() == before


@pytest.mark.proves("S11")
async def test_number_counts_with_its_written_length(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    few_bytes_many_digits = "[" + ", ".join(["1e307"] * 4000) + "]"
    answer = await kernel.connection.fetchrow(
        "select * from heliograph.report($1, '{turn_a}', '{c1}', '{null}', '{success}', array[$2::text::jsonb], '{null}', '{null}',"
        " '{null}', $3)",
        kernel.project, few_bytes_many_digits, kernel.now,
    )  # fmt: skip
    assert answer is not None
    assert (answer["outcome"], answer["code"]) == ("invalid", "payload_too_large")


@pytest.mark.proves("S11")
async def test_result_of_exactly_the_limit_is_accepted(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    await kernel.connection.execute("select heliograph.set_limits($1, '{\"result_bytes_max\": 100}')", kernel.project)
    assert await reported(kernel, "turn_a", "c1", "x" * 98) == "applied"


@pytest.mark.proves("K5", "L0-111")
async def test_result_counts_after_a_change_of_owner(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"), tool("c2"), tool("c3"), join="each")
    await report(kernel, "turn_a", "c1")
    lost = await kernel.claim_one(lease=5)
    kernel.wait(5)
    assert (await kernel.sweep("leases"))["recovered"] == ["turn_a"]
    assert await reported(kernel, "turn_a", "c2") == "applied"  # while it is dispatched
    owner = await kernel.claim_one()
    assert owner["epoch"] > lost["epoch"]
    assert await reported(kernel, "turn_a", "c3") == "applied"  # and while it runs
    answer = await suspend(kernel, owner)
    assert (answer["outcome"], answers(answer)) == ("resolved", dict.fromkeys(["c1", "c2", "c3"], "success"))


@pytest.mark.proves("L0-56", "L0-57", "S9")
@pytest.mark.parametrize(
    ("registered", "may_override", "requested", "then"),
    [
        ("terminate", False, None, "terminate"), ("suspend", False, "terminate", "suspend"),
        ("terminate", False, "suspend", "terminate"), ("suspend", True, "terminate", "terminate"),
        ("terminate", True, "suspend", "suspend"), ("suspend", True, "explode", "suspend"), ("suspend", True, None, "suspend"),
    ],
)  # fmt: skip
async def test_tool_decides_about_the_next_step_only_with_permission(
    kernel: Kernel, registered: str, may_override: bool, requested: str | None, then: str
) -> None:
    await suspended(kernel, tool("c1", after_execution=registered, may_override=may_override))
    value = {"text": "hello", "__cg_control": {"after_execution": requested}} if requested else {"text": "hello"}
    assert await reported(kernel, "turn_a", "c1", value) == "applied"
    (waited,) = (await kernel.claim_one())["waits"]
    assert (waited["after_execution"], waited["content"]["output"]) == (then, value)


@pytest.mark.proves("K25", "SIG-60")
async def test_result_with_a_subscriber_is_a_pending_reaction(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    await kernel.harm("update runs set wakes_on_results = true where project_id = $1")
    await suspend(kernel, await kernel.claim_one(), tool("c1"), tool("c2"))
    before = (await kernel.run("run_a"))["version"]
    await report(kernel, "turn_a", "c1")
    await report(kernel, "turn_a", "c2")
    run = await kernel.run("run_a")
    assert (run["pending_reactions"], run["version"]) == (2, before + 2)
    (pending,) = await kernel.pending()
    assert [each["payload"]["call_id"] for each in pending["signals"]] == ["c1", "c2"]
    assert (await kernel.react("run_a", run["version"]))["outcome"] == "ok"


async def test_result_without_a_subscriber_keeps_the_version(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    before = (await kernel.run("run_a"))["version"]
    await report(kernel, "turn_a", "c1")
    assert (await kernel.run("run_a"))["version"] == before


@pytest.mark.proves("S11", "L0-30")
async def test_large_result_is_stored_out_of_line_and_the_log_points_to_it(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    large = {"text": "x" * 400_000}
    assert await reported(kernel, "turn_a", "c1", large) == "applied"
    card = await kernel.row("cards", "card_id", "card:turn_a:call:c1")
    assert set(card["content"]) == {"$blob", "bytes"}
    assert (await kernel.rows("signal_log", "seq, payload"))[-1]["payload"] == {
        "id": "c1", "call_id": "c1", "name": "search", "status": "success", "card_id": "card:turn_a:call:c1",
    }  # fmt: skip
    (waited,) = (await kernel.claim_one())["waits"]
    assert waited["content"]["output"] == large


async def test_batch_of_reports_is_answered_in_its_order(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"), tool("c2"), command("c3"))
    await suspended(kernel, tool("c1"), run_id="run_b", turn_id="turn_b")
    batch: list[Any] = [
        result("turn_a", "c1", 1), result("turn_b", "c1", 2), result("turn_x", "c1"), result("turn_a", "c1", 3),
        result("turn_a", "c3"), failure("turn_a", "c2"), result("turn_a", "c3", token=TOKEN), result("turn_a", "c4"),
        result("turn_a", "c2", status="odd"), {},
    ]  # fmt: skip
    outcomes = [(each["outcome"], each["resumed"]) for each in await kernel.call("report", batch)]
    assert outcomes == [
        ("applied", True), ("applied", True), ("unknown_turn", False), ("duplicate", False), ("bad_token", False),
        ("applied", True), ("applied", True), ("unknown_call", False), ("invalid", False), ("unknown_turn", False),
    ]  # fmt: skip
    first, second = await kernel.claim()
    assert [w["resolved_position"] for w in first["waits"]] == [1, 2, 3]
    assert [w["content"].get("output") for w in first["waits"]] == [1, None, "found"]
    assert answers(second) == {"c1": "success"}
    rows = await kernel.rows("signals", "seq, count", "run_id = 'run_a' and seq > 2")
    assert [tuple(row) for row in rows] == [(3, 3)]  # one row of the log for one turn and commit


async def test_one_call_reports_results_to_two_turns_of_one_run(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_c": "critic"})
    for claimed in await kernel.claim():
        await suspend(kernel, claimed, tool("c1"), tool("c2"))
    batch = [result(turn, call) for call in ("c1", "c2") for turn in ("turn_c", "turn_a")]
    assert all(each["resumed"] for each in await kernel.call("report", batch))
    assert (await kernel.names("run_a")).count("tool:result") == 4
    assert {each["turn_id"] for each in await kernel.claim()} == {"turn_a", "turn_c"}


@pytest.mark.proves("K4")
async def test_one_select_reports_a_result_from_any_language(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"), command("c2"))
    statement = "select heliograph.report_result($1, 'turn_a', $2, $3, $4, $5)"

    async def report_in_sql(call: str, token: str | None, how: str, value: Any) -> str:
        return str(await kernel.connection.fetchval(statement, kernel.project, call, token, how, value))

    assert await report_in_sql("c1", "wrong", "success", 1) == "bad_token"
    assert await report_in_sql("c1", TOKEN, "success", {"answer": 42}) == "applied"
    assert await report_in_sql("c1", TOKEN, "success", {"answer": 42}) == "duplicate"
    assert await report_in_sql("c2", TOKEN, "failed", {"code": "NO"}) == "applied"
    contents = {each["call_id"]: each["content"] for each in (await kernel.claim_one())["waits"]}
    assert (contents["c1"]["output"], contents["c2"]["error"]) == ({"answer": 42}, {"code": "NO"})
    kernel.is_corrupted = True  # the other calls of this test are made in another year


@pytest.mark.proves("S18", "S14")
@pytest.mark.parametrize("when", ["open", "early"])
async def test_report_for_a_human_records_the_login_beside_the_claimed_name(kernel: Kernel, when: str) -> None:
    human = {**tool("c1", None), "kind": "human", "tool": "pay"}
    kernel.now = datetime.now(UTC)  # a service names no other
    claimed = await (suspended(kernel, human) if when == "open" else kernel.running())
    decision = {"decision": "grant", "by": "the chief", "session": "the owner"}
    await kernel.connection.execute("set session authorization heliograph_api")
    try:
        outcome = await reported(kernel, "turn_a", "c1", decision, actor="the chief")
    finally:
        await kernel.connection.execute("reset session authorization")
    if outcome == "early":
        await suspend(kernel, claimed, human)
    (content,) = [row["content"] for row in await kernel.rows("cards", "content", "kind = 'tool.result'")]
    assert (content["session"], content["output"]) == ("heliograph_api", decision)


@pytest.mark.proves("S14")
async def test_token_is_stored_hashed_and_removed_with_the_answer_of_its_call(kernel: Kernel) -> None:
    await suspended(kernel, command("c1"))
    assert TOKEN in str((await kernel.everything())["outbox"])  # for the taker of the command, while the call is open
    rest = {name: rows for name, rows in (await kernel.everything()).items() if name != "outbox"}
    assert TOKEN not in str(rest)
    assert await reported(kernel, "turn_a", "c1", token=TOKEN) == "applied"
    assert TOKEN not in str(await kernel.everything())
