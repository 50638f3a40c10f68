"""Boxes: contexts are immutable, outputs have one writer, and a fork is one row (L0-90 to L0-98)."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from tests.kernel.kit import Connect, Item, Kernel, turn_item
from tests.kernel.test_isolation import opened, when_blocked


def cards(*texts: str) -> list[Item]:
    return [{"kind": "note", "content": {"text": text}} for text in texts]


async def put(kernel: Kernel, box_id: str, *texts: str) -> str:
    (answer,) = await kernel.call("put_boxes", [{"box_id": box_id, "cards": cards(*texts)}])
    return str(answer["outcome"])


async def fork(kernel: Kernel, box_id: str, base: str | None, writer: str | None = None) -> str:
    item = {"box_id": box_id, "base_box_id": base, "writer_turn_id": writer}
    (answer,) = await kernel.call("fork_boxes", [item])
    return str(answer["outcome"])


async def write(kernel: Kernel, claimed: Item, *texts: str) -> None:
    written = len(await kernel.rows("cards", "card_id", "agent_turn_id = $2", claimed["turn_id"]))
    new = [
        {"card_id": f"card_{claimed['turn_id']}_{claimed['epoch']}_{written + n}", **card} for n, card in enumerate(cards(*texts))
    ]  # fmt: skip
    assert (await kernel.append(claimed, cards=new))["outcome"] == "ok"


async def replace(kernel: Kernel, claimed: Item, **boxes: Any) -> Item:
    (answer,) = await kernel.call("replace_boxes", [turn_item(claimed, **boxes)])
    return dict(answer)


async def read(kernel: Kernel, box_id: str, after: int | None = None, limit: int = 1000) -> list[str]:
    """The texts of a box by read_box; a read from the start compares them with the view."""
    found = await kernel.call("read_box", box_id, after, limit)
    if after is None:
        rows = await kernel.rows("box_contents", "position, card_id, content", "box_id = $2", box_id)
        assert [row["card_id"] for row in rows][:limit] == [card["card_id"] for card in found]
    return [card["content"]["text"] for card in found]


@pytest.mark.proves("L0-90", "L0-95", "L0-30")
async def test_context_box_is_written_whole_and_given_to_a_turn_by_id(kernel: Kernel) -> None:
    assert await put(kernel, "context_1", "first", "second") == "put"
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", context_box_id="context_1")
    claimed = await kernel.claim_one()
    assert (claimed["context_box_id"], claimed["output_box_id"]) == ("context_1", "box_turn_1")
    (row,) = await kernel.rows("agent_inbox", "*", "agent_turn_id = 'turn_1'")
    assert row["payload_box_id"] == "context_1"
    (first, second) = await kernel.call("read_box", "context_1", None, 10)
    assert (first["card_id"], second["card_id"]) == ("card:context_1:1", "card:context_1:2")
    assert first | {"position": 0} == {
        "position": 0, "card_id": "card:context_1:1", "kind": "note", "content": {"text": "first"}, "turn_id": None,
        "epoch": None, "created_at": kernel.now.isoformat(),
    }  # fmt: skip


@pytest.mark.proves("L0-90", "L0-92")
async def test_written_box_is_immutable(kernel: Kernel) -> None:
    await put(kernel, "context_1", "first")
    before = await kernel.everything()
    assert await put(kernel, "context_1", "first") == "duplicate"
    assert await put(kernel, "context_1", "first", "second") == "conflict"
    assert await put(kernel, "context_1") == "conflict"
    assert await fork(kernel, "context_1", "context_1") == "conflict"
    assert await kernel.everything() == before


@pytest.mark.proves("L0-92", "L0-91", "S2")
async def test_no_function_lets_a_worker_write_into_a_context_box(kernel: Kernel) -> None:
    await put(kernel, "context_1", "first")
    await kernel.running()
    await kernel.enqueue("run_a", "critic", "turn_1", context_box_id="context_1")
    claimed = await kernel.claim_one()
    await write(kernel, claimed, "mine")
    assert (await replace(kernel, claimed, output_box_id="context_1"))["code"] == "box_not_writable"
    card = {"card_id": "card_x", "kind": "note", "content": 1}
    for item in ({"cards": [card | {"box_id": "context_1"}]}, {"cards": [card], "box_id": "context_1"}):
        with pytest.raises((asyncpg.InvalidParameterValueError, KernelRejected), match='unknown key "box_id"'):
            await kernel.call("append", [turn_item(claimed, **item)])
    assert await read(kernel, "context_1") == ["first"]
    assert {row["box_id"] for row in await kernel.rows("cards", "*", "agent_turn_id = 'turn_1'")} == {"box_turn_1"}


@pytest.mark.proves("L0-98", "L0-96", "G-67")
async def test_fork_reads_its_base_up_to_its_creation_and_then_diverges(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await write(kernel, claimed, "one", "two")
    assert await fork(kernel, "fork_1", "box_turn_a") == "forked"
    await write(kernel, claimed, "three")
    assert await fork(kernel, "fork_2", "fork_1") == "forked"
    assert await fork(kernel, "fork_3", "box_turn_a") == "forked"
    assert await read(kernel, "box_turn_a") == ["one", "two", "three"]
    assert await read(kernel, "fork_1") == await read(kernel, "fork_2") == ["one", "two"]
    assert await read(kernel, "fork_3") == ["one", "two", "three"]
    await write(kernel, claimed, "four")
    assert await fork(kernel, "fork_1", "box_turn_a") == "duplicate"  # the fork remains unchanged
    assert await read(kernel, "fork_1") == ["one", "two"]


@pytest.mark.proves("L0-98")
async def test_chain_of_forks_reads_in_write_order(kernel: Kernel) -> None:
    await put(kernel, "context_1", "a", "b")
    claimed = await kernel.running()
    base = "context_1"
    for n in range(5):
        assert await fork(kernel, f"fork_{n}", base, "turn_a") == "forked"
        assert (await replace(kernel, claimed, output_box_id=f"fork_{n}"))["outcome"] == "ok"
        await write(kernel, claimed, f"c{n}")
        base = f"fork_{n}"
    assert await read(kernel, "fork_4") == ["a", "b", "c0", "c1", "c2", "c3", "c4"]
    assert await read(kernel, "fork_2") == ["a", "b", "c0", "c1", "c2"]
    positions = [card["position"] for card in await kernel.call("read_box", "fork_4", None, 100)]
    assert positions == sorted(positions)
    for limit in range(1, 8):
        read_on: list[str] = []
        after: int | None = None
        while page := await kernel.call("read_box", "fork_4", after, limit):
            read_on += [card["content"]["text"] for card in page]
            after = page[-1]["position"]
        assert read_on == ["a", "b", "c0", "c1", "c2", "c3", "c4"]


@pytest.mark.proves("L0-97", "L0-82", "L0-98")
async def test_turn_continues_in_a_fork_which_gets_its_deliverable(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await write(kernel, claimed, "long", "and longer")
    await put(kernel, "compact", "in short")
    await fork(kernel, "compact_out", "compact", "turn_a")
    assert await replace(kernel, claimed, output_box_id="compact_out", context_box_id="compact") == {
        "turn_id": "turn_a", "outcome": "ok",
    }  # fmt: skip
    await write(kernel, claimed, "more")
    assert await read(kernel, "compact_out") == ["in short", "more"]
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"
    assert await read(kernel, "compact_out") == ["in short", "more", "done"]
    assert await read(kernel, "box_turn_a") == ["long", "and longer"]
    assert (await kernel.turn("turn_a"))["output_box_id"] == "compact_out"


async def test_replace_keeps_unnamed_boxes_and_can_remove_a_context(kernel: Kernel) -> None:
    await put(kernel, "context_1", "first")
    claimed = await kernel.running()
    assert (await replace(kernel, claimed, context_box_id="context_1"))["outcome"] == "ok"
    assert (await replace(kernel, claimed))["outcome"] == "ok"
    turn = await kernel.turn("turn_a")
    assert (turn["context_box_id"], turn["output_box_id"]) == ("context_1", "box_turn_a")
    assert (await replace(kernel, claimed, context_box_id=None))["outcome"] == "ok"
    assert (await kernel.turn("turn_a"))["context_box_id"] is None


@pytest.mark.proves("L0-97", "L0-98", "L0-02")
async def test_turn_gets_only_output_boxes_of_its_own_and_immutable_contexts(kernel: Kernel) -> None:
    await put(kernel, "context_1", "first")
    await kernel.start("run_a", ["writer", "critic"], {"turn_w": "writer", "turn_c": "critic"})
    critic, writer = await kernel.claim()
    await fork(kernel, "for_writer", "context_1", "turn_w")
    await fork(kernel, "for_all", "context_1")
    before = await kernel.everything()
    requests: list[tuple[Item, dict[str, str], str]] = [
        (critic, {"output_box_id": "for_writer"}, "box_not_writable"), (critic, {"output_box_id": "for_all"}, "box_not_writable"),
        (critic, {"output_box_id": "box_turn_w"}, "box_not_writable"), (critic, {"output_box_id": "nowhere"}, "unknown_box"),
        (critic, {"output_box_id": "box_turn_x"}, "unknown_box"), (critic, {"context_box_id": "box_turn_w"}, "box_in_use"),
        (critic, {"context_box_id": "box_turn_c"}, "box_in_use"), (critic, {"context_box_id": "for_writer"}, "box_in_use"),
        (critic, {"context_box_id": "nowhere"}, "unknown_box"),
    ]  # fmt: skip
    for claimed, boxes, code in requests:
        answer = await replace(kernel, claimed, **boxes)
        assert (answer["outcome"], answer["code"]) == ("rejected", code), boxes
    assert (await replace(kernel, critic | {"epoch": 1}, context_box_id="context_1"))["outcome"] == "stale"
    assert await kernel.everything() == before
    assert (await replace(kernel, writer, output_box_id="for_writer"))["outcome"] == "ok"
    assert (await replace(kernel, writer, output_box_id="box_turn_w"))["outcome"] == "ok"
    await kernel.finish(writer)
    assert (await replace(kernel, critic, context_box_id="box_turn_w"))["outcome"] == "ok"  # it is written to the end


@pytest.mark.proves("L0-98")
async def test_two_open_turns_never_write_to_one_box(kernel: Kernel) -> None:
    """Own boxes are named after their turns, and a fork for writing is for one turn alone."""
    await kernel.start("run_a", ["writer", "critic"], {"turn_w": "writer", "turn_c": "critic"})
    assert await fork(kernel, "fork_1", "box_turn_w", "turn_c") == "forked"
    assert await fork(kernel, "fork_1", "box_turn_w", "turn_w") == "conflict"
    for wrong in ("box_turn_9", "box_x"):
        with pytest.raises(asyncpg.InvalidParameterValueError, match="must not begin with box_"):
            await put(kernel, wrong, "mine")
        with pytest.raises(asyncpg.InvalidParameterValueError, match="must not begin with box_"):
            await fork(kernel, wrong, "box_turn_w", "turn_c")


@pytest.mark.parametrize(("base", "writer", "outcome"), [
    ("nowhere", None, "unknown_box"), (None, None, "unknown_box"), ("box_turn_x", None, "unknown_box"),
    ("box_turn_a", "turn_x", "unknown_turn"), ("box_turn_a", "turn_done", "unknown_turn"),
])  # fmt: skip
async def test_fork_without_a_base_or_a_turn_is_rejected(
    kernel: Kernel, base: str | None, writer: str | None, outcome: str
) -> None:
    await kernel.finish(await kernel.running("run_d", "turn_done"), ends="success")
    await kernel.running()
    before = await kernel.everything()
    assert await fork(kernel, "fork_1", base, writer) == outcome
    assert await kernel.everything() == before


async def test_empty_box_has_empty_forks(kernel: Kernel) -> None:
    claimed = await kernel.running()
    assert await fork(kernel, "fork_1", "box_turn_a") == "forked"
    await write(kernel, claimed, "later")
    assert (await read(kernel, "fork_1"), await read(kernel, "nowhere")) == ([], [])


async def test_taken_card_id_is_rejected(kernel: Kernel) -> None:
    items = [
        {"box_id": box, "cards": [{"card_id": "card_1", "kind": "note", "content": 1}]}
        for box in ("context_1", "context_2")
    ]
    first, second = await kernel.call("put_boxes", items)
    assert (first["outcome"], second["outcome"], second["code"]) == ("put", "rejected", "card_exists")


async def test_answers_follow_the_order_of_items_for_any_order_of_locks(kernel: Kernel) -> None:
    items: list[Item] = [{"box_id": box, "cards": []} for box in ("z", "a", "z", "m")]
    answers = await kernel.call("put_boxes", items)
    assert [(each["box_id"], each["outcome"]) for each in answers] == [
        ("z", "put"), ("a", "put"), ("z", "duplicate"), ("m", "put"),
    ]  # fmt: skip
    forks = [{"box_id": box, "base_box_id": base} for box, base in (("y", "z"), ("b", "x"), ("y", "z"))]
    assert [each["outcome"] for each in await kernel.call("fork_boxes", forks)] == [
        "forked",
        "unknown_box",
        "duplicate",
    ]
    for function in ("put_boxes", "fork_boxes", "replace_boxes"):
        assert await kernel.call(function, []) == []


@pytest.mark.proves("K17")
async def test_second_of_two_simultaneous_puts_waits_and_is_a_duplicate(kernel: Kernel, beside: Connect) -> None:
    other, watcher = await beside(), await beside()
    async with opened(kernel):
        assert await put(kernel, "context_1", "first") == "put"
        task = await when_blocked(other, put(other, "context_1", "first"), watcher)
    assert await task == "duplicate"


NONSENSE: list[tuple[str, Item, str]] = [
    ("put_boxes", {"box_id": None}, "a box id must have 1 to 200 bytes"), ("put_boxes", {"box_id": ""}, "a box id"),
    ("put_boxes", {"box_id": "b" * 201}, "a box id"), ("fork_boxes", {"box_id": ""}, "a box id"),
    ("put_boxes", {"box_id": "b", "cards": [{"kind": "note"}]}, "a card must have content"),
    ("put_boxes", {"box_id": "b", "cards": [{"content": 1}]}, "kind must have at most 200 bytes"),
    ("put_boxes", {"box_id": "b", "cards": [{"kind": "task.deliverable", "content": 1}]}, "only an ending writes"),
    ("put_boxes", {"box_id": "b", "cards": [{"card_id": "card:turn_a:end", "kind": "n", "content": 1}]}, "a card id must have 1 to 200 bytes"),
    ("put_boxes", {"box_id": "b", "cards": [{"card_id": "c" * 201, "kind": "n", "content": 1}]}, "a card id must have 1 to 200"),
    ("put_boxes", {"box_id": "b", "cards": [{"kind": "n" * 201, "content": 1}]}, "at most 200 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "item", "message"), NONSENSE, ids=str)
async def test_malformed_box_is_rejected(kernel: Kernel, function: str, item: Item, message: str) -> None:
    before = await kernel.everything()
    with pytest.raises(asyncpg.InvalidParameterValueError, match=message):
        await kernel.call(function, [{"box_id": "good"}, item])
    assert await kernel.everything() == before


@pytest.mark.parametrize("limit", [0, -1, 1001, None])
async def test_page_of_zero_or_unbounded_size_is_rejected(kernel: Kernel, limit: int | None) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="limit must be between 1 and 1000"):
        await kernel.call("read_box", "context_1", 0, limit)


# ── Cost ─────────────────────────────────────────────────────────────────────────────────────


async def buffers(kernel: Kernel, query: str, *args: Any) -> int:
    """How many pages a call touches, once it is warm; undone."""
    counted = []
    for _ in range(3):  # plans and catalogs are read by the first one
        undone = kernel.connection.transaction()
        await undone.start()
        (row,) = await kernel.connection.fetch(f"explain (analyze, buffers, timing off, format json) {query}", *args)
        plan = row[0][0]["Plan"]
        counted.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        await undone.rollback()
    return int(min(counted))


@pytest.mark.proves("L0-91", "L0-96", "L0-98")
async def test_box_operations_cost_the_same_with_ten_thousand_cards_as_with_ten(
    kernel: Kernel,
) -> None:
    await kernel.call("set_limits", {"cards_max": 20_000})
    await kernel.start("run_a", ["few", "many"], {"turn_few": "few", "turn_many": "many"})
    few, many = await kernel.claim()
    for claimed, count in ((few, 10), (many, 10_000)):
        await write(kernel, claimed, *map(str, range(count)))
        assert await fork(kernel, f"fork_{claimed['agent']}", f"box_{claimed['turn_id']}") == "forked"
    await kernel.connection.execute("vacuum analyze heliograph.cards")
    cost: dict[str, dict[str, int]] = {}
    for name, claimed in (("few", few), ("many", many)):
        box = f"box_turn_{name}"
        (middle,) = (await kernel.call("read_box", box, None, 10))[4:5]
        (last,) = await kernel.rows("cards", "max(position) as position", "box_id = $2", box)
        card = {"card_id": f"card_new_{name}", "kind": "note", "content": 1}
        page = "select heliograph.read_box($1, $2, $3, 5)"
        cost[name] = {
            "the first page": await buffers(kernel, page, kernel.project, box, 0),
            "a page in the middle": await buffers(kernel, page, kernel.project, box, middle["position"]),
            "the last page": await buffers(kernel, page, kernel.project, box, last["position"] - 5),
            "a page of a fork": await buffers(kernel, page, kernel.project, f"fork_{name}", last["position"] - 5),
            "a fork": await buffers(kernel, "select heliograph.fork_boxes($1, $2, now())", kernel.project,
                                    [{"box_id": f"more_{name}", "base_box_id": box}]),
            "an append": await buffers(
                kernel, "select heliograph.append($1, array[$2], array[$3], array[$4::bigint], '{null}', '{null}', array[$5::jsonb],"
                " '{null}', '{null}', now())", kernel.project, claimed["agent_id"], claimed["turn_id"], claimed["epoch"], [card]),
            "an ending": await buffers(kernel, "select heliograph.stop($1, $2, now())", kernel.project,
                                       [{"turn_id": f"turn_{name}", "mode": "force"}]),
        }  # fmt: skip
    dearer = {what: (pages, cost["few"][what]) for what, pages in cost["many"].items() if pages > cost["few"][what] + 5}
    assert dearer == {}
    assert max(cost["many"].values()) < 200


@pytest.mark.proves("G-67", "L0-91")
async def test_output_box_is_readable_and_append_only(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await write(kernel, claimed, "one", "two")
    assert await read(kernel, claimed["output_box_id"]) == ["one", "two"]  # while it is being written
    first = await kernel.call("read_box", "box_turn_a", None, 10)
    for card in first:
        changed = {"card_id": card["card_id"], "kind": "note", "content": {"text": "something else"}}
        assert (await kernel.append(claimed, cards=[changed]))["code"] == "card_exists"
    assert await kernel.call("read_box", "box_turn_a", None, 10) == first
    kernel.wait(31)
    await kernel.sweep("leases")
    again = await kernel.claim_one()
    await write(kernel, again, "three")
    assert (await kernel.finish(again, ends="success"))["outcome"] == "ok"
    whole = await kernel.call("read_box", "box_turn_a", None, 10)
    assert whole[:2] == first
    assert [card["kind"] for card in whole] == ["note", "note", "note", "task.deliverable"]


@pytest.mark.proves("L0-97", "L0-91")
async def test_card_overview_has_every_card_of_a_turn_with_a_replaced_output_box(kernel: Kernel) -> None:
    claimed = await kernel.running()
    await write(kernel, claimed, "before")
    await put(kernel, "compact", "in short")
    for n, base in enumerate(("compact", "box_turn_a")):
        await fork(kernel, f"out_{n}", base, "turn_a")
        await replace(kernel, claimed, output_box_id=f"out_{n}")
        await write(kernel, claimed, f"after {n}")
    await kernel.finish(claimed, ends="success")
    rows = await kernel.rows("card_overview", "kind, content, position", "turn_id = 'turn_a'")
    ordered = [row["content"]["text"] for row in sorted(rows, key=lambda row: row["position"])]
    assert ordered == ["before", "after 0", "after 1", "done"]
    assert await read(kernel, "out_1") == ["before", "after 1", "done"]


@pytest.mark.proves("K12")
async def test_end_of_a_turn_is_not_before_a_card_in_a_box_that_was_replaced(kernel: Kernel) -> None:
    claimed = await kernel.running(ttl_seconds=1)
    kernel.wait(60)
    await write(kernel, claimed, "late")
    await fork(kernel, "out", "box_turn_a", "turn_a")
    await replace(kernel, claimed, output_box_id="out")
    kernel.wait(-30)  # a sweep that read its clock before that
    assert (await kernel.call("sweep_expired", None))["ended"] == ["turn_a"]
    [card] = await kernel.rows("cards", "created_at", "kind = 'note' and agent_turn_id = 'turn_a'")
    assert (await kernel.turn("turn_a"))["finished_at"] == card["created_at"]
