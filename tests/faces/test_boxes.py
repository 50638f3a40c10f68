"""Boxes from outside: `Client.boxes` and `helio box show`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph import Client, Context, Heliograph, Runtime
from heliograph.config import Settings
from heliograph.errors import Conflict, InvalidInput, NotFound, Rejected
from heliograph.ledger.rows import TurnRow
from heliograph.runtime import open_runtime
from tests.faces.cli_support import open_shell

NOTE = {"kind": "note", "content": {"text": "hello"}}


@pytest.fixture
def environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HELIOGRAPH_DATABASE_URL", database_url)
    monkeypatch.delenv("HELIOGRAPH_PROJECT", raising=False)
    return database_url


@pytest.mark.proves("L0-95", "L0-98", "L0-91")
async def test_boxes_are_built_forked_and_read_from_outside(environment: str) -> None:
    async with Client() as client:
        box = await client.boxes.put([NOTE, {"id": "card_2", "kind": "note", "content": [1, None]}])
        assert await client.boxes.put([NOTE], box_id="mine") == await client.boxes.put([NOTE], box_id="mine") == "mine"
        fork = await client.boxes.fork(box, box_id="fork")
        assert await client.boxes.fork(box, box_id="fork") == fork
        mine, forked = await client.boxes.read(box), await client.boxes.read(fork)
        assert mine == forked
        assert [(card.kind, card.content, card.turn_id) for card in mine] == [
            ("note", {"text": "hello"}, None), ("note", [1, None], None),
        ]  # fmt: skip
        assert mine[1].card_id == "card_2"


@asynccontextmanager
async def idle_turn(url: str) -> AsyncIterator[tuple[Runtime, TurnRow]]:
    """A turn that no worker has claimed."""
    app = Heliograph("idle")

    @app.agent(activate_on=["workflow:start"])
    def only(ctx: Context) -> None:
        return None

    async with open_runtime(Settings(database_url=url)) as runtime:
        await runtime.start(app.workflow, {})
        [turn] = await runtime.reader.turns()
        yield runtime, turn


async def test_generated_box_id_has_its_kind(environment: str) -> None:
    async with idle_turn(environment) as (runtime, turn):
        boxes = Client.on(runtime).boxes
        context = await boxes.put([NOTE])
        assert context.startswith("context_")
        assert (await boxes.fork(context)).startswith("context_")
        assert (await boxes.fork(context, writer_turn_id=turn.turn_id)).startswith("output_")


async def rejection(work: Any) -> tuple[type[Exception], str]:
    with pytest.raises((InvalidInput, NotFound, Rejected)) as caught:
        await work
    return type(caught.value), caught.value.code


@pytest.mark.more
async def test_impossible_box_request_is_rejected_and_changes_nothing(environment: str) -> None:
    async with idle_turn(environment) as (runtime, turn):
        boxes = Client.on(runtime).boxes
        await boxes.put([NOTE], box_id="mine")
        await boxes.put([{**NOTE, "id": "taken"}], box_id="first")
        assert [await rejection(work) for work in (
            boxes.put([], box_id="mine"),
            boxes.put([{**NOTE, "id": "taken"}], box_id="second"),
            boxes.put([{"kind": "note", "content": "x" * 17_000_000}]),
            boxes.put([{"kind": "task.deliverable", "content": 1}]),
            boxes.put([{"kind": "note"}]),
            boxes.put("cards"),  # type: ignore[arg-type]
            boxes.put([NOTE], box_id="box_turn_a"),
            boxes.put([NOTE], box_id="a/b"),
            boxes.put([{"kind": "note", "content": float("nan")}]),
            boxes.fork("nobody"),
            boxes.fork("mine", box_id="first"),
            boxes.fork("mine", writer_turn_id="nobody"),
            boxes.read("nobody"),
            boxes.read("box_nobody"),
            boxes.replace(turn.turn_id),
            boxes.replace("nobody", context_box_id="mine"),
            boxes.replace(turn.turn_id, context_box_id="mine"),
        )] == [
            (Conflict, "id_conflict"), (Rejected, "card_exists"), (InvalidInput, "payload_too_large"),
            (InvalidInput, "invalid_card"), (InvalidInput, "invalid_card"), (InvalidInput, "wrong_type"),
            (InvalidInput, "invalid_id"), (InvalidInput, "invalid_id"), (InvalidInput, "json_non_finite"),
            (NotFound, "unknown_box"), (Conflict, "id_conflict"), (NotFound, "unknown_turn"),
            (NotFound, "unknown_box"), (NotFound, "unknown_box"), (InvalidInput, "required_field"),
            (NotFound, "unknown_turn"), (Rejected, "not_running"),
        ]  # fmt: skip
        assert await boxes.read(f"box_{turn.turn_id}") == []
        assert await runtime.world.call("doctor", "default", False) == []


@pytest.mark.proves("S1")
async def test_box_of_another_project_is_not_found(environment: str) -> None:
    async with Client() as client, Client(project="another") as foreigner:
        await client.boxes.put([NOTE], box_id="mine")
        assert await rejection(foreigner.boxes.read("mine")) == (NotFound, "unknown_box")
        assert await rejection(foreigner.boxes.fork("mine")) == (NotFound, "unknown_box")


@pytest.mark.more
async def test_helio_prints_a_box_card_by_card_with_escaped_content(environment: str, tmp_path: Path) -> None:
    async with Client() as client:
        await client.boxes.put([NOTE, {"kind": "note", "content": {"text": "a\x1b[31m"}}], box_id="mine")
        await client.boxes.fork("mine", box_id="fork")
    shell = open_shell(tmp_path, environment)
    done = await asyncio.to_thread(shell.helio, "box", "show", "fork")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line]
    assert (lines[:3], lines[4]) == (["box fork", "kind context", "fork of mine"], "cards 2")
    assert lines[-4:] == [f"{lines[-4].split()[0]} note", "hello", f"{lines[-2].split()[0]} note", "a\\x1b[31m"]
    printed = json.loads((await asyncio.to_thread(shell.helio, "box", "show", "mine", "--json")).stdout)
    assert (printed["box_id"], printed["base_box_id"], [card["kind"] for card in printed["cards"]]) == (
        "mine",
        None,
        ["note"] * 2,
    )
    missing = await asyncio.to_thread(shell.helio, "box", "show", "nobody")
    assert (missing.returncode, missing.stderr.partition(";")[0]) == (3, "error: no box nobody in project default")
