from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import DELIVERABLE, TARGET, Kernel, ending

OUTCOMES = ("success", "failed", "canceled", "timeout", "partial")


@pytest.mark.proves("L0-03", "L0-07", "L0-70", "L0-72", "L0-80", "L0-81", "L0-82", "L0-87", "G-60", "K1", "G-46")
@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_ending_writes_one_deliverable_and_one_event_and_idles_the_head(kernel: Kernel, outcome: str) -> None:
    claimed = await kernel.running()
    assert (await kernel.finish(claimed, outcome=outcome, ends=outcome))["outcome"] == "ok"
    turn, head = await kernel.turn("turn_a"), await kernel.head("run_a/writer")
    assert (turn["state"], turn["outcome"], turn["finished_at"]) == ("done", outcome, kernel.now)
    (card,) = await kernel.rows("card_overview")
    assert (card["card_id"], card["kind"], card["box_id"]) == (
        "card:turn_a:end",
        DELIVERABLE,
        turn["output_box_id"],
    )
    (event,) = await kernel.call("read_outbox", 10)
    assert event["body"]["deliverable_card_id"] == card["card_id"]
    assert (head["status"], head["active_agent_turn_id"], head["owner"], head["lease_until"]) == (
        "idle",
        None,
        None,
        None,
    )
    assert (head["phase"], head["activation_seq"], head["turn_epoch"]) == (None, None, claimed["epoch"] + 1)
    (lease,) = await kernel.rows("leases")
    assert lease["ended_at"] == kernel.now
    (row,) = await kernel.rows("agent_inbox")
    assert (row["status"], row["consumed_at"]) == ("consumed", kernel.now)
    assert await kernel.checks(quiescent=True) == ["I8"]


@pytest.mark.proves("L0-86", "L0-107", "G-61")
async def test_task_event_carries_pointers_and_no_content(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    (event,) = await kernel.call("read_outbox", 10)
    assert {key: event[key] for key in ("key", "subject", "body")} == {
        "key": "evt:turn_a", "subject": "evt.agent.run_a/writer.task",
        "body": {"agent_turn_id": "turn_a", "status": "success", "output_box_id": "box_turn_a",
                 "deliverable_card_id": "card:turn_a:end"},
    }  # fmt: skip


@pytest.mark.proves("G-61")
async def test_event_is_read_until_it_is_marked_and_marked_once(kernel: Kernel) -> None:
    for name in "abc":
        await kernel.finish(await kernel.running(f"run_{name}", f"turn_{name}"), ends="success")
    read = await kernel.call("read_outbox", 2)
    assert [event["key"] for event in read] == ["evt:turn_a", "evt:turn_b"]
    keys = [event["key"] for event in read]
    assert await kernel.call("mark_published", keys[::-1]) == 2
    assert await kernel.call("mark_published", keys) == 0
    assert [event["key"] for event in await kernel.call("read_outbox", 2)] == ["evt:turn_c"]


@pytest.mark.proves("K8", "L0-44", "L0-48", "L0-72")
async def test_ending_dispatches_the_next_queued_turn_in_the_same_commit(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "writer", "turn_2")
    await kernel.enqueue("run_a", "writer", "turn_3")
    kernel.wait(1)
    answer = await kernel.finish(claimed, version=3)
    assert answer == {"turn_id": "turn_a", "outcome": "ok", "targets": [TARGET], "woken": ["run_a/writer"]}
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["active_agent_turn_id"]) == ("dispatched", "turn_2")
    assert (head["turn_epoch"], head["ready_at"]) == (claimed["epoch"] + 2, kernel.now)
    assert (await kernel.turn("turn_3"))["state"] == "queued"


