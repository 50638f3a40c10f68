"""Limits (S11, S12): each holds at its value, rejects one more with a message, and belongs to one project."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from heliograph.signals.names import RESERVED_FIRST_SEGMENTS, RESERVED_NAMES
from tests.kernel.kit import Connect, Item, Kernel, draft, ending, message, woken
from tests.kernel.waits import TOKEN, activated, begin, child, command, defer, record, reported, suspend, suspended

DEFAULTS = {
    "dispatch_seconds_max": None,
    "queue_max": 1000, "depth_max": 20, "cards_max": 1000, "payload_bytes_max": 65536, "card_bytes_max": 262144,
    "result_bytes_max": 1048576, "blob_bytes_max": 16777216, "running_max": None, "deferrals_max": 3,
}  # fmt: skip


async def limit(kernel: Kernel, **limits: Any) -> Item:
    answer: Item = await kernel.call("set_limits", limits)
    return answer


def text(size: int) -> Item:
    """A payload of this many bytes."""
    return {"t": "x" * (size - len('{"t": ""}'))}


@pytest.mark.proves("S11", "S12")
async def test_project_has_the_limits_of_the_specification_until_it_sets_its_own(kernel: Kernel) -> None:
    limits = await limit(kernel)
    assert {name: limits[name] for name in DEFAULTS} == DEFAULTS
    assert (await limit(kernel, queue_max=7, running_max=2))["queue_max"] == 7
    assert (await limit(kernel, queue_max=None))["queue_max"] == 1000
    assert (await limit(kernel))["running_max"] == 2


@pytest.mark.parametrize(("limits", "problem"), [
    ({"colour": 1}, 'there is no limit "colour":'), ({"project_id": "x"}, 'there is no limit "project_id":'),
    ({f"key_{n:05}\n": 1 for n in range(20_000)}, r'^there is no limit "key_00000\\n": helio db limits lists all$'),
    ([], "p_limits must be an object"), (7, "p_limits must be an object"), ({"Queue_max": 1}, '"Queue_max"'),
    ({"queue_max": 0}, "queue_max"), ({"cards_max": -1}, "cards_max"), ({"depth_max": "deep"}, "deep"),
], ids=lambda value: ascii(value)[:30])  # fmt: skip
async def test_invalid_limit_is_rejected(kernel: Kernel, limits: Any, problem: str) -> None:
    with pytest.raises((asyncpg.DataError, asyncpg.CheckViolationError), match=problem):
        await kernel.call("set_limits", limits)
    assert {key: value for key, value in (await limit(kernel)).items() if key in DEFAULTS} == DEFAULTS


@pytest.mark.proves("S1", "S12")
async def test_limits_of_one_project_do_not_apply_to_another(kernel: Kernel, beside: Connect) -> None:
    other = await beside()
    other.project += " too"
    await limit(kernel, queue_max=1)
    assert (await limit(other))["queue_max"] == 1000


# ── Waits, running turns, delegations ─────────────────────────────────────────────────────────


@pytest.mark.proves("S11", "G-74")
async def test_queue_of_an_agent_is_limited(kernel: Kernel) -> None:
    await limit(kernel, queue_max=3)
    claimed = await kernel.running()
    outcomes = [(await kernel.enqueue("run_a", "writer", f"turn_{n}"))["outcome"] for n in range(3)]
    before = await kernel.everything()
    answer = await kernel.enqueue("run_a", "writer", "turn_3")
    assert (outcomes, answer["outcome"], answer["code"]) == (["queued"] * 3, "rejected", "queue_full")
    assert answer["message"] == (
        "agent writer has 3 turns waiting; at most 3 are allowed: try again when some have ended, "
        "or raise the limit with helio db limits queue_max=NUMBER"
    )
    assert (await kernel.enqueue("run_a", "writer", "turn_2"))["outcome"] == "duplicate"
    assert (await kernel.finish(claimed, version=4, wakes={"turn_4": "writer"}))["code"] == "queue_full"
    assert await kernel.everything() == before
    assert (await kernel.enqueue("run_a", "critic", "turn_3"))["outcome"] == "queued"


@pytest.mark.proves("G-74", "S12")
async def test_delegation_depth_is_limited(kernel: Kernel) -> None:
    await limit(kernel, depth_max=3)
    await kernel.running()
    parent = "turn_a"
    for depth in range(1, 4):
        answer = await kernel.enqueue("run_a", "critic", f"turn_{depth}", parent_turn_id=parent)
        assert answer["outcome"] == "queued"
        parent = f"turn_{depth}"
        assert (await kernel.turn(parent))["depth"] == depth
    answer = await kernel.enqueue("run_a", "critic", "turn_4", parent_turn_id=parent)
    assert (answer["outcome"], answer["code"]) == ("rejected", "recursion_depth_exceeded")


@pytest.mark.proves("G-74", "S12")
async def test_task_of_another_deployment_continues_the_depth_of_its_sender(kernel: Kernel) -> None:
    await limit(kernel, depth_max=3)
    before = await kernel.everything()
    answer = await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, depth=4)
    assert (answer["outcome"], answer["code"]) == ("rejected", "recursion_depth_exceeded")
    assert await kernel.everything() == before
    assert (await kernel.start("run_a", ["writer", "critic"], {"turn_a": "writer"}, depth=2))["outcome"] == "started"
    assert (await kernel.claim_one())["depth"] == 2
    child = await kernel.enqueue("run_a", "critic", "turn_b", parent_turn_id="turn_a")
    below = await kernel.enqueue("run_a", "critic", "turn_c", parent_turn_id="turn_b")
    assert (child["outcome"], below["code"]) == ("queued", "recursion_depth_exceeded")


@pytest.mark.proves("S12", "G-74")
async def test_exponential_delegation_ends(kernel: Kernel) -> None:
    await limit(kernel, depth_max=4, queue_max=1000)
    await kernel.running(turn_id="turn_0")
    alive, requested, refused = ["turn_0"], 1, 0
    while alive:
        parent = alive.pop(0)
        for _ in range(2):
            answer = await kernel.enqueue("run_a", "critic", f"turn_{requested}", parent_turn_id=parent)
            if answer["outcome"] == "queued":
                alive.append(f"turn_{requested}")
            else:
                assert answer["code"] == "recursion_depth_exceeded"
                refused += 1
            requested += 1
    assert (len(await kernel.rows("agent_turns")), refused) == (2**5 - 1, 2**5)


@pytest.mark.proves("S12")
async def test_running_turns_of_a_project_are_limited(kernel: Kernel) -> None:
    await limit(kernel, running_max=2)
    for name in "abc":
        await kernel.start(f"run_{name}", ["writer"], {f"turn_{name}": "writer"})
    first = await kernel.claim()
    assert [each["turn_id"] for each in first] == ["turn_a", "turn_b"]
    assert await kernel.claim() == []
    await kernel.finish(first[0], ends="success")
    assert [each["turn_id"] for each in await kernel.claim()] == ["turn_c"]


@pytest.mark.proves("S11", "S12")
async def test_waits_and_children_of_a_turn_are_limited(kernel: Kernel) -> None:
    await limit(kernel, waits_max=2, fan_out_max=1)
    claimed = await kernel.running()
    before = await kernel.everything()
    three = [command(f"c{n}") for n in range(3)]
    assert (await suspend(kernel, claimed, *three))["code"] == "too_many_waits"
    two = [child("c1", "critic", "turn_1"), child("c2", "critic", "turn_2", 1)]
    assert (await suspend(kernel, claimed, *two, signals=activated("critic", "critic")))["code"] == "fan_out"
    assert await kernel.everything() == before
    for call_id in ("c1", "c2"):
        assert (await begin(kernel, claimed, call_id))["outcome"] == "fresh"
    assert (await begin(kernel, claimed, "c3"))["code"] == "too_many_waits"
    assert (await suspend(kernel, claimed, command("c4")))["code"] == "too_many_waits"


@pytest.mark.proves("S11", "S12")
async def test_activations_of_one_call_are_limited(kernel: Kernel) -> None:
    await limit(kernel, fan_out_max=2)
    three = {"turn_1": "critic", "turn_2": "critic", "turn_3": "writer"}
    claimed = await kernel.running()
    version = (await kernel.run("run_a"))["version"]
    before = await kernel.everything()
    too_many = {
        "outcome": "rejected",
        "code": "fan_out",
        "message": "the request wakes 3 turns at once; at most 2 are allowed: emit fewer signals at once, "
        "or raise the limit with helio db limits fan_out_max=NUMBER",
        "targets": [],
    }
    assert await kernel.start("run_b", ["writer", "critic"], three) == too_many | {"run_id": "run_b"}
    assert await kernel.finish(claimed, wakes=three) == too_many | {"turn_id": "turn_a"}
    assert await kernel.everything() == before
    drafts, activations = woken(three)
    answer = await kernel.react("run_a", version, *drafts, activations=activations)
    assert (answer, (await kernel.run("run_a"))["rejections"]) == (too_many | {"run_id": "run_a"}, 1)
    del three["turn_3"]
    assert (await kernel.start("run_b", ["writer", "critic"], {"turn_b": "critic", "turn_c": "writer"}))[
        "outcome"
    ] == "started"
    assert (await kernel.finish(claimed, wakes=three))["outcome"] == "ok"


@pytest.mark.proves("G-71", "L0-64")
async def test_turn_beyond_its_deferral_limit_fails(kernel: Kernel) -> None:
    await limit(kernel, deferrals_max=1)
    assert (await defer(kernel, await kernel.running(), 0))["outcome"] == "deferred"
    assert (await defer(kernel, await kernel.claim_one(), 0))["outcome"] == "exhausted"
    card = await kernel.row("cards", "card_id", "card:turn_a:end")
    [name] = set(re.findall(r"helio db limits (\w+)=NUMBER", str(card["content"])))
    await limit(kernel, **{name: 2})  # a limit that exists


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.proves("S11")
async def test_payload_bytes_of_a_signal_are_limited_for_every_source(kernel: Kernel) -> None:
    await limit(kernel, payload_bytes_max=1000)
    claimed = await kernel.running()
    allowed, too_large = text(1000), text(1001)
    assert (await kernel.enqueue("run_a", "critic", "turn_1", payload=allowed))["outcome"] == "queued"
    assert (await kernel.append(claimed, draft("note", "sig_run_a_1", payload=allowed)))["outcome"] == "ok"
    before = await kernel.everything()
    answers = [
        await kernel.enqueue("run_a", "critic", "turn_2", payload=too_large),
        await kernel.append(claimed, draft("note", "sig_run_a_1", payload=too_large), signals_emitted=1),
        (await kernel.call("finish", [ending(claimed, version=2) | {"signals": [draft("x", 0, payload=too_large)]}]))[0],
        await suspend(kernel, claimed, command("c1"), signals=[draft("note", "sig_run_a_1", payload=too_large)], signals_emitted=1),
        (await kernel.call("start_runs", [{"run_id": "run_b", "target": "t", "request_hash": "", "agents": [], "reaction": {},
                                           "signals": [draft("note", "sig_run_a_1", payload=too_large)]}]))[0],
    ]  # fmt: skip
    assert [(each["outcome"], each["code"]) for each in answers] == [("rejected", "payload_too_large")] * 5
    assert all("1001 bytes; at most 1000 are allowed" in each["message"] for each in answers)
    assert await kernel.everything() == before


async def test_text_as_payload_counts_with_its_quotes_and_escapes(kernel: Kernel) -> None:
    """It is measured as JSON text, like every other value (decision 0037): a control character has six bytes."""
    await limit(kernel, payload_bytes_max=1000)
    claimed = await kernel.running()
    for n, (payload, outcome) in enumerate([("x" * 998, "ok"), ("x" * 999, "rejected"), ("\x01" * 166, "ok"),
                                            ("\x01" * 167, "rejected"), ("é" * 499, "ok"), ("é" * 500, "rejected")]):  # fmt: skip
        sent = await kernel.append(claimed, draft("note", "sig_run_a_1", payload=payload), signals_emitted=(n + 1) // 2)
        queued = await kernel.enqueue("run_a", "critic", f"turn_{n}", payload=payload)
        assert (sent["outcome"], queued["outcome"]) == (outcome, "queued" if outcome == "ok" else "rejected")


@pytest.mark.proves("S11")
async def test_runtime_signal_may_be_as_large_as_a_blob(kernel: Kernel) -> None:
    await limit(kernel, payload_bytes_max=1000, blob_bytes_max=3000)
    claimed = await kernel.running()
    change = draft("state:report:changed", "sig_run_a_1", payload=text(3000))
    assert (await kernel.append(claimed, change))["outcome"] == "ok"
    before = await kernel.everything()
    for name in ("state:report:changed", "agent:failed", "text:complete", "delegation"):
        answer = await kernel.append(claimed, draft(name, "sig_run_a_1", payload=text(3001)), signals_emitted=1)
        assert answer["code"] == "payload_too_large"
        assert f"the payload of {name} has 3001 bytes; at most 3000 are allowed" in answer["message"]
    assert await kernel.everything() == before


async def test_large_signals_have_names_reserved_for_the_runtime(kernel: Kernel) -> None:
    """The same names in SQL and in Python, and no name that only begins or ends like one of them."""
    own = {*RESERVED_NAMES, *(f"{first}:x" for first in RESERVED_FIRST_SEGMENTS), *RESERVED_FIRST_SEGMENTS}
    others = {"note", "user:message", "stateful:x", "my:state", "my:ready", "ready:x", "turn:forth"}
    query = "select array(select n from unnest($1::text[]) n where heliograph._payload_max(n, heliograph._limits('p')) > 65536)"
    assert set(await kernel.connection.fetchval(query, [*own, *others])) == own


@pytest.mark.proves("S11")
async def test_cards_of_a_turn_are_limited(kernel: Kernel) -> None:
    await limit(kernel, cards_max=3)
    claimed = await kernel.running()
    cards = [{"card_id": f"card_{n}", "kind": "note", "content": n} for n in range(5)]
    assert (await kernel.append(claimed, cards=cards[:3]))["outcome"] == "ok"
    assert (await kernel.turn("turn_a"))["card_count"] == 3
    answer = await kernel.append(claimed, cards=cards[3:4], phase="act")
    assert (answer["outcome"], answer["code"]) == ("rejected", "too_many_cards")
    assert len(await kernel.rows("cards")) == 3
    assert (await suspend(kernel, claimed, command("c1"), cards=cards[3:4]))["code"] == "too_many_cards"
    assert (await kernel.finish(claimed, ends="success"))["outcome"] == "ok"  # the deliverable is always one more


@pytest.mark.proves("S11")
async def test_large_content_is_stored_once_and_read_as_part_of_its_cards(kernel: Kernel) -> None:
    await limit(kernel, card_bytes_max=2000)
    claimed = await kernel.running()
    large = {"text": " ".join(f"word {n}" for n in range(500))}
    cards = [{"card_id": f"card_{n}", "kind": "note", "content": large} for n in range(2)]
    assert (await kernel.append(claimed, cards=cards))["outcome"] == "ok"
    claimed["run"]["version"] = (await kernel.run("run_a"))["version"]
    (answer,) = await kernel.call("finish", [ending(claimed, ends="success") | {"content": large}])
    assert answer["outcome"] == "ok"
    (blob,) = await kernel.rows("blobs")
    stored = await kernel.rows("cards", "position, content")
    assert [row["content"] for row in stored] == [{"$blob": blob["blob_id"], "bytes": blob["bytes"]}] * 3
    assert [row["content"] for row in await kernel.rows("card_overview", "position, content")] == [large] * 3
    assert [card["content"] for card in await kernel.call("read_box", "box_turn_a", 0, 10)] == [large] * 3


@pytest.mark.proves("S11")
async def test_content_beyond_the_blob_limit_is_rejected(kernel: Kernel) -> None:
    await limit(kernel, card_bytes_max=500, blob_bytes_max=2000)
    claimed = await kernel.running()
    large = {"text": " ".join(f"word {n}" for n in range(500))}
    card = {"card_id": "card_1", "kind": "note", "content": large}
    before = await kernel.everything()
    answers = [
        await kernel.append(claimed, cards=[card]),
        await suspend(kernel, claimed, command("c1"), cards=[card]),
        (await kernel.call("finish", [ending(claimed) | {"content": large}]))[0],
        (await kernel.call("put_boxes", [{"box_id": "context", "cards": [card]}]))[0],
    ]
    assert [(each["outcome"], each["code"]) for each in answers] == [("rejected", "payload_too_large")] * 4
    assert await kernel.everything() == before


@pytest.mark.proves("S11")
async def test_limits_in_bytes_count_the_json_text(kernel: Kernel) -> None:
    """A control character has one byte in jsonb and six in JSON text; a number of few bytes may have many digits."""
    await limit(kernel, payload_bytes_max=1000, card_bytes_max=1000)
    claimed = await kernel.running()
    exact = {"t": "\x01" * 165}  # and nine bytes around it
    for payload in ({"t": "\x01" * 166}, {"n": [1e300] * 4}):
        answer = await kernel.append(claimed, draft("note", "sig_run_a_1", payload=payload))
        assert (answer["outcome"], answer["code"]) == ("rejected", "payload_too_large")
    cards = [{"card_id": f"card_{n}", "kind": "note", "content": {"t": "\x01" * n}} for n in (165, 166)]
    assert (await kernel.append(claimed, draft("note", "sig_run_a_1", payload=exact), cards=cards))["outcome"] == "ok"
    assert (await suspend(kernel, claimed, command("c1"), command("c2"), signals_emitted=1))["outcome"] == "suspended"
    for call_id, size in (("c1", 165), ("c2", 166)):
        assert await reported(kernel, "turn_a", call_id, {"t": "\x01" * size}, token=TOKEN) == "applied"
    stored = [row["content"] for row in await kernel.rows("cards", "card_id, content")]
    assert ["$blob" in content for content in stored] == [False, True, False, True]
    entries = [entry for row in await kernel.rows("signals", "seq, entries") for entry in row["entries"]]
    results = [entry["payload"] for entry in entries if entry["name"] == "tool:result"]
    assert ["output" in payload for payload in results] == [True, False]


@pytest.mark.proves("S11")
async def test_result_bytes_are_limited(kernel: Kernel) -> None:
    await limit(kernel, result_bytes_max=5000)
    await suspended(kernel, command("c1"), command("c2"))
    (answer,) = await kernel.call("report", [{"turn_id": "turn_a", "call_id": "c1", "status": "success", "token": TOKEN,
                                              "result": text(5001)}])  # fmt: skip
    assert (answer["outcome"], answer["code"]) == ("invalid", "payload_too_large")
    assert await reported(kernel, "turn_a", "c1", text(5000), token=TOKEN) == "applied"
    assert await reported(kernel, "turn_a", "c2", token=TOKEN) == "applied"
    claimed = await kernel.claim_one()
    await begin(kernel, claimed, "c3")
    assert (await record(kernel, claimed, "c3", text(5001)))["code"] == "payload_too_large"
    assert (await record(kernel, claimed, "c3", text(5000)))["outcome"] == "ok"


@pytest.mark.proves("S11")
@pytest.mark.parametrize("size", [200, 201])
async def test_id_has_at_most_200_bytes(kernel: Kernel, size: int) -> None:
    await kernel.running()
    requested = kernel.call("enqueue", [message("run_a", "critic", "t" * size)])
    if size == 200:
        assert (await requested)[0]["outcome"] == "queued"
    else:
        with pytest.raises(asyncpg.InvalidParameterValueError, match="a turn id must have 1 to 200 bytes"):
            await requested
