"""Children: a turn delegates, waits, and continues with the deliverables of its children (L0-38)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernel.kit import TARGET, Item, Kernel, draft, turn_item
from tests.kernel.waits import (
    activated,
    answers,
    child,
    edges,
    report,
    status,
    suspend,
    suspended,
    tool,
    wait,
)


async def delegated(kernel: Kernel, *agents: str, **fields: Any) -> Item:
    """A turn that waits for one child of each of these agents: turn_1 by call c1, and so on."""
    calls = [child(f"c{n}", agent, f"turn_{n}", n - 1, **fields) for n, agent in enumerate(agents, 1)]
    return await suspended(kernel, *calls, signals=activated(*agents))


async def ended(kernel: Kernel, turn_id: str, **fields: Any) -> None:
    (claimed,) = [each for each in await kernel.claim() if each["turn_id"] == turn_id]
    version = (await kernel.run(claimed["run_id"]))["version"]
    assert (await kernel.finish(claimed, version=version, **fields))["outcome"] == "ok"


@pytest.mark.proves("L0-38", "K3", "K27", "K24")
async def test_child_is_enqueued_in_the_commit_that_suspends_its_parent(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.run("run_a")
    await kernel.call("put_boxes", [{"box_id": "context_1", "cards": []}])
    calls = [child("c1", "critic", "turn_1", 1, context_box_id="context_1", result_fields=[{"name": "verdict"}])]
    drafts = [
        draft("delegation", claimed["activation_id"], payload={"task": "judge"}),
        *activated("critic", parent="0"),
    ]
    drafts[1]["parent"] = 0
    calls[0]["child"]["cause"] = 0
    answer = await suspend(kernel, claimed, *calls, signals=drafts)
    assert (answer["outcome"], answer["targets"]) == ("suspended", [TARGET])
    turn = await kernel.turn("turn_1")
    assert (turn["agent_id"], turn["parent_turn_id"], turn["parent_call_id"], turn["depth"]) == (
        "run_a/critic", "turn_a", "c1", 1,
    )  # fmt: skip
    assert (turn["context_box_id"], turn["result_fields"]) == ("context_1", [{"name": "verdict"}])
    row = await wait(kernel, "turn_a", "c1")
    assert (row["kind"], row["child_turn_id"], row["deadline"]) == ("child", "turn_1", None)
    assert (await edges(kernel, "turn_a"))[-1] == ("join", "request", "c1")
    (edge,) = await kernel.rows("edge_overview", "edge_id, other_turn_id", "primitive = 'join'")
    assert edge["other_turn_id"] == "turn_1"
    run = await kernel.run("run_a")
    assert (run["open_turns"], run["activations"], run["version"]) == (
        2,
        before["activations"] + 1,
        before["version"] + 1,
    )
    (critic,) = await kernel.claim()
    assert (critic["turn_id"], critic["parent_turn_id"], critic["cause"]["payload"]) == (
        "turn_1",
        "turn_a",
        {"task": "judge"},
    )
    assert critic["cause"]["name"] == "delegation"


@pytest.mark.proves("L0-38", "K4", "L0-63", "L0-06")
async def test_deliverable_of_a_child_is_the_result_of_the_call(kernel: Kernel) -> None:
    await delegated(kernel, "critic")
    await ended(kernel, "turn_1")
    assert await status(kernel) == "suspended"  # the child's commit touches the child alone
    assert await kernel.sweep("reports") == {
        "resolved": ["turn_a"], "resumed": ["turn_a"], "failed": [], "targets": [TARGET], "woken": ["run_a/writer"],
    }  # fmt: skip
    assert await kernel.sweep("reports") == {"resolved": [], "resumed": [], "failed": [], "targets": []}
    assert (await edges(kernel, "turn_a"))[-1] == ("join", "response", "c1")
    claimed = await kernel.claim_one()
    (waited,) = claimed["waits"]
    assert waited["content"] == {
        "call_id": "c1", "tool": "critic", "status": "success", "outcome": "success", "trust": "trusted",
        "output": {"text": "done"}, "child_turn_id": "turn_1", "deliverable_card_id": "card:turn_1:end",
    }  # fmt: skip
    version = (await kernel.run("run_a"))["version"]
    assert (await kernel.finish(claimed, version=version, ends="success"))["outcome"] == "ok"
    assert await kernel.checks() == []


@pytest.mark.proves("L0-38", "G-64")
@pytest.mark.parametrize(
    ("outcome", "status_of_call"),
    [
        ("success", "success"),
        ("partial", "success"),
        ("failed", "failed"),
        ("canceled", "canceled"),
        ("timeout", "timeout"),
    ],
)
async def test_parent_receives_every_outcome_of_its_child(kernel: Kernel, outcome: str, status_of_call: str) -> None:
    await delegated(kernel, "critic")
    await ended(kernel, "turn_1", outcome=outcome)
    await kernel.sweep("reports")
    (waited,) = (await kernel.claim_one())["waits"]
    assert (waited["status"], waited["content"]["outcome"]) == (status_of_call, outcome)
    if status_of_call != "success":
        assert waited["content"]["error"] == {"code": "DELEGATION_ERROR", "message": "done", "child_turn_id": "turn_1"}


@pytest.mark.proves("K12", "K19", "L0-87", "L0-38")
@pytest.mark.parametrize("ends", ["stop", "expiry", "attempts"])
async def test_parent_receives_the_result_of_a_child_that_the_kernel_ended(kernel: Kernel, ends: str) -> None:
    await delegated(kernel, "critic", ttl_seconds=30, max_attempts=1)
    if ends == "stop":
        await kernel.stop("turn_1")
    elif ends == "expiry":
        kernel.wait(30)
        await kernel.sweep("expired")
    else:
        await kernel.claim(lease=5)
        kernel.wait(5)
        await kernel.sweep("leases")
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    (waited,) = (await kernel.claim_one())["waits"]
    expected = {
        "stop": ("canceled", "CANCELED"),
        "expiry": ("timeout", "TIMEOUT"),
        "attempts": ("failed", "RESOURCE_EXHAUSTED"),
    }
    assert (waited["status"], waited["content"]["error"]["code"]) == expected[ends]
    assert waited["content"]["error"]["child_turn_id"] == "turn_1"


@pytest.mark.proves("K15", "L0-62")
async def test_fork_is_joined_when_the_last_child_has_ended(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer"})
    agents = ["critic", "judge", "critic"]
    calls = [child(f"c{n}", agent, f"turn_{n}", n) for n, agent in enumerate(agents)]
    assert (await suspend(kernel, await kernel.claim_one(), *calls, signals=activated(*agents)))[
        "outcome"
    ] == "suspended"
    for n in (1, 0, 2):  # the third one waits for the first one's agent
        assert await status(kernel) == "suspended"
        for claimed in await kernel.claim():
            version = (await kernel.run("run_a"))["version"]
            await kernel.finish(claimed, version=version)
        await kernel.sweep("reports")
        if n == 1:
            assert (await kernel.head("run_a/writer"))["waiting_tool_count"] == 1
            continue
        break
    claimed = await kernel.claim_one()
    assert answers(claimed) == dict.fromkeys(["c0", "c1", "c2"], "success")


async def test_first_child_of_a_streaming_join_wakes_its_parent(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic", "judge"], {"turn_a": "writer"})
    calls = [child("c1", "critic", "turn_1", 0), child("c2", "judge", "turn_2", 1), tool("c3")]
    await suspend(kernel, await kernel.claim_one(), *calls, signals=activated("critic", "judge"), join="each")
    await ended(kernel, "turn_2")
    assert (await kernel.sweep("reports"))["resumed"] == ["turn_a"]
    assert answers(await kernel.claim_one()) == {"c1": None, "c2": "success", "c3": None}
    await report(kernel, "turn_a", "c3")
    assert await status(kernel) == "running"


# ── Instances ─────────────────────────────────────────────────────────────────────────────────


async def test_instance_gets_a_head_of_its_own_and_does_not_wait_for_its_namesake(kernel: Kernel) -> None:
    claimed = await kernel.running()
    places: list[Item] = [{}, {"instance": "x"}, {"instance": "y"}]
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, **at) for n, at in enumerate(places)]
    answer = await suspend(kernel, claimed, *calls, signals=activated("critic", "critic", "critic"))
    assert answer["targets"] == [TARGET]
    assert [each["agent_id"] for each in await kernel.claim()] == ["run_a/critic", "run_a/critic/x", "run_a/critic/y"]
    assert (await kernel.row("turn_overview", "turn_id", "turn_1"))["agent"] == "critic"


async def test_turns_of_one_instance_run_one_after_another(kernel: Kernel) -> None:
    claimed = await kernel.running()
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, instance="x") for n in range(2)]
    await suspend(kernel, claimed, *calls, signals=activated("critic", "critic"))
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_0"]
    assert (await kernel.turn("turn_1"))["state"] == "queued"


# ── Rejected ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("G-74", "S12", "S11")
@pytest.mark.parametrize(
    ("code", "limits", "call"),
    [
        ("recursion_depth_exceeded", {"depth_max": 0}, child("c1", "critic", "turn_1")),
        ("fan_out", {"fan_out_max": 1}, child("c1", "critic", "turn_1")),
        ("unknown_agent", {}, child("c1", "stranger", "turn_1")),
        ("delegation_cycle", {}, child("c1", "writer", "turn_1")),
        ("id_conflict", {}, child("c1", "critic", "turn_a")),
        ("queue_full", {"queue_max": 1}, child("c1", "critic", "turn_1")),
        ("run_stopping", {}, child("c1", "critic", "turn_1")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_impossible_delegation_is_rejected_and_writes_nothing(
    kernel: Kernel, code: str, limits: Item, call: Item
) -> None:
    claimed = await kernel.running()
    await kernel.connection.execute("select heliograph.set_limits($1, $2::jsonb)", kernel.project, limits)
    calls = [tool("c0"), call]
    if code == "fan_out":
        calls.append(child("c2", "critic", "turn_2"))
    elif code == "queue_full":
        for n in range(2):
            await kernel.enqueue("run_a", "critic", f"turn_busy_{n}")
    elif code == "run_stopping":
        await kernel.stop("run_a", "graceful")
    before = await kernel.everything()
    answer = await suspend(kernel, claimed, *calls, signals=activated("critic"))
    assert (answer["outcome"], answer["code"]) == ("rejected", code)
    assert await kernel.everything() == before
    assert await status(kernel) == "running"


@pytest.mark.proves("G-74")
async def test_each_delegation_is_one_deeper_and_an_ancestor_is_not_waited_for(kernel: Kernel) -> None:
    await kernel.connection.execute("select heliograph.set_limits($1, '{\"depth_max\": 2}')", kernel.project)
    await kernel.start("run_a", ["a", "b", "c"], {"turn_0": "a"})
    for depth, agent in enumerate("bc", 1):
        claimed = await kernel.claim_one()
        answer = await suspend(kernel, claimed, child("c1", agent, f"turn_{depth}"), signals=activated(agent))
        assert (answer["outcome"], (await kernel.turn(f"turn_{depth}"))["depth"]) == ("suspended", depth)
    deepest = await kernel.claim_one()
    back = await suspend(kernel, deepest, child("c1", "a", "turn_3"), signals=activated("a"))
    assert back["code"] == "delegation_cycle"
    deeper = await suspend(kernel, deepest, child("c1", "a", "turn_3", instance="x"), signals=activated("a"))
    assert deeper["code"] == "recursion_depth_exceeded"


async def test_repeated_delegation_has_one_child(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"})
    calls = [child("c1", "critic", "turn_1"), tool("c2")]
    await suspend(kernel, await kernel.claim_one(), *calls, signals=activated("critic"), join="each")
    await report(kernel, "turn_a", "c2")
    (resumed,) = [each for each in await kernel.claim() if each["turn_id"] == "turn_a"]
    again = child("c1", "critic", "turn_other")  # a new owner makes new ids
    assert (await suspend(kernel, resumed, again, signals=activated("critic"), signals_emitted=0))[
        "outcome"
    ] == "suspended"
    assert (await wait(kernel, "turn_a", "c1"))["child_turn_id"] == "turn_1"
    assert [row["agent_turn_id"] for row in await kernel.rows("agent_turns", "agent_turn_id")] == ["turn_1", "turn_a"]


# ── Ends that cross ───────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("K12", "L0-87")
async def test_children_of_a_stopped_turn_are_stopped_and_not_awaited(kernel: Kernel) -> None:
    await delegated(kernel, "critic")
    await kernel.stop("turn_a")
    assert (await wait(kernel, "turn_a", "c1"))["state"] == "closed"
    assert (await kernel.sweep("stops"))["stopped"] == ["turn_1"]
    assert await kernel.sweep("reports") == {"resolved": [], "resumed": [], "failed": [], "targets": []}
    assert await kernel.rows("outbox", "*", "published_at is null and kind <> 'task_event'") == []


async def test_report_of_a_child_with_a_pruned_parent_is_completed(kernel: Kernel) -> None:
    await delegated(kernel, "critic")
    await ended(kernel, "turn_1")
    await kernel.harm(
        "delete from agent_turns where project_id = $1 and agent_turn_id = 'turn_a'",
        "delete from turn_waiting_tools where project_id = $1",
    )
    assert (await kernel.sweep("reports"))["resolved"] == []
    assert await kernel.rows("outbox", "*", "kind = 'report' and published_at is null") == []
    kernel.is_corrupted = True


@pytest.mark.proves("K17", "K23")
async def test_one_bad_child_never_stops_the_others(kernel: Kernel) -> None:
    for name in "ab":
        await kernel.start(f"run_{name}", ["writer", "critic"], {f"turn_{name}": "writer"})
        await suspend(kernel, await kernel.claim_one(), child("c1", "critic", f"turn_{name}1"),
                      signals=activated("critic", parent=f"sig_run_{name}_1"))  # fmt: skip
        await ended(kernel, f"turn_{name}1")
    await kernel.harm(
        "insert into cards (project_id, card_id, box_id, agent_turn_id, turn_epoch, kind, content, created_at)"
        " values ($1, 'card:turn_a:call:c1', 'box', 'turn_a', 2, 'note', '{}', '2030-01-01')"
    )
    swept = await kernel.sweep("reports")
    assert (swept["resumed"], [each["turn_id"] for each in swept["failed"]]) == (["turn_b"], ["turn_a"])
    assert (await kernel.sweep("reports"))["failed"] == []  # it is tried again later,
    kernel.wait(60)
    assert [each["turn_id"] for each in (await kernel.sweep("reports"))["failed"]] == [
        "turn_a"
    ]  # and not again at once
    kernel.is_corrupted = True


async def test_run_with_a_child_at_work_does_not_end(kernel: Kernel) -> None:
    claimed = await delegated(kernel, "critic")
    await kernel.stop("turn_a")
    version = (await kernel.run("run_a"))["version"]
    answer = await kernel.react(
        "run_a", version, draft("workflow:end", claimed["activation_id"]), status="ended", outcome="failed"
    )
    assert answer["outcome"] == "rejected"
    assert (await kernel.run("run_a"))["open_turns"] == 1


async def test_claim_of_a_child_returns_whether_an_earlier_owner_emitted_signals(kernel: Kernel) -> None:
    calls = [child(f"c{n}", "critic", f"turn_{n}", n, instance="desk") for n in range(2)]
    await suspended(kernel, *calls, signals=activated("critic", "critic"))
    first = await kernel.claim_one()
    assert first["has_emitted_signals"] is False
    await kernel.call("release", [turn_item(first)])
    again = await kernel.claim_one()
    assert again["has_emitted_signals"] is False  # it was claimed before, and emitted nothing
    await kernel.append(again, draft("agent:progress", again["activation_id"]))
    await kernel.call("release", [turn_item(again)])
    last = await kernel.claim_one()
    assert last["has_emitted_signals"] is True
    assert (await kernel.finish(last))["outcome"] == "ok"
    assert (await kernel.claim_one())["has_emitted_signals"] is False  # of another turn of the same instance
