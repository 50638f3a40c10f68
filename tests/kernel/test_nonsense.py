"""Invalid input: rejected with an outcome or an error of the database, and never half applied."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
from heliograph.ledger.kernel import KERNEL
from tests.kernel.filled import fill
from tests.kernel.kit import (
    TARGET,
    Encoded,
    Item,
    Kernel,
    activation,
    as_id,
    draft,
    ending,
    message,
    run_item,
    turn_item,
)

HOSTILE_TEXTS = [
    "'; drop schema heliograph; --", "%s %(x)s %%", "$1", "{}", '{"a": 1}', '"', "\\", "\\x00", "a\nb", "..\\..\\etc", " ",
    "ünïcode ✅ \U0001f600", "*", "a::b", "null", "0", "sig_run_a_1", "i" * 150,
]  # fmt: skip


# functions that take only items
ITEMS = [
    "start_runs", "enqueue", "append", "finish", "react", "release", "begin_call", "record_call", "suspend", "defer", "report",
    "stop", "stop_runs", "put_boxes", "fork_boxes", "replace_boxes",
]  # fmt: skip


@pytest.mark.proves("S3")
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: text[:12])
async def test_any_text_of_an_id_or_value_is_data(kernel: Kernel, text: str) -> None:
    named = as_id(text)
    run, turn, project = f"run_{named}", f"turn_{named}", f"{kernel.project} {text}"
    kernel.project = project
    await kernel.call("declare_wire", "postgres")
    item = run_item(run, [text, "critic"], {turn: text}) | {"target": text, "request_hash": text}
    assert (await kernel.call("start_runs", [item]))[0]["targets"] == [text]
    (claimed,) = await kernel.call("claim", [{"target": text}], text, 1, 30.0)
    assert (claimed["run_id"], claimed["agent"], claimed["turn_id"], claimed["target"]) == (run, text, turn, text)
    card = {"card_id": named, "kind": text, "content": {text: [text]}}
    hostile = draft(text, claimed["activation_id"], payload={text: text}, agent=text, is_pending=True)
    assert (await kernel.append(claimed, hostile, cards=[card]))["outcome"] == "ok"
    assert (await kernel.enqueue(run, "critic", f"more {named}", payload=text, actor=text))["outcome"] == "queued"
    assert (await kernel.finish(claimed, version=3, state={text: text}))["outcome"] == "ok"
    (pending,) = await kernel.call("sweep_pending_reactions", [text], 10)
    assert (pending["run"]["state"], pending["signals"][0]["payload"]) == ({text: text}, {text: text})
    (event,) = await kernel.call("read_outbox", 10)
    assert event["body"]["agent_turn_id"] == turn
    assert await kernel.call("sweep_bells", 0.0) == [text]
    (critic,) = await kernel.call("claim", [{"target": text}], text, 1, 30.0)
    call = {"call_id": named, "step_id": text, "tool": text, "kind": "tool", "token": text,
            "command": {"subject": text, "body": {text: text}}}  # fmt: skip
    assert (await kernel.call("suspend", [turn_item(critic, calls=[call])]))[0]["outcome"] == "suspended"
    (taken,) = await kernel.call("take_commands", [text], 10, 1.0)
    assert (taken["call_id"], taken["body"] | {text: text, "token": text}) == (named, taken["body"])
    report = {
        "turn_id": critic["turn_id"],
        "call_id": named,
        "token": text,
        "status": "success",
        "result": {text: text},
    }
    assert (await kernel.call("report", [report | {"actor": text}]))[0]["outcome"] == "applied"
    cards = [{"card_id": f"c {named}", "kind": text, "content": {text: text}}]
    assert (await kernel.call("put_boxes", [{"box_id": named, "cards": cards}]))[0]["outcome"] == "put"
    fork = {"box_id": f"f {named}", "base_box_id": named}
    assert (await kernel.call("fork_boxes", [fork]))[0]["outcome"] == "forked"
    assert [card["content"] for card in await kernel.call("read_box", f"f {named}", 0, 1)] == [{text: text}]
    assert (await kernel.stop(critic["turn_id"], reason=text, actor=text))["outcome"] == "stopped"
    (halt,) = await kernel.rows("signal_log", "*", "name = 'halt'")
    assert halt["payload"]["reason"] == text
    stored = await kernel.rows("card_overview", "position, card_id, kind, content", "kind = $2", text)
    assert [tuple(row)[1:] for row in stored] == [(named, text, {text: [text]})]


@pytest.mark.proves("S3")
async def test_hostile_values_do_not_damage_the_schema(kernel: Kernel) -> None:
    await fill(kernel)
    assert await kernel.connection.fetchval("select count(*) from pg_namespace where nspname = 'heliograph'") == 1


def holder(claimed: Item, **wrong: Any) -> Item:
    return turn_item(claimed, draft("note", "sig_run_a_1")) | wrong


@pytest.mark.parametrize("epoch", [2**63, -(2**63) - 1, 1e300])
@pytest.mark.parametrize("function", ["append", "finish", "renew"])
async def test_epoch_out_of_range_is_rejected(kernel: Kernel, function: str, epoch: float) -> None:
    claimed = await kernel.running() | {"epoch": epoch}
    before = await kernel.everything()
    item = {"finish": ending, "append": holder, "renew": turn_item}[function](claimed)
    with pytest.raises((asyncpg.DataError, KernelRejected)):
        await kernel.call(function, [item], *([30.0] * (function == "renew")))
    assert await kernel.everything() == before


@pytest.mark.parametrize("field", ["agent_id", "turn_id", "epoch"])
@pytest.mark.parametrize("function", ["append", "finish", "renew"])
async def test_item_without_an_owner_is_stale(kernel: Kernel, function: str, field: str) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    whole = ending(claimed) if function == "finish" else turn_item(claimed) if function == "renew" else holder(claimed)
    missing = {key: value for key, value in whole.items() if key != field}
    for item in (whole | {field: None}, missing):
        (answer,) = await kernel.call(function, [item], *([30.0] * (function == "renew")))
        assert answer["outcome"] == "stale"
    assert await kernel.everything() == before


@pytest.mark.parametrize("items", [None, {}, "text", 7], ids=str)
@pytest.mark.parametrize("function", [*ITEMS, "renew"])
async def test_value_that_is_no_array_of_items_is_rejected_or_returns_nothing(
    kernel: Kernel, function: str, items: Any
) -> None:
    await kernel.running()
    before = await kernel.everything()
    with suppress(asyncpg.InvalidParameterValueError, KernelRejected):
        assert await kernel.call(function, items, *([30.0] * (function == "renew"))) == []
    assert await kernel.everything() == before


@pytest.mark.parametrize("function", ITEMS)
async def test_call_without_items_does_nothing(kernel: Kernel, function: str) -> None:
    assert await kernel.call(function, []) == []


@pytest.mark.parametrize("item", [{}, None, "text", 7, []], ids=str)
async def test_empty_item_changes_nothing(kernel: Kernel, item: Any) -> None:
    await kernel.running()
    before = await kernel.everything()
    assert (await kernel.call("enqueue", [item]))[0]["outcome"] == "unknown_agent"
    if item == {}:
        assert (await kernel.call("react", [item]))[0]["outcome"] == "conflict"
        for function, *more in (("renew", 30.0), ("append",), ("finish",)):
            assert (await kernel.call(function, [item], *more))[0]["outcome"] == "stale"
        with pytest.raises(asyncpg.InvalidParameterValueError, match="a run id"):
            await kernel.call("start_runs", [item])
    else:
        for function, *more in (("renew", 30.0), ("append",), ("finish",), ("react",), ("report",), ("start_runs",)):
            with pytest.raises(KernelRejected, match="a list of objects"):
                await kernel.call(function, [item], *more)
    assert await kernel.everything() == before


@pytest.mark.parametrize("function", ["start_runs", "enqueue"])
@pytest.mark.parametrize("where", ["payload", "id"])
async def test_text_with_nul_is_rejected(kernel: Kernel, function: str, where: str) -> None:
    await kernel.running()
    before = await kernel.everything()
    text = "a\x00b"
    item = (
        message("run_a", "critic", "turn_1")
        if function == "enqueue"
        else run_item("run_b", ["writer"], {"turn_b": "writer"})
    )
    if where == "id":
        item["run_id"] = text
    elif function == "enqueue":
        item["payload"] = {"a": text}
    else:
        item["signals"][0]["payload"] = {"a": text}
    # in JSON the character is escaped, and PostgreSQL reads it later than in a text
    with pytest.raises((asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError)):
        await kernel.call(function, [item])
    assert await kernel.everything() == before
    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await kernel.call("doctor", False, project=text)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, -1, None])
async def test_sweep_of_bells_with_impossible_numbers_is_rejected(kernel: Kernel, seconds: float | None) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    with pytest.raises(asyncpg.InvalidParameterValueError, match="seconds must be between 0 and 31622400"):
        await kernel.call("sweep_bells", seconds)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="limit must be 0 or more"):
        await kernel.pending(limit=-1)


@pytest.mark.parametrize("kind", ["leases", "expired", "queued", "waits", "reports", "stops"])
async def test_sweep_rejects_a_negative_limit_and_takes_all_without_a_limit(kernel: Kernel, kind: str) -> None:
    await kernel.running(ttl_seconds=30)
    kernel.wait(30)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="limit must be 0 or more, not -1"):
        await kernel.sweep(kind, -1)
    answer = await kernel.sweep(kind, None)
    assert [*answer.get("recovered", []), *answer.get("ended", [])] == ["turn_a"] * (kind in ("leases", "expired"))


@pytest.mark.parametrize(
    "at",
    [
        "not a time",
        "300000-01-01",
        "2030-13-01",
        "",
        "infinity",
        "now",
        "4713-01-01 BC",
        "12000-01-01",
        1e300,
        -1e17,
        3e17,
    ],
)
async def test_draft_without_a_time_has_the_time_of_its_commit(kernel: Kernel, at: str | float) -> None:
    claimed = await kernel.running()
    kernel.wait(1)
    assert (await kernel.append(claimed, draft("note", claimed["activation_id"], at=at)))["outcome"] == "ok"
    *_, note = await kernel.rows("signal_log", "seq, timestamp")
    assert note["timestamp"] == kernel.now


async def test_time_that_is_too_small_for_a_double_stops_no_reader(kernel: Kernel) -> None:
    claimed = await kernel.running()
    item = ending(claimed, ends="success")
    item["signals"][0]["at"] = "AT"
    given = KERNEL["finish"].values(
        [kernel.project, [item]], lambda value: Encoded(json.dumps(value).replace('"AT"', "1e-400"))
    )
    (answer,) = await kernel.connection.fetch(KERNEL["finish"].statement("$12"), *given, kernel.now)
    assert answer["outcome"] == "ok"
    *_, completed, _ = await kernel.rows("signal_log", "seq, timestamp")
    assert completed["timestamp"].isoformat() == "1970-01-01T00:00:00+00:00"


@pytest.mark.proves("S11")
async def test_id_too_long_for_an_index_is_rejected_with_a_message_and_writes_nothing(kernel: Kernel) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError, match="a run id must have 1 to 200"):
        await kernel.start("r" * 201, ["writer"], {"turn_1": "writer"})
    await kernel.running()
    with pytest.raises(asyncpg.InvalidParameterValueError, match="a turn id must have 1 to 200 bytes"):
        await kernel.enqueue("run_a", "critic", "t" * 201)
    assert (await kernel.enqueue("run_a", "critic", "t" * 200))["outcome"] == "queued"
    assert len(await kernel.rows("agent_turns")) == 2


async def test_state_of_megabytes_passes_the_kernel_unchanged(kernel: Kernel) -> None:
    claimed = await kernel.running()
    large = {"text": "x" * 4_000_000}
    assert (await kernel.finish(claimed, wakes={"turn_c": "critic"}, state=large))["outcome"] == "ok"
    assert (await kernel.claim_one())["run"]["state"] == large


async def test_cause_outside_the_log_wakes_no_agent(kernel: Kernel) -> None:
    claimed = await kernel.running()
    before = await kernel.everything()
    for cause in (None, "sig_run_a_1", 1e300):
        item = ending(claimed)
        item["signals"].append(draft("agent:activated", 0))
        item["reaction"]["activations"] = [activation("critic", "turn_c", 1, cause=cause)]
        with pytest.raises((asyncpg.DataError, asyncpg.NotNullViolationError)):
            await kernel.call("finish", [item])
    assert await kernel.everything() == before


async def test_missing_time_changes_nothing(kernel: Kernel) -> None:
    await kernel.running()
    before = await kernel.everything()
    assert await kernel.connection.fetchval("select heliograph.sweep_leases($1, 10, null)", kernel.project) == {
        "recovered": [], "ended": [], "failed": [], "targets": [],
    }  # fmt: skip
    await kernel.connection.fetchval("select heliograph.sweep_expired($1, 10, null)", kernel.project)
    with pytest.raises(asyncpg.NotNullViolationError):
        await kernel.connection.fetchval(
            "select heliograph.enqueue($1, $2, null)", kernel.project, [message("run_a", "critic", "turn_1")]
        )
    assert await kernel.everything() == before


async def test_claim_without_valid_targets_returns_no_turn(kernel: Kernel) -> None:
    await kernel.start("run_a", ["writer"], {"turn_a": "writer"})
    unfit: list[list[Item]] = [[], [{}], [{"target": None}], [{"target": TARGET, "agents": None}]]
    for targets in unfit:
        assert await kernel.call("claim", targets, "worker-1", 1, 30.0) == []