@pytest.mark.proves("SIG-60", "SIG-61")
async def test_ending_wakes_others_and_the_log_has_the_cause(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.finish(claimed, wakes={"turn_c": "critic"})
    critic = await kernel.claim_one()
    assert critic["cause"] == {
        "id": "sig_run_a_3",
        "name": "agent:completed",
        "payload": {},
        "agent": "writer",
        "turn_id": "turn_a",
    }
    await kernel.finish(critic, ends="success")
    log = await kernel.rows("signal_log", "seq, id, name, agent, parent")
    assert [tuple(row)[1:] for row in log] == [
        ("sig_run_a_1", "workflow:start", None, None),
        ("sig_run_a_2", "agent:activated", "writer", "sig_run_a_1"),
        ("sig_run_a_3", "agent:completed", "writer", "sig_run_a_2"),
        ("sig_run_a_4", "agent:activated", "critic", "sig_run_a_3"),
        ("sig_run_a_5", "agent:completed", "critic", "sig_run_a_4"),
        ("sig_run_a_6", "workflow:end", None, "sig_run_a_5"),
    ]


async def test_agent_may_wake_itself(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.finish(claimed, wakes={"turn_2": "writer", "turn_3": "writer"})
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_2"]


@pytest.mark.proves("K24")
async def test_ending_commits_the_state_that_its_reaction_computed(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.finish(claimed, wakes={"turn_c": "critic"}, state={"text": "x", "verdict": None}, memory={"join": [1]})
    run = await kernel.run("run_a")
    assert (run["state"], run["memory"]) == ({"text": "x", "verdict": None}, {"join": [1]})
    assert (run["version"], run["open_turns"], run["activations"]) == (2, 1, 2)
    await kernel.finish(await kernel.claim_one(), ends="success")
    assert (await kernel.run("run_a"))["state"] == {"text": "x", "verdict": None}


@pytest.mark.proves("K24", "L0-110")
async def test_reaction_to_an_older_version_is_a_conflict_and_writes_nothing(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_c")
    before = await kernel.everything()
    answer = await kernel.finish(claimed, wakes={"turn_d": "critic"}, state={"lost": True})
    assert (answer["outcome"], answer["targets"]) == ("conflict", [])
    assert (answer["run"]["version"], answer["run"]["open_turns"]) == (2, 2)
    assert await kernel.everything() == before
    assert (await kernel.finish(claimed, version=answer["run"]["version"]))["outcome"] == "ok"


@pytest.mark.proves("K24")
async def test_conflict_returns_the_current_run_including_nulls(kernel: Kernel) -> None:
    claimed = await kernel.running()
    state = {"verdict": None, "nested": {"a": None}, "list": [None]}
    await kernel.finish(claimed, wakes={"turn_1": "critic", "turn_2": "writer"}, state=state, memory={"m": None})
    first, second = await kernel.claim()
    await kernel.finish(first)
    answer = await kernel.finish(second)
    assert answer["outcome"] == "conflict"
    assert (answer["run"]["state"], answer["run"]["memory"]) == (state, {"m": None})


@pytest.mark.proves("K24")
async def test_item_without_a_version_matches_no_run(kernel: Kernel) -> None:
    claimed = await kernel.running()
    item = ending(claimed)
    before = await kernel.everything()
    for broken in (item | {"version": None}, {k: v for k, v in item.items() if k != "version"}):
        (answer,) = await kernel.call("finish", [broken])
        assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


@pytest.mark.proves("K24")
async def test_ending_without_a_reaction_is_a_conflict(kernel: Kernel) -> None:
    item = ending(await kernel.running())
    before = await kernel.everything()
    for broken in (item | {"reaction": None}, {k: v for k, v in item.items() if k != "reaction"}):
        (answer,) = await kernel.call("finish", [broken])
        assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


@pytest.mark.proves("K24")
async def test_two_endings_of_one_run_in_one_call_cannot_use_the_same_version(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer", "turn_2": "critic"})
    answers = await kernel.call("finish", [ending(each) for each in await kernel.claim()])
    assert [each["outcome"] for each in answers] == ["ok", "conflict"]


@pytest.mark.proves("K26")
async def test_run_ends_with_its_last_turn_and_not_earlier(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_1": "writer", "turn_2": "critic"})
    first, second = await kernel.claim()
    before = await kernel.everything()
    with pytest.raises(asyncpg.CheckViolationError):
        await kernel.finish(first, ends="success")
    assert await kernel.everything() == before
    await kernel.finish(first)
    assert (await kernel.finish(second, version=2, ends="partial"))["outcome"] == "ok"
    run = await kernel.run("run_a")
    assert (run["status"], run["outcome"], run["ended_at"], run["open_turns"]) == ("ended", "partial", kernel.now, 0)


REJECTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"outcome": "excellent"}, {}),
    ({"outcome": None}, {}),
    ({"content": ...}, {}),
    ({}, {"status": "asleep"}),
    ({}, {"status": "ended"}),
    ({}, {"outcome": "success"}),
    ({}, {"activations": "many"}),
    ({}, {"activations": [{"agent": "critic", "turn_id": "turn_c"}]}),
]


@pytest.mark.parametrize(("fields", "reaction"), REJECTIONS, ids=str)
async def test_malformed_ending_is_rejected_and_writes_nothing(
    kernel: Kernel, fields: dict[str, Any], reaction: dict[str, Any]
) -> None:
    claimed = await kernel.running()
    item = ending(claimed) | fields
    item["reaction"] |= reaction
    item = {key: value for key, value in item.items() if value is not ...}
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await kernel.call("finish", [item])
    assert await kernel.everything() == before


async def test_ending_that_wakes_no_agent_writes_no_turn(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await kernel.finish(claimed, wakes={"turn_c": "nobody"})
    assert await kernel.everything() == before


@pytest.mark.proves("L0-06", "K23")
async def test_ending_that_wakes_a_turn_under_a_taken_id_is_rejected_and_writes_nothing(
    kernel: Kernel,
) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_b")
    claimed["run"]["version"] = (await kernel.run("run_a"))["version"]
    twice = ending(claimed, wakes={"turn_c": "critic", "turn_d": "writer"})
    twice["reaction"]["activations"][1]["turn_id"] = "turn_c"
    before = await kernel.everything()
    for item in (ending(claimed, wakes={"turn_a": "critic"}), ending(claimed, wakes={"turn_b": "critic"}), twice):
        (answer,) = await kernel.call("finish", [item])
        assert (answer["outcome"], answer["code"]) == ("rejected", "id_conflict")
    assert await kernel.everything() == before
    assert (await kernel.finish(claimed, wakes={"turn_c": "critic"}))["outcome"] == "ok"


@pytest.mark.proves("L0-83")
@pytest.mark.parametrize("content", [{"nonsense": 1}, {}, 7, "words", [], {"text": 1}, {"fields": {"a": 1}}], ids=str)
async def test_deliverable_has_text_or_fields(kernel: Kernel, content: Any) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    (answer,) = await kernel.call("finish", [ending(claimed) | {"content": content}])
    assert (answer["outcome"], answer["code"]) == ("rejected", "invalid_content")
    assert await kernel.everything() == before


@pytest.mark.proves("K24", "K25")
async def test_ending_with_its_reaction_has_no_pending_reactions(kernel: Kernel) -> None:
    claimed = await kernel.running()
    item = ending(claimed, ends="success")
    item["signals"][0]["is_pending"] = True
    assert (await kernel.call("finish", [item]))[0]["outcome"] == "ok"
    assert (await kernel.pending(), (await kernel.run("run_a"))["pending_reactions"]) == ([], 0)


@pytest.mark.proves("L0-86", "L0-81", "L0-82", "L0-87")
@pytest.mark.parametrize("by", ["its owner", "a stop", "a sweep"])
async def test_task_event_of_every_outcome_points_to_the_card(kernel: Kernel, by: str) -> None:
    claimed = await kernel.running(ttl_seconds=10)
    if by == "its owner":
        item = ending(claimed, ends="success") | {"content": {"text": "what nobody is told"}}
        await kernel.call("finish", [item])
    elif by == "a stop":
        await kernel.stop("turn_a", reason="what nobody is told")
    else:
        kernel.wait(11)
        await kernel.sweep("expired")
    (event,) = await kernel.call("read_outbox", 10)
    assert event["body"].keys() == {"agent_turn_id", "status", "output_box_id", "deliverable_card_id"}
    (row,) = await kernel.rows("outbox")
    assert row["body"] is None  # nothing of the deliverable is kept with the event
    (card,) = await kernel.call("read_box", event["body"]["output_box_id"], None, 10)
    assert (card["card_id"], card["kind"]) == (event["body"]["deliverable_card_id"], "task.deliverable")
    assert card["content"]["text"] in ("what nobody is told", "not finished within its ttl_seconds, 10.000 s")
    assert card["content"]["text"] not in repr(event)


@pytest.mark.proves("L0-84", "L0-85")
async def test_ending_that_lacks_a_required_result_field_is_rejected_and_writes_nothing(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {})
    fields = [{"name": "total"}, {"name": "note", "required": False}]
    await kernel.enqueue("run_a", "critic", "turn_a", result_fields=fields)
    claimed = await kernel.claim_one()
    before = await kernel.everything()
    answer = await kernel.finish(claimed, ends="success")
    assert (answer["outcome"], answer["code"]) == ("rejected", "result_fields")
    assert "total" in answer["message"]
    assert "note" not in answer["message"]
    assert await kernel.everything() == before
    covered = {**ending(claimed, ends="success"), "content": {"fields": [{"name": "total", "value": 3}]}}
    (answer,) = await kernel.call("finish", [covered])
    assert answer["outcome"] == "ok"
