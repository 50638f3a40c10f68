from __future__ import annotations

import asyncpg
import pytest

from tests.kernel.kit import TARGET, Kernel, message


@pytest.mark.proves("L0-34", "L0-43", "L0-44")
async def test_idle_agent_is_dispatched_by_the_enqueue_itself(kernel: Kernel) -> None:
    await kernel.running()
    answer = await kernel.enqueue("run_a", "critic", "turn_1", priority=3)
    assert answer == {"turn_id": "turn_1", "outcome": "queued", "targets": [TARGET], "woken": ["run_a/critic"]}
    head = await kernel.head("run_a/critic")
    assert (head["status"], head["active_agent_turn_id"], head["turn_epoch"]) == ("dispatched", "turn_1", 1)
    assert (head["priority"], head["activation_seq"]) == (3, 4)
    (row,) = await kernel.rows("agent_inbox", "*", "agent_turn_id = $2", "turn_1")
    assert (row["status"], row["turn_epoch"], row["message_type"]) == ("pending", 1, "turn")


@pytest.mark.proves("L0-01", "L0-33", "L0-48")
async def test_busy_agent_keeps_its_turn_and_the_new_one_waits(kernel: Kernel) -> None:
    await kernel.running()
    answer = await kernel.enqueue("run_a", "writer", "turn_1")
    assert answer["targets"] == []
    turn = await kernel.turn("turn_1")
    assert (turn["state"], turn["outcome"]) == ("queued", None)
    (row,) = await kernel.rows("agent_inbox", "*", "agent_turn_id = $2", "turn_1")
    assert (row["status"], row["turn_epoch"]) == ("queued", None)
    assert (await kernel.head("run_a/writer"))["active_agent_turn_id"] == "turn_a"


