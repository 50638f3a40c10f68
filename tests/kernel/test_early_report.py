"""Reports that come before their call is open (H1): they are kept, and the suspension that opens the call applies them."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Item, Kernel, draft
from tests.kernel.waits import (
    TOKEN,
    answers,
    command,
    defer,
    failure,
    inbox,
    report,
    reported,
    status,
    suspend,
    suspended,
    tool,
    wait,
)


@pytest.mark.proves("K3", "K16", "K4", "L0-60")
async def test_report_before_the_suspension_is_not_lost(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await reported(kernel, "turn_a", "c1", {"answer": 42}, token=TOKEN, actor="the tool") == "early"
    assert (await kernel.names("run_a"))[2:] == []
    answer = await suspend(kernel, claimed, command("c1"), signals=[draft("tool:call", claimed["activation_id"])])
    assert (answer["outcome"], await status(kernel)) == ("resolved", "running")
    (waited,) = answer["waits"]
    assert (waited["status"], waited["content"]["output"], waited["resolved_position"]) == (
        "success",
        {"answer": 42},
        1,
    )
    assert (await kernel.names("run_a"))[2:] == ["tool:call", "tool:result"]
    message = (await kernel.rows("agent_inbox", "inbox_id, *"))[-1]
    assert (message["status"], message["applied"], message["payload"], message["actor"]) == (
        "processing", True, None, "the tool",
    )  # fmt: skip
    assert await kernel.call("read_outbox", 10) == []  # a call with a result has no command
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"


@pytest.mark.proves("K15", "K16")
async def test_turn_with_one_early_report_suspends_on_the_other_call(kernel: Kernel) -> None:
    claimed = await kernel.running()
    (early,) = await kernel.call("report", [failure("turn_a", "c1")])
    assert early["outcome"] == "early"
    assert (await suspend(kernel, claimed, tool("c1"), tool("c2")))["outcome"] == "suspended"
    assert (await kernel.head("run_a/writer"))["waiting_tool_count"] == 1
    assert (await report(kernel, "turn_a", "c2"))["resumed"]
    resumed = await kernel.claim_one()
    assert answers(resumed) == {"c1": "failed", "c2": "success"}
    assert [each["correlation_id"] for each in resumed["inbox"]] == ["c1", "c2"]


@pytest.mark.proves("K15", "K16", "L0-60")
@pytest.mark.parametrize("is_recovered", [False, True], ids=["claimed", "recovered"])
async def test_stream_receives_a_report_that_arrived_before_the_claim(kernel: Kernel, is_recovered: bool) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    if is_recovered:
        await kernel.claim_one()
    assert await reported(kernel, "turn_a", "c1", 1, token=TOKEN) == "early"
    if is_recovered:
        kernel.wait(31)
        await kernel.call("sweep_leases", 100)
    claimed = await kernel.claim_one()
    assert [each["message_type"] for each in claimed["inbox"]] == ["turn"]
    answer = await suspend(kernel, claimed, command("c1"), command("c2"), join="each")
    assert answer["outcome"] == "resolved"
    assert [each["call_id"] for each in answer["waits"] if each["state"] == "resolved"] == ["c1"]


@pytest.mark.proves("K5", "L0-111")
async def test_report_for_a_turn_between_two_owners_is_stored_for_the_next(kernel: Kernel) -> None:
    await kernel.running()
    kernel.wait(31)
    await kernel.sweep("leases")
    assert await status(kernel) == "dispatched"
    assert await reported(kernel, "turn_a", "c1") == "early"
    owner = await kernel.claim_one()
    assert answers(await suspend(kernel, owner, tool("c1"))) == {"c1": "success"}


@pytest.mark.proves("L0-64")
async def test_early_report_outlives_a_deferral(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await report(kernel, "turn_a", "c1")
    await defer(kernel, claimed, 5)
    kernel.wait(5)
    owner = await kernel.claim_one()
    assert (await suspend(kernel, owner, tool("c1")))["outcome"] == "resolved"


async def test_suspension_on_other_calls_keeps_an_early_report_for_a_later_one(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await report(kernel, "turn_a", "c2")
    assert (await suspend(kernel, claimed, tool("c1")))["outcome"] == "suspended"
    assert await status(kernel) == "suspended"
    await report(kernel, "turn_a", "c1")
    assert (await suspend(kernel, await kernel.claim_one(), tool("c2")))["outcome"] == "resolved"


@pytest.mark.proves("S14")
async def test_forged_early_report_is_not_applied_and_does_not_displace_the_true_one(kernel: Kernel) -> None:
    claimed = await kernel.running()
    for token in (None, "forged"):
        assert await reported(kernel, "turn_a", "c1", "a lie", token=token) == "early"
    assert await reported(kernel, "turn_a", "c1", "the truth", token=TOKEN) == "early"
    (waited,) = (await suspend(kernel, claimed, command("c1")))["waits"]
    assert waited["content"]["output"] == "the truth"
    assert [each for each in await inbox(kernel, "turn_a") if each[1] != "processing"] == [("tool_result", "dead")] * 2
    assert all(row["payload"] is None for row in await kernel.rows("agent_inbox"))


@pytest.mark.proves("S14")
async def test_call_with_only_forged_early_reports_remains_open(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await report(kernel, "turn_a", "c1", "a lie", token="forged")
    assert (await suspend(kernel, claimed, command("c1")))["outcome"] == "suspended"
    assert (await wait(kernel, "turn_a", "c1"))["state"] == "open"
    assert await reported(kernel, "turn_a", "c1", token=TOKEN) == "applied"


@pytest.mark.proves("L0-112")
async def test_repeated_early_report_is_stored_once(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert [await reported(kernel, "turn_a", "c1", n, token=TOKEN) for n in range(3)] == [
        "early",
        "duplicate",
        "duplicate",
    ]
    (waited,) = (await suspend(kernel, claimed, command("c1")))["waits"]
    assert waited["content"]["output"] == 0


@pytest.mark.proves("S11")
async def test_early_reports_beyond_the_limit_are_rejected_with_a_retry(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.connection.execute("select heliograph.set_limits($1, '{\"waits_max\": 2}')", kernel.project)
    assert [await reported(kernel, "turn_a", f"c{n}") for n in (1, 2)] == ["early", "early"]
    before = await kernel.everything()
    answer = await report(kernel, "turn_a", "c3")
    assert (answer["outcome"], answer["code"]) == ("rejected", "too_many_early")
    assert await reported(kernel, "turn_a", "c2") == "duplicate"
    assert await kernel.everything() == before


@pytest.mark.parametrize("call_id", ["", "i" * 201, None], ids=["empty", "long", "null"])
async def test_early_report_with_an_impossible_call_id_is_not_stored(kernel: Kernel, call_id: str | None) -> None:
    await kernel.running()
    (answer,) = await kernel.call(
        "report", [{"turn_id": "turn_a", "call_id": call_id, "status": "success", "result": 1}]
    )
    assert (answer["outcome"], len(await inbox(kernel, "turn_a"))) == ("unknown_call", 1)


@pytest.mark.parametrize("ends", ["finish", "stop"])
async def test_early_report_ends_with_its_turn(kernel: Kernel, ends: str) -> None:
    claimed: Item = await kernel.running()
    await report(kernel, "turn_a", "c1")
    if ends == "finish":
        assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
    else:
        await kernel.stop("turn_a")
    assert await inbox(kernel, "turn_a") == [("turn", "consumed"), ("tool_result", "consumed")] + [
        ("stop", "consumed")
    ] * (ends == "stop")


async def test_early_report_does_not_resume_a_turn_suspended_on_another_call(kernel: Kernel) -> None:
    await suspended(kernel, tool("c1"))
    assert await reported(kernel, "turn_a", "c2") == "unknown_call"
    assert await status(kernel) == "suspended"
