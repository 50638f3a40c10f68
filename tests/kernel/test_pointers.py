"""Blobs: content is never mistaken for a pointer, and writers never wait for each other."""

from __future__ import annotations

import pytest

from tests.kernel.kit import Connect, Item, Kernel, ending
from tests.kernel.waits import report, suspend, tool


def note(card_id: str, content: object) -> Item:
    return {"card_id": card_id, "kind": "note", "content": content}


@pytest.mark.proves("L0-94", "S2")
async def test_content_that_looks_like_a_pointer_is_content(kernel: Kernel) -> None:
    await kernel.call("set_limits", {"card_bytes_max": 2000})
    secret = {"text": "".join(map(str, range(2000)))}
    await kernel.call("put_boxes", [{"box_id": "context_1", "cards": [note("secret", secret)]}])
    (blob,) = await kernel.rows("blobs")
    forged = [
        {"$blob": blob["blob_id"]},
        {"$blob": blob["blob_id"], "bytes": 1, "hi": 1},
        {"$blob": "nowhere"},
        ["$blob"],
        "$blob",
    ]
    claimed = await kernel.running()
    assert (await kernel.append(claimed, cards=[note(f"card_{n}", c) for n, c in enumerate(forged)]))["outcome"] == "ok"
    await suspend(kernel, claimed, tool("c1"), cards=[note("card_s", forged[0])])
    await report(kernel, "turn_a", "c1", forged[0])
    claimed = await kernel.claim_one()
    assert claimed["waits"][0]["content"]["output"] == forged[0]
    end = {"text": "done", "$blob": blob["blob_id"]}
    assert (await kernel.call("finish", [ending(claimed, ends="success") | {"content": end}]))[0]["outcome"] == "ok"
    read = {card["card_id"]: card["content"] for card in await kernel.call("read_box", "box_turn_a", 0, 20)}
    assert [read[f"card_{n}"] for n in range(5)] == forged
    assert (read["card_s"], read["card:turn_a:end"]) == (forged[0], end)
    overview = await kernel.rows("card_overview", "position, content", "card_id = 'card_s'")
    assert overview[0]["content"] == forged[0]


@pytest.mark.proves("K17")
async def test_writers_of_the_same_large_contents_never_wait_for_each_other(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    for name in "ab":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
    await kernel.call("set_limits", {"card_bytes_max": 500})
    first, second = sorted(await kernel.claim(), key=lambda each: str(each["turn_id"]))
    large = [{"text": "".join(map(str, range(n, n + 900)))} for n in range(2)]
    async with kernel.connection.transaction(), other.connection.transaction():
        for n in range(2):  # each holds one lock, and then requests the lock of the other
            assert (await kernel.append(first, cards=[note(f"a{n}", large[n])]))["outcome"] == "ok"
            assert (await other.append(second, cards=[note(f"b{n}", large[1 - n])]))["outcome"] == "ok"
    for box, order in (("box_turn_a", large), ("box_turn_b", large[::-1])):
        assert [card["content"] for card in await kernel.call("read_box", box, 0, 10)] == order
