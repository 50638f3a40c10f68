"""A stored value that no client can decode costs one turn: no process, no other run, no sweep and no event (S22)."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import product
from typing import Any

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from heliograph import Client, Context, Heliograph
from heliograph.codes import UNDECODABLE
from heliograph.config import Settings
from heliograph.errors import KernelRejected
from heliograph.execution.ownership import owner_fields
from heliograph.ledger.reader import Reader
from tests.grids import mostly_more
from tests.reach.hook_server import hooked
from tests.runtime import poison
from tests.runtime.kit import START, Rig, until
from tests.runtime.test_callbacks import SECRETS, verified_body
from tests.runtime.warm_pool import WarmPool

_projects = itertools.count(1)
# The columns that a turn needs to run. An undecodable value of any other column affects only itself.
NEEDED = {("runs", "state"), ("runs", "memory"), ("agent_turns", "result_fields"), ("cards", "content"),
          ("blobs", "content"), ("signals", "entries")}  # fmt: skip
LARGE = "x" * 300_000  # a blob
_FORMS = list(product(poison.POISONS, poison.WHERE))
# `make test` has one form of each column, and each form at least once
GRID = mostly_more(
    [(column, name, where) for column in poison.COLUMNS for name, where in _FORMS],
    {len(_FORMS) * n + n % len(_FORMS) for n in range(len(poison.COLUMNS))},
)


def application() -> Heliograph:
    app = Heliograph("poisoned")

    @app.agent(activate_on=START, updates="seen", budget={"tool_calls": 10, "tokens": 100}, max_attempts=3)
    async def asker(ctx: Context) -> str:
        await ctx.step("large", lambda: ctx.run_id + LARGE)
        await ctx.remember("a memory", of=ctx.run_id)
        await ctx.recall("memory")
        return str(await ctx.call("oracle", {"question": 1}, circuit_breaker={"failure_threshold": 2}))

    return app


@pytest_asyncio.fixture
async def rig(shared_url: str, warm_pool: WarmPool) -> AsyncIterator[Rig]:
    """An open runtime on a project whose rows need not be sound in the end."""
    settings = Settings(database_url=shared_url, project=f"poisoned-{os.getpid()}-{next(_projects)}")
    async with warm_pool.open_runtime(settings) as runtime:
        yield Rig(runtime, shared_url)


@pytest.mark.proves("S22")
@pytest.mark.parametrize(
    ("column", "name", "where"), GRID, ids=lambda value: value if isinstance(value, str) else ".".join(value)
)
async def test_undecodable_value_affects_at_most_its_own_run(
    rig: Rig, column: tuple[str, str], name: str, where: str
) -> None:
    app = application()
    spoiled, whole = [await rig.start(app, {"n": n}) for n in range(2)]
    async with rig.serving(app):
        commands = await rig.taken("oracle", count=2)
    connection = await asyncpg.connect(rig.url)
    try:
        await _prepare(connection, column, spoiled)
        assert await poison.put(connection, column, spoiled, poison.POISONS[name], where) > 0
    finally:
        await connection.close()
    async with rig.serving(app) as worker:
        for command in commands:
            await command.report(result=1)
        assert (await rig.runtime.reader.run(whole)).status in ("running", "ended")
        async with asyncio.timeout(30):
            for run_id in (whole, spoiled):
                await until(lambda run_id=run_id: _has_ended(rig, run_id))
        await until(rig.is_published)
        assert not worker.is_stopping
    assert (await rig.runtime.reader.run(whole)).outcome == "success"
    await _read_everything(rig.runtime.reader, spoiled)
    found = await rig.runtime.world.call("doctor", rig.runtime.settings.project, False)
    assert [
        each for each in found if "reserved" not in each["check"]
    ] == []  # the early report of a call cannot be read
    [turn] = await rig.runtime.reader.turns(run_id=spoiled)
    [end] = [card for card in await rig.runtime.reader.cards(turn.turn_id) if card.kind == "task.deliverable"]
    if column in NEEDED:
        assert (turn.status, turn.outcome, turn.attempts, end.content["error"]["code"]) == (
            "done",
            "failed",
            0,
            UNDECODABLE,
        )
        assert turn.turn_id in end.content["error"]["message"]
    else:
        assert (turn.status, turn.outcome) == ("done", "success")


async def test_matrix_has_every_column_that_contains_json(rig: Rig) -> None:
    connection = await asyncpg.connect(rig.url)
    try:
        assert (
            await poison.columns(connection)
            == poison.COLUMNS.keys() | poison.OF_WORKERS | poison.OF_FORKS | poison.CONSTRAINED
        )
    finally:
        await connection.close()


@pytest.mark.proves("S22")
@pytest.mark.parametrize("taker", ["a tool", "a relay"])
@pytest.mark.parametrize("value", [poison.HUGE, '["no object"]'], ids=["huge", "no object"])
async def test_undecodable_command_fails_its_turn_at_once_and_the_others_are_taken(
    rig: Rig, taker: str, value: str
) -> None:
    app = application()
    spoiled, whole = [await rig.start(app, {"n": n}) for n in range(2)]
    async with rig.serving(app):
        await until(lambda: _has_commands(rig, 2))
    await rig.fetch(
        "update heliograph.outbox set body = body || jsonb_build_object('arguments', $2::text::jsonb, 'subject', 'cmd.x')"
        " where kind = 'cmd' and agent_turn_id in (select agent_turn_id from heliograph.agent_turns where run_id = $1)",
        spoiled, value,
    )  # fmt: skip
    if taker == "a tool":
        [command] = await rig.client.take_commands(["oracle"], 10)
        assert (await rig.runtime.reader.turn(command.turn_id)).run_id == whole
    else:
        await rig.runtime.ledger.declare_wire("nats")
        assert {event.body.get("run_id") for event in await rig.runtime.ledger.read_outbox()} == {whole}
    async with rig.serving(app):
        await until(lambda: _has_ended(rig, spoiled))
        assert (await rig.runtime.reader.run(whole)).status == "running"
    [turn] = await rig.runtime.reader.turns(run_id=spoiled)
    [end] = [card for card in await rig.runtime.reader.cards(turn.turn_id) if card.kind == "task.deliverable"]
    assert (turn.outcome, end.content["error"]["code"]) == ("failed", UNDECODABLE)
    assert "its command cannot be decoded: body/arguments" in end.content["error"]["message"]


@pytest.mark.proves("S22")
async def test_undecodable_event_is_published_with_a_mark(rig: Rig) -> None:
    app = Heliograph("quick")

    @app.agent(activate_on=START)
    async def speaker(ctx: Context) -> str:
        return "done"

    await rig.runtime.ledger.declare_wire("postgres")
    spoiled, whole = [await rig.start(app) for _ in range(2)]
    for claimed in await rig.runtime.ledger.claim([{"target": app.name}], "somebody", 10, 10.0):
        await rig.runtime.ledger.fail_turn(msgspec.structs.asdict(claimed), UNDECODABLE, "it was told so")
    await _poison(rig, ("outbox", "body"), spoiled, f'{{"x": {poison.HUGE}}}', "instead")
    first, second = await rig.runtime.ledger.read_outbox()
    assert "cannot be decoded: body/x is a number" in first.body["undecodable"]
    assert second.body["status"] == "failed"
    async with rig.serving(app):
        await until(rig.is_published)
    assert (await rig.runtime.reader.run(whole)).run_id == whole


@pytest.mark.proves("S22")
@pytest.mark.parametrize("column", [("runs", "memory"), ("signals", "entries")], ids=".".join)
async def test_incomputable_reaction_ends_its_own_run(rig: Rig, column: tuple[str, str]) -> None:
    app = application()
    spoiled, whole = [await rig.start(app, {"n": n}) for n in range(2)]
    for claimed in await rig.runtime.ledger.claim([{"target": app.name}], "somebody", 10, 10.0):
        if claimed.run_id == spoiled:
            await rig.runtime.ledger.fail_turn(msgspec.structs.asdict(claimed), UNDECODABLE, "it was told so")
        else:
            await rig.runtime.ledger.release([owner_fields(claimed)])
    await _poison(rig, column, spoiled, poison.DEEP, "instead")
    async with rig.serving(app):
        assert (await rig.taken("oracle"))[0].arguments == {"question": 1}
        await until(lambda: _has_ended(rig, spoiled))
    assert (await rig.runtime.reader.run(spoiled)).outcome == "failed"
    assert (await rig.runtime.reader.run(whole)).status == "running"


@pytest.mark.proves("S22")
async def test_rejected_claim_does_not_end_its_worker(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    claim, rejections = rig.runtime.ledger.claim, [KernelRejected("an answer of over 256 MB (54000)")]

    async def rejected(*args: Any) -> Any:
        if rejections:
            raise rejections.pop()
        return await claim(*args)

    monkeypatch.setattr(rig.runtime.ledger, "claim", rejected)
    app = application()
    async with rig.serving(app):
        await rig.start(app, {"n": 1})
        assert len(await rig.taken("oracle")) == 1
    assert rejections == []


@pytest.mark.proves("S22")
@pytest.mark.parametrize("value", poison.POISONS.values(), ids=poison.POISONS)
async def test_callback_with_undecodable_content_is_sent_without_it(rig: Rig, value: str) -> None:
    app = Heliograph("calls-back")

    @app.agent(activate_on=START, updates="seen")
    async def parent(ctx: Context) -> str:
        return "done"

    async with hooked() as hook:
        rig.runtime.settings = replace(rig.runtime.settings, webhook_secrets=SECRETS, egress_allow=hook.origin)
        runs = [await rig.runtime.start(app.workflow, {"n": n}, callback_url=f"{hook.url}?{n}") for n in range(2)]
        spoiled, whole = [run_id for run_id, _ in runs]
        settings_before = rig.runtime.settings
        rig.runtime.settings = replace(settings_before, webhook_secrets=())  # a worker that sends none
        async with rig.serving(app):
            await rig.ended(spoiled)
            await rig.ended(whole)
        await _poison(rig, ("runs", "state"), spoiled, value, "instead")
        rig.runtime.settings = settings_before
        async with rig.serving(app):
            await hook.until(lambda: len(hook.requests) == 2)
        sent = {body["run_id"]: body for body in (verified_body(hook, place) for place in range(2))}
    assert sent[whole]["state"]["seen"] == "done"
    assert sent[spoiled]["left_out"] == ["state"]
    assert "state" not in sent[spoiled]
    assert sent[spoiled]["outcome"] == "success"


@pytest.mark.proves("S22")
@pytest.mark.parametrize("value", [poison.HUGE, poison.DEEP], ids=["huge", "deep"])
async def test_agent_that_reads_an_undecodable_card_fails_with_its_code(rig: Rig, value: str) -> None:
    app = Heliograph("library")

    @app.agent(activate_on=START)
    async def keeper(ctx: Context) -> None:
        await ctx.call("wait", needs_token=False)

    @app.agent(on_request=True, max_attempts=3)
    async def reader(ctx: Context) -> int:
        return len(await ctx.context())

    run_id = await rig.start(app)
    boxes = [await rig.client.boxes.put([{"kind": "note", "content": {"n": n}}]) for n in range(2)]
    async with rig.serving(app):
        await rig.taken("wait")
    turns = [await rig.client.enqueue(run_id, "reader", "read", context_box_id=box) for box in boxes]
    await rig.fetch("update heliograph.cards set content = $2::text::jsonb where box_id = $1", boxes[0], value)
    async with rig.serving(app):
        for turn_id in turns:
            await until(lambda turn_id=turn_id: _is_done(rig, turn_id))
    spoiled, whole = [await rig.runtime.reader.turn(turn_id) for turn_id in turns]
    assert (spoiled.outcome, spoiled.attempts, whole.outcome) == ("failed", 0, "success")
    [end] = [card for card in await rig.runtime.reader.cards(spoiled.turn_id) if card.kind == "task.deliverable"]
    assert end.content["error"]["code"] == UNDECODABLE
    assert boxes[0] in end.content["error"]["message"]


async def _is_done(rig: Rig, turn_id: str) -> bool:
    return (await rig.runtime.reader.turn(turn_id)).status == "done"


async def _poison(rig: Rig, column: tuple[str, str], run_id: str, value: str, where: str = "inside") -> None:
    connection = await asyncpg.connect(rig.url)
    try:
        assert await poison.put(connection, column, run_id, value, where) > 0
    finally:
        await connection.close()


async def _has_commands(rig: Rig, count: int) -> bool:
    return len(await rig.runtime.reader.open_calls("oracle")) == count


async def _prepare(connection: Any, column: tuple[str, str], run_id: str) -> None:
    if column == ("agent_inbox", "payload"):  # of a report that came before its call
        await connection.execute(
            'update heliograph.agent_inbox set payload = \'{"status": "success", "result": 1}\', correlation_id = \'c9\''
            " where agent_turn_id in (select agent_turn_id from heliograph.agent_turns where run_id = $1)",
            run_id,
        )
    if column == ("turn_waiting_tools", "reserved"):
        await connection.execute(
            "with held as (update heliograph.turn_waiting_tools set reserved = '{\"tokens\": 5}' where kind = 'tool' and"
            "   agent_turn_id in (select agent_turn_id from heliograph.agent_turns where run_id = $1) returning agent_turn_id)"
            " update heliograph.budgets set reserved = 5 where kind = 'tokens' and turn_id in (select * from held)",
            run_id,
        )


async def _has_ended(rig: Rig, run_id: str) -> bool:
    return (await rig.runtime.reader.run(run_id)).status == "ended"


async def _read_everything(reader: Reader, run_id: str) -> None:
    await reader.runs(100)
    await reader.run(run_id)
    await reader.all_signals(run_id)
    for turn in await reader.turns(run_id=run_id):
        await reader.cards(turn.turn_id)
        waits = await reader.waits(turn.turn_id)
        for kind in ("tool.call", "tool.result"):
            await reader.call_cards(waits, kind)
        await reader.cards_of_box(turn.output_box_id)
        await reader.budgets(turn)
        await reader.leases(turn.turn_id)


@pytest.mark.parametrize("name", poison.POISONS)
async def test_undecodable_row_of_a_worker_affects_only_the_list_of_workers(rig: Rig, name: str) -> None:
    app = application()
    run_id = await rig.start(app, {"n": 0})
    async with rig.serving(app):
        (command,) = await rig.taken("oracle")
        connection = await asyncpg.connect(rig.url)
        try:
            done = await connection.execute(
                "update heliograph.workers set metrics = jsonb_build_object('spoiled', $1::text::jsonb)"
                " where project_id = $2", poison.POISONS[name], rig.runtime.settings.project)  # fmt: skip
            assert done == "UPDATE 1"
        finally:
            await connection.close()
        assert await Client.on(rig.runtime).workers() == []
        await command.report(result=1)
        await rig.ended(run_id)
    assert (await rig.runtime.reader.run(run_id)).outcome == "success"
