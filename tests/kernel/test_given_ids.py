"""Ids of callers never collide with derived ids, and a taken id is rejected."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Connect, Item, Kernel, activation, draft, ending, message, run_item, turn_item
from tests.kernel.waits import activated, child, command, reported, status, suspend, tool

WRONG = ["", "a:b", "a\nb", "\x7f", "a\u0085b", "i" * 201, "ü" * 101]


def note(card_id: Any, content: Any = 1, **fields: Any) -> Item:
    return {"card_id": card_id, "kind": "note", "content": content, **fields}


@pytest.mark.proves("S11", "K17")
@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
async def test_no_given_id_is_empty_or_long_or_has_a_colon_or_a_control_character(kernel: Kernel, wrong: str) -> None:
    claimed = await kernel.running()
    kid = child("c1", "critic", "turn_k")
    calls: list[tuple[str, Item]] = [
        ("start_runs", run_item(wrong, ["writer"], {"turn_b": "writer"})),
        ("start_runs", run_item("run_b", ["writer"], {wrong: "writer"})),
        ("enqueue", message("run_a", "critic", wrong)),
        ("finish", ending(claimed, wakes={wrong: "critic"})),
        ("append", turn_item(claimed, cards=[note(wrong)])),
        ("suspend", turn_item(claimed, cards=[note(wrong)], calls=[tool("c1")])),
        ("suspend", turn_item(claimed, calls=[tool(wrong)])),
        (
            "suspend",
            turn_item(claimed, *activated("critic"), calls=[kid | {"child": kid["child"] | {"turn_id": wrong}}]),
        ),
        (
            "suspend",
            turn_item(claimed, *activated("critic"), calls=[kid | {"child": kid["child"] | {"instance": wrong}}]),
        ),
        ("begin_call", turn_item(claimed, call_id=wrong, tool="charge")),
        ("put_boxes", {"box_id": wrong, "cards": []}),
        ("put_boxes", {"box_id": "context_1", "cards": [note(wrong)]}),
        ("fork_boxes", {"box_id": wrong, "base_box_id": "box_turn_a"}),
    ]
    before = await kernel.everything()
    for function, item in calls:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="1 to 200 bytes"):
            await kernel.call(function, [item])
    assert await reported(kernel, "turn_a", wrong) == "unknown_call"
    assert await kernel.everything() == before


@pytest.mark.proves("K1", "K21")
async def test_ids_of_future_endings_and_results_cannot_be_taken(kernel: Kernel) -> None:
    """Ids that look like those which the kernel makes of a turn and a call: each is a card of its own."""
    await kernel.start("run_a", ["writer", "critic"], {"t": "writer", "t_call_x": "critic"})
    writer, critic = sorted(await kernel.claim(), key=lambda each: len(each["turn_id"]))
    for card_id in ("card_t_end", "card_t_call_x_end", "card_t_call_x"):
        assert (await kernel.append(critic, cards=[note(card_id)]))["outcome"] == "ok"
    assert (await kernel.call("put_boxes", [{"box_id": "t", "cards": [note(None), note("end")]}]))[0][
        "outcome"
    ] == "put"
    await suspend(kernel, writer, command("x"), tool("x_end"), tool("end"))
    for call in ("x_end", "end"):
        assert await reported(kernel, "t", call) == "applied"
    assert (await kernel.finish(critic))["outcome"] == "ok"
    assert (await kernel.stop("t"))["outcome"] == "stopped"
    ends = await kernel.rows("cards", "card_id", "kind = 'task.deliverable'")
    assert [row["card_id"] for row in ends] == ["card:t:end", "card:t_call_x:end"]


@pytest.mark.proves("K2", "L0-93")
async def test_card_id_of_another_card_is_rejected_and_not_dropped(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer", "turn_b": "critic"})
    writer, critic = sorted(await kernel.claim(), key=lambda each: str(each["turn_id"]))
    assert (await kernel.append(writer, cards=[note("card_1"), note("card_2")]))["outcome"] == "ok"
    await kernel.call("put_boxes", [{"box_id": "context_1", "cards": [note("card_3")]}])
    before = await kernel.everything()
    for owner, cards in (
        (critic, [note("mine"), note("card_1")]), (critic, [note("card_3")]), (writer, [note("new"), note("card_2", 2)]),
        (writer, [note("card_2", kind="thought")]), (writer, [note("new"), note("new", 2)]),
    ):  # fmt: skip
        answer = await kernel.append(owner, draft("note", "sig_run_a_1"), cards=cards, phase="act")
        assert (answer["outcome"], answer["code"]) == ("rejected", "card_exists")
        with pytest.raises(asyncpg.UniqueViolationError, match="another card has the id"):
            await suspend(kernel, owner, tool("c1"), cards=cards)
    assert await kernel.everything() == before
    assert (await kernel.append(writer, cards=[note("card_2"), note("card_4")]))[
        "outcome"
    ] == "ok"  # the same card again
    assert (await kernel.turn("turn_a"))["card_count"] == 3


@pytest.mark.proves("K9", "L0-06")
async def test_turn_id_used_in_two_runs_at_once_is_a_conflict_in_one(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    for run in ("run_a", "run_b"):
        await kernel.start(run, ["critic", "writer"], {f"first_{run}": "writer"})
    for n in range(10):
        answers = await asyncio.gather(
            kernel.enqueue("run_a", "critic", f"turn_{n}"), other.enqueue("run_b", "critic", f"turn_{n}")
        )
        assert sorted(each["outcome"] for each in answers) == ["conflict", "queued"]


@pytest.mark.proves("L0-38")
async def test_two_children_with_one_turn_id_start_the_first_or_none(kernel: Kernel) -> None:
    for name in "ab":
        await kernel.start(f"run_{name}", ["writer", "critic"], {f"turn_{name}": "writer"})
    first, second = sorted(await kernel.claim(), key=lambda each: str(each["turn_id"]))
    before = await kernel.everything()
    twice = [child("c1", "critic", "kid", 0), child("c2", "critic", "kid", 1)]
    assert (await suspend(kernel, first, *twice, signals=activated("critic", "critic")))["code"] == "id_conflict"
    assert await kernel.everything() == before
    items = [
        turn_item(each, *activated("critic", parent=f"sig_{each['run_id']}_1"), calls=[child("c1", "critic", "kid")])
        for each in (first, second)
    ]
    answers = await kernel.call("suspend", items)
    assert [(each["outcome"], each.get("code")) for each in answers] == [
        ("suspended", None),
        ("rejected", "id_conflict"),
    ]
    assert await status(kernel, "run_b/writer") == "running"


@pytest.mark.proves("L0-38", "L0-47")
async def test_reaction_activates_no_instance_because_it_has_not_locked_its_head(kernel: Kernel) -> None:
    claimed = await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError, match='activations\\[\\] has the unknown key "instance"'):
        await kernel.finish(claimed, activations=[activation("critic", "turn_b", 0, instance="x")])


async def test_instance_must_belong_to_an_agent_of_the_run(kernel: Kernel) -> None:
    claimed = await kernel.running()
    ghost = child("c1", "ghost", "turn_g", instance="i1")
    answer = await suspend(kernel, claimed, ghost, signals=activated("ghost"))
    assert (answer["outcome"], answer["code"]) == ("rejected", "unknown_agent")
    assert await kernel.rows("agent_state_head", "*", "agent_name = 'ghost'") == []


@pytest.mark.proves("L0-36", "SIG-11", "S3")
async def test_message_with_an_empty_name_cause_or_parent_is_rejected(kernel: Kernel) -> None:
    await kernel.running()
    before = await kernel.everything()
    for name in (None, "", "A b", "a::b", ":a", "a:", "é", "a\n", "n" * 201, ":".join("a" * 17)):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="name: segments"):
            await kernel.enqueue("run_a", "critic", "turn_1", name=name)
    refused: list[tuple[Item, str]] = [
        *(({"name": name}, "reserved_name") for name in ("workflow:end", "kernel:x", "agent:failed", "halt")),
        *(
            ({"cause": cause}, "unknown_cause")
            for cause in ("sig_run_a_9", "sig_run_a_0", "sig_run_b_1", "sig_run_a_01", "x", 7)
        ),
        ({"parent_turn_id": "turn_9"}, "unknown_turn"),
    ]
    for fields, code in refused:
        answer = await kernel.enqueue("run_a", "critic", "turn_1", **fields)
        assert (answer["outcome"], answer["code"]) == ("rejected", code), fields
    assert await kernel.everything() == before


@pytest.mark.proves("SIG-11")
async def test_turn_cannot_emit_signals_of_its_run(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    for name in ("workflow:end", "workflow:terminating", "kernel:x"):
        forged = draft(name, claimed["activation_id"])
        assert (await kernel.append(claimed, forged))["code"] == "reserved_name"
        assert (await suspend(kernel, claimed, tool("c1"), signals=[forged]))["code"] == "reserved_name"
    assert await kernel.everything() == before


@pytest.mark.proves("L0-06", "K2")
async def test_message_is_a_duplicate_only_with_equal_boxes_and_fields(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await kernel.call("put_boxes", [{"box_id": box, "cards": []} for box in ("context_1", "context_2")])
    sent = {"context_box_id": "context_1", "result_fields": [{"name": "total"}]}
    others: list[Item] = [{"context_box_id": "context_2"}, {"context_box_id": None}, {"result_fields": None},
                          {"result_fields": [{"name": "sum"}]}, {"message_type": "ui_action"}, {"payload": {"a": 1}}]  # fmt: skip
    outcomes = [
        (await kernel.enqueue("run_a", "critic", "turn_1", **sent | other))["outcome"] for other in ({}, {}, *others)
    ]
    assert outcomes == ["queued", "duplicate", *["conflict"] * len(others)]
    critic = await kernel.claim_one()  # a turn may read another box by now: the message is the same
    await kernel.call("replace_boxes", [turn_item(critic, context_box_id=None)])
    assert (await kernel.enqueue("run_a", "critic", "turn_1", **sent))["outcome"] == "duplicate"
    del claimed


FIELDS: list[Any] = [{"a": 1}, "total", 7, [1], [{}], [{"name": ""}], [{"name": 1}], [{"name": "n" * 201}],
                     [{"name": "a", "required": "no"}], [None]]  # fmt: skip


@pytest.mark.proves("L0-84", "S11")
@pytest.mark.parametrize("fields", FIELDS, ids=str)
async def test_impossible_result_fields_are_rejected_at_the_request(kernel: Kernel, fields: Any) -> None:
    claimed = await kernel.running()
    kid = child("c1", "critic", "turn_k", result_fields=fields)
    before = await kernel.everything()
    woken = ending(claimed, wakes={"turn_c": "critic"})
    woken["reaction"]["activations"][0]["result_fields"] = fields
    for call in (
        kernel.enqueue("run_a", "critic", "turn_1", result_fields=fields), kernel.call("finish", [woken]),
        suspend(kernel, claimed, kid, signals=activated("critic")),
    ):  # fmt: skip
        with pytest.raises(asyncpg.InvalidParameterValueError, match="result_fields must"):
            await call
    assert await kernel.everything() == before


@pytest.mark.proves("S11")
async def test_missing_or_unknown_value_is_rejected_by_its_field_name(kernel: Kernel) -> None:
    claimed = await kernel.running()
    tried: list[tuple[str, Item, str]] = [
        ("enqueue", message("run_a", "critic", "turn_1", message_type="foo"), "message_type must be turn or ui_action"),
        ("enqueue", message("run_a", "critic", "turn_1", ttl_seconds="abc"), "ttl_seconds must be above 0"),
        ("enqueue", message("run_a", "critic", "turn_1", actor="a" * 201), "actor must have at most 200 bytes"),
        ("append", turn_item(claimed, phase="dance"), "phase must be init, plan"),
        ("append", turn_item(claimed, cards=[{"kind": "note", "content": 1}]), "a card id must have 1 to 200 bytes"),
        ("append", turn_item(claimed, cards=[{"card_id": "c", "content": 1}]), "the kind of a card must have 1 to 200 bytes"),
        ("append", turn_item(claimed, cards=[{"card_id": "c", "kind": "note"}]), "a card must have content"),
        ("suspend", turn_item(claimed, phase="dance", calls=[tool("c1")]), "phase must be init, plan"),
        ("suspend", turn_item(claimed, cards=[{"card_id": "c", "kind": "note"}], calls=[tool("c1")]), "a card must have content"),
        ("finish", ending(claimed, outcome="great"), "outcome must be success"),
        ("finish", ending(claimed) | {"content": None}, "a deliverable must have content"),
        ("start_runs", run_item("run_b", ["a" * 201], {}), "agents: a name must have 1 to 200 bytes"),
        ("start_runs", run_item("run_b", ["a"], {}) | {"target": "t" * 201}, "target must have at most 200 bytes"),
    ]  # fmt: skip
    before = await kernel.everything()
    for function, item, words in tried:
        with pytest.raises(asyncpg.InvalidParameterValueError, match=words):
            await kernel.call(function, [item])
    assert await kernel.everything() == before


async def test_errors_of_misuse_name_the_object_and_the_next_step(kernel: Kernel) -> None:
    claimed = await kernel.running()
    started = run_item("run_b", ["writer"], {"turn_b": "writer"})
    started["reaction"]["activations"][0]["agent"] = "ghost"
    ghost = ending(claimed, wakes={"turn_g": "ghost"})
    tried: list[tuple[str, Item, str]] = [
        ("enqueue", message("run_a", "critic", "turn_1", ttl_seconds=0),
         "turn turn_1: ttl_seconds must be above 0 and at most 31622400, which is 366 days, not 0"),
        ("enqueue", message("run_a", "critic", "turn_1", max_attempts=0), "turn turn_1: max_attempts must be between 1 and 1000, not 0"),
        ("enqueue", message("run_a", "critic", "turn_1", priority=9), "turn turn_1: priority must be between 0 (low) and 3 (critical), not 9"),
        ("start_runs", run_item("run/b", ["a"], {}), "run run/b: a run id must not contain a slash: choose another id"),
        ("start_runs", run_item("run_b", ["a"], {}) | {"target": None}, "run run_b: target and request_hash are required"),
        ("start_runs", started, "turn turn_b activates the agent ghost, which run run_b does not have: name an agent of the run, or list "
         "this one in agents when the run starts"),
        ("finish", ghost, "turn turn_g activates the agent ghost, which run run_a does not have: name an agent of the run, or list "
         "this one in agents when the run starts"),
    ]  # fmt: skip
    before = await kernel.everything()
    for function, item, text in tried:
        with pytest.raises(asyncpg.PostgresError) as error:
            await kernel.call(function, [item])
        assert str(error.value) == text
    assert await kernel.everything() == before


async def test_second_end_of_a_run_is_rejected_with_its_id(kernel: Kernel) -> None:
    """The outcomes of the kernel's functions leave no way to it; the text must be right if one of them has a defect."""
    await kernel.finish(await kernel.running(), ends="success")
    query = "select heliograph._commit_reactions($1, '{1}', '{run_a}', '{null}', '{null}', array['{}'::jsonb], '{null}', null, 0, $2)"
    with pytest.raises(
        asyncpg.CheckViolationError,
        match="run run_a has ended, and a run ends only once: start a run with another id",
    ):
        await kernel.connection.fetchval(query, kernel.project, kernel.now)


@pytest.mark.proves("S11")
async def test_rejection_of_too_many_children_has_their_number(kernel: Kernel) -> None:
    claimed = await kernel.running()
    answer = await kernel.append(claimed, cards=[note(f"card_{n}") for n in range(1001)])
    assert answer["message"] == (
        "the turn would have 1001 cards; at most 1000 are allowed: put the content into fewer cards, "
        "or raise the limit with helio db limits cards_max=NUMBER"
    )
