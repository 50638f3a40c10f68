"""Calls that fail fast together: the first that does not succeed has the others canceled, in one commit."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Item, Kernel
from tests.kernel.waits import activated, child, failure, report, result, status, suspend, suspended, tool, wait


def fast(call: Item, step: str = "s1") -> Item:
    return {**call, "step_id": step, "fails_fast": True}


async def states(kernel: Kernel, turn_id: str = "turn_a") -> dict[str, str]:
    rows = await kernel.rows("turn_waiting_tools", "*", "agent_turn_id = $2", turn_id)
    return {row["tool_call_id"]: row["status"] or row["state"] for row in rows}


async def stops(kernel: Kernel) -> list[str]:
    rows = await kernel.rows("outbox", "key", "kind = 'stop'")
    return sorted(row["key"] for row in rows)


async def delegated(kernel: Kernel, *agents: str) -> Item:
    calls = [fast(child(f"c{n}", agent, f"turn_{n}", n - 1, instance=f"i{n}")) for n, agent in enumerate(agents, 1)]
    return await suspended(kernel, *calls, signals=activated(*agents))


@pytest.mark.proves("L0-38", "L0-63", "G-64")
async def test_first_failure_cancels_the_other_children_and_the_parent_receives_which_it_was(kernel: Kernel) -> None:
    await suspended(kernel, fast(tool("c1")), fast(tool("c2")), fast(tool("c3")), tool("c4", step_id="s1"))
    assert (await report(kernel, "turn_a", "c3"))["resumed"] is False
    (answer,) = await kernel.call("report", [failure("turn_a", "c2")])
    assert (answer["outcome"], answer["resumed"]) == ("applied", False)  # c4 is not of those that fail together
    assert await states(kernel) == {"c1": "canceled", "c2": "failed", "c3": "success", "c4": "open"}
    assert (await report(kernel, "turn_a", "c4"))["resumed"] is True
    waits = {each["call_id"]: each for each in (await kernel.claim_one())["waits"]}
    assert waits["c1"]["content"]["error"] == {
        "code": "CANCELED", "recoverable": False, "first_failed_call": "c2", "message": "call c2 (search) failed first",
    }  # fmt: skip
    assert (await report(kernel, "turn_a", "c1"))["outcome"] == "duplicate"
    assert await kernel.checks() == []


@pytest.mark.proves("L0-38", "K15")
async def test_abandoned_children_are_stopped_and_the_parent_resumes_once(kernel: Kernel) -> None:
    await delegated(kernel, "critic", "critic")
    claimed = {each["turn_id"]: each for each in await kernel.claim()}
    version = (await kernel.run("run_a"))["version"]
    assert (await kernel.finish(claimed["turn_2"], version=version, outcome="failed"))["outcome"] == "ok"
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    assert await states(kernel) == {"c1": "canceled", "c2": "failed"}
    assert await stops(kernel) == ["stop:turn_1"]
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_1"]
    assert (await kernel.turn("turn_1"))["outcome"] == "canceled"
    assert (await kernel.sweep("reports"))["resumed"] == []
    assert await status(kernel) == "dispatched"
    assert await kernel.checks() == []


@pytest.mark.proves("L0-38", "G-73")
async def test_success_of_the_same_batch_remains_a_success(kernel: Kernel) -> None:
    await suspended(kernel, fast(tool("c1")), fast(tool("c2")), fast(tool("c3")))
    await kernel.call("report", [failure("turn_a", "c1"), result("turn_a", "c2")])
    assert await states(kernel) == {"c1": "failed", "c2": "success", "c3": "canceled"}


async def test_calls_of_other_steps_and_turns_continue(kernel: Kernel) -> None:
    await suspended(kernel, fast(tool("c1")), fast(tool("c2"), step="s2"))
    await suspended(kernel, fast(tool("c1")), run_id="run_b", turn_id="turn_b")
    await kernel.call("report", [failure("turn_a", "c1")])
    assert await states(kernel) == {"c1": "failed", "c2": "open"}
    assert await states(kernel, "turn_b") == {"c1": "open"}


@pytest.mark.proves("CTL-29")
async def test_missed_deadline_fails_fast(kernel: Kernel) -> None:
    await suspended(kernel, fast(tool("c1", 1.0)), fast(tool("c2", 60.0)))
    kernel.wait(2)
    assert (await kernel.sweep("waits"))["resumed"] == ["turn_a"]
    assert await states(kernel) == {"c1": "timeout", "c2": "canceled"}


@pytest.mark.proves("K16")
async def test_early_failure_cancels_all_calls_of_its_step(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.call("report", [failure("turn_a", "c1")])
    answer = await suspend(
        kernel, claimed, fast(tool("c1")), fast(child("c2", "critic", "turn_2")), signals=activated("critic")
    )
    assert answer["outcome"] == "resolved"
    assert {each["call_id"]: each["status"] for each in answer["waits"]} == {"c1": "failed", "c2": "canceled"}
    assert await stops(kernel) == ["stop:turn_2"]
    assert (await wait(kernel, "turn_a", "c2"))["resolved_position"] == 2


@pytest.mark.proves("CTL-25", "CTL-26", "G-22")
@pytest.mark.parametrize(
    ("outcome", "delegation_status"),
    [
        ("success", "completed"),
        ("partial", "completed"),
        ("failed", "failed"),
        ("canceled", "failed"),
        ("timeout", "failed"),
    ],
)
async def test_outcome_of_a_delegation_is_emitted_and_listed(
    kernel: Kernel, outcome: str, delegation_status: str
) -> None:
    await suspended(kernel, child("c1", "critic", "turn_1"), signals=activated("critic"))

    async def looked_up() -> tuple[str, str | None]:
        (row,) = await kernel.rows("delegation_overview", "*", "turn_id = 'turn_a'")
        return row["status"], row["outcome"]

    assert await looked_up() == ("accepted", None)
    kernel.wait(1)
    claimed = await kernel.claim_one()
    assert await looked_up() == ("in_progress", None)
    version = (await kernel.run("run_a"))["version"]
    kernel.wait(1.25)
    await kernel.finish(claimed, version=version, outcome=outcome)
    await kernel.sweep("reports")
    assert await looked_up() == (delegation_status, outcome)
    (response,) = [
        each
        for each in await kernel.rows("signal_log", "seq, name, payload", "run_id = 'run_a'")
        if each["name"] == "delegation_response"
    ]
    payload = response["payload"]
    assert (payload["status"], payload["outcome"], payload["target_agent"], payload["task_id"], payload["id"]) == (
        delegation_status, outcome, "critic", "turn_1", "c1",
    )  # fmt: skip
    assert payload["duration_ms"] == 2250
    assert ("result" in payload) == (delegation_status == "completed") != ("error" in payload)