@pytest.mark.proves("L0-30", "L0-31", "L0-36", "SIG-60", "SIG-61")
async def test_message_enters_the_log_and_the_activation_follows_it(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", payload={"subject": "hello"})
    *_, came, activated = await kernel.rows("signal_log", "seq, id, name, payload, agent, parent")
    assert (came["id"], came["name"], came["payload"]) == ("sig_run_a_3", "mail:came", {"subject": "hello"})
    assert came["parent"] == "sig_run_a_1"
    assert (activated["name"], activated["agent"], activated["parent"]) == ("agent:activated", "critic", "sig_run_a_3")
    (edge,) = await kernel.rows("edge_overview", "*", "turn_id = $2", "turn_1")
    assert (edge["primitive"], edge["edge_phase"], edge["cause_id"]) == ("enqueue", "request", "sig_run_a_3")
    assert (edge["run_id"], edge["agent_id"], edge["created_at"]) == ("run_a", "run_a/critic", kernel.now)


@pytest.mark.proves("SIG-16")
async def test_message_may_name_its_cause(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", cause="sig_run_a_2")
    (came,) = await kernel.rows("signal_log", "*", "seq = 3")
    assert came["parent"] == "sig_run_a_2"


@pytest.mark.proves("L0-06", "L0-48")
async def test_each_enqueue_is_a_turn_of_its_own(kernel: Kernel) -> None:
    await kernel.running()
    turns = [f"turn_{n}" for n in range(3)]
    answers = await kernel.call("enqueue", [message("run_a", "critic", turn) for turn in turns])
    assert [each["outcome"] for each in answers] == ["queued"] * 3
    rows = await kernel.rows("agent_turns", "queue_seq, agent_turn_id, state", "agent_id = $2", "run_a/critic")
    assert [tuple(row)[1:] for row in rows] == [("turn_0", "active"), ("turn_1", "queued"), ("turn_2", "queued")]
    assert len({row["output_box_id"] for row in await kernel.rows("agent_turns")}) == 4


@pytest.mark.proves("K27")
async def test_queued_turn_is_counted_in_its_run_and_moves_its_version(kernel: Kernel) -> None:
    await kernel.running()
    before = await kernel.run("run_a")
    await kernel.enqueue("run_a", "critic", "turn_1")
    after = await kernel.run("run_a")
    assert (after["open_turns"], after["activations"]) == (before["open_turns"] + 1, before["activations"] + 1)
    assert after["version"] > before["version"]


@pytest.mark.proves("G-17")
async def test_repeated_message_is_a_duplicate_and_changes_nothing(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", payload={"n": 1})
    before = await kernel.everything()
    kernel.wait(60)
    again = await kernel.enqueue("run_a", "critic", "turn_1", payload={"n": 1})
    assert again == {"turn_id": "turn_1", "outcome": "duplicate", "targets": []}
    assert await kernel.everything() == before


@pytest.mark.parametrize("other", [{"agent": "writer"}, {"name": "mail:went"}, {"payload": {"n": 2}}], ids=str)
async def test_turn_id_of_another_message_is_a_conflict(kernel: Kernel, other: dict[str, object]) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", payload={"n": 1})
    before = await kernel.everything()
    (answer,) = await kernel.call("enqueue", [message("run_a", "critic", "turn_1", payload={"n": 1}) | other])
    assert answer["outcome"] == "conflict"
    assert await kernel.everything() == before


async def test_duplicate_is_recognized_long_after_its_turn_is_done(kernel: Kernel) -> None:
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1")
    await kernel.finish(await kernel.claim_one())
    assert (await kernel.enqueue("run_a", "critic", "turn_1"))["outcome"] == "duplicate"


@pytest.mark.parametrize(("run_id", "agent"), [("run_a", "nobody"), ("run_x", "writer"), ("", ""), ("run_a", "")])
async def test_unknown_agent_is_rejected(kernel: Kernel, run_id: str, agent: str) -> None:
    await kernel.running()
    before = await kernel.everything()
    assert (await kernel.enqueue(run_id, agent, "turn_1"))["outcome"] == "unknown_agent"
    assert await kernel.everything() == before


@pytest.mark.proves("S1")
@pytest.mark.parametrize("run_id", ["run_a/b", "/", "", "r" * 201])
async def test_run_id_that_resembles_an_agent_id_is_rejected(kernel: Kernel, run_id: str) -> None:
    with pytest.raises(
        asyncpg.InvalidParameterValueError, match=r"a run id must (have 1 to 200 bytes|not contain a slash)"
    ):
        await kernel.start(run_id, ["c"], {"turn_1": "c"})
    await kernel.start("run_a", ["b"], {"turn_2": "b"})
    assert (await kernel.enqueue("run_a", "b/c", "turn_3"))["outcome"] == "unknown_agent"
    assert (await kernel.enqueue("run_a", "b", "turn_3", instance="c"))["outcome"] == "unknown_agent"


async def test_ended_run_accepts_no_message(kernel: Kernel) -> None:
    await kernel.finish(await kernel.running(), ends="success")
    before = await kernel.everything()
    assert (await kernel.enqueue("run_a", "writer", "turn_1"))["outcome"] == "ended"
    assert await kernel.everything() == before


async def test_terminating_run_accepts_no_message(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1")
    await kernel.finish(claimed, version=2, status="terminating")
    assert (await kernel.run("run_a"))["status"] == "terminating"
    assert (await kernel.enqueue("run_a", "writer", "turn_2"))["outcome"] == "ended"


async def test_answers_come_in_the_order_of_the_messages(kernel: Kernel) -> None:
    await kernel.running()
    messages = [("writer", "turn_3"), ("nobody", "turn_2"), ("critic", "turn_1"), ("writer", "turn_3")]
    answers = await kernel.call("enqueue", [message("run_a", agent, turn) for agent, turn in messages])
    assert [each["turn_id"] for each in answers] == [turn for _, turn in messages]
    assert [each["outcome"] for each in answers] == ["queued", "unknown_agent", "queued", "duplicate"]


@pytest.mark.parametrize("limits", [{"priority": 9}, {"max_attempts": 1001}, {"ttl_seconds": 0}], ids=str)
async def test_message_with_impossible_limits_rolls_back_its_whole_call(
    kernel: Kernel, limits: dict[str, object]
) -> None:
    await kernel.running()
    before = await kernel.everything()
    items = [message("run_a", "critic", "turn_1"), message("run_a", "writer", "turn_2") | limits]
    with pytest.raises(asyncpg.InvalidParameterValueError, match=next(iter(limits))):
        await kernel.call("enqueue", items)
    assert await kernel.everything() == before


@pytest.mark.proves("L0-08")
async def test_enqueue_returns_the_pool_to_ring_and_rings_none_itself(kernel: Kernel) -> None:
    await kernel.running()
    notifications: list[object] = []
    await kernel.connection.add_listener("heliograph", lambda *args: notifications.append(args))
    assert (await kernel.enqueue("run_a", "critic", "turn_1"))["targets"] == [TARGET]
    sources = await kernel.connection.fetch(
        "select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace"
        " where n.nspname = 'heliograph' and p.prosrc ~* 'notify'"
    )
    assert (notifications, sources) == ([], [])


@pytest.mark.proves("L0-35", "L0-15")
async def test_action_leases_the_idle_agent_and_its_row_is_pending_under_that_lease(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {})
    answer = await kernel.enqueue("run_a", "writer", "turn_a", message_type="ui_action", actor="the user")
    assert answer == {"turn_id": "turn_a", "outcome": "queued", "targets": [TARGET], "woken": ["run_a/writer"]}
    head = await kernel.head("run_a/writer")
    assert (head["status"], head["active_agent_turn_id"], head["turn_epoch"]) == ("dispatched", "turn_a", 1)
    assert head["expecting_correlation_id"] == "turn_a"
    (row,) = await kernel.rows("agent_inbox")
    assert (row["message_type"], row["status"], row["turn_epoch"], row["actor"]) == (
        "ui_action",
        "pending",
        1,
        "the user",
    )
    for status in ("dispatched", "running"):  # it is not idle, and nothing is queued for it
        before = await kernel.everything()
        assert (await kernel.head("run_a/writer"))["status"] == status
        answer = await kernel.enqueue("run_a", "writer", "turn_b", message_type="ui_action")
        assert (answer["outcome"], answer["targets"]) == ("busy", [])
        assert await kernel.everything() == before
        await kernel.claim()
