"""Rows whose answer exceeds the 256 MB of one JSON value: they cost their own turn, and no other (S22)."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from heliograph import Call, Context, Heliograph
from heliograph.codes import RESOURCE_EXHAUSTED
from heliograph.config import Settings
from heliograph.ledger.decoding import decode
from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.open_turns import UnreadableTurn, read_open_turns
from heliograph.ledger.pool import explain
from heliograph.runtime import open_runtime
from tests.runtime.kit import START, Rig, until

CALLS = 20
BYTES = 16_000_000  # of each result: 20 of them exceed one JSON value
LARGE = 70_000_000  # of a state and of a signal: together they exceed the 128 MiB of an answer
_projects = itertools.count(1)


@pytest_asyncio.fixture
async def rig(shared_url: str) -> AsyncIterator[Rig]:
    """An open runtime on a project whose rows need not be sound in the end."""
    settings = Settings(database_url=shared_url, project=f"too-large-{os.getpid()}-{next(_projects)}")
    async with open_runtime(settings) as runtime:
        yield Rig(runtime, shared_url)


def application() -> Heliograph:
    app = Heliograph("large")

    @app.agent(activate_on=START, updates="seen")
    async def asker(ctx: Context) -> int:
        return len(await ctx.calls([Call("oracle", {"n": n}) for n in range(CALLS)]))

    return app


@pytest.mark.more
@pytest.mark.proves("S22")
async def test_turn_whose_results_exceed_one_answer_fails_and_the_turns_behind_it_run(rig: Rig) -> None:
    app = application()
    large = await _resumed_with_large_results(rig, app)
    others = [await rig.start(app) for _ in range(3)]
    async with rig.serving(app):
        for command in await rig.taken("oracle", count=CALLS * len(others)):
            await command.report(result=1)
        async with asyncio.timeout(60):
            for run_id in (*others, large):
                await until(lambda run_id=run_id: _has_ended(rig, run_id))
    assert [(await rig.runtime.reader.run(each)).outcome for each in others] == ["success"] * 3
    [turn] = await rig.runtime.reader.turns(run_id=large)
    [end] = [card for card in await rig.runtime.reader.cards(turn.turn_id) if card.kind == "task.deliverable"]
    assert (turn.status, turn.outcome, end.content["error"]["code"]) == ("done", "failed", RESOURCE_EXHAUSTED)
    assert "no worker can claim it: 54000" in end.content["error"]["message"]
    assert await rig.runtime.world.call("doctor", rig.runtime.settings.project, True) == []


@pytest.mark.more
async def test_turn_whose_results_exceed_one_answer_ends_no_check_of_the_others(rig: Rig) -> None:
    app = application()
    large = await _resumed_with_large_results(rig, app)
    others = [await rig.start(app) for _ in range(3)]
    connection = await asyncpg.connect(rig.url)
    try:
        patient: Any = Patient(connection)
        found = [each async for each in read_open_turns(patient, rig.runtime.settings.project, "large")]
    finally:
        await connection.close()
    [too_large] = [each for each in found if isinstance(each, UnreadableTurn)]
    assert (too_large.run_id, too_large.agent) == (large, "asker")
    assert "over 256 MB" in too_large.message
    readable = [each.claimed.run_id for each in found if not isinstance(each, UnreadableTurn)]
    assert sorted(readable) == sorted(others)


class Patient:
    """Calls of the kernel without a time limit: another test may keep the processors busy."""

    def __init__(self, connection: asyncpg.Connection[Any]):
        self._connection = connection

    async def call(self, function: str, *args: object) -> Any:
        try:
            return KERNEL[function].read(await self._connection.fetch(KERNEL[function].statement(), *args))
        except asyncpg.PostgresError as error:
            raise explain(error, function) from error


async def _resumed_with_large_results(rig: Rig, app: Heliograph) -> str:
    """A run whose turn is ready to continue, with results that are too large together."""
    run_id = await rig.start(app)
    async with rig.serving(app):
        commands = await rig.taken("oracle", count=CALLS)
    for command in commands:
        await command.report(result=1)
    connection = await asyncpg.connect(rig.url)
    try:
        await connection.execute(
            "insert into heliograph.blobs (project_id, blob_id, bytes, content, created_at)"
            " values ($1, 'large', $2::integer, to_jsonb(repeat('x', $2::integer)), now())",
            rig.runtime.settings.project, BYTES,
        )  # fmt: skip
        await connection.execute(
            "update heliograph.cards set content = jsonb_build_object('$blob', 'large', 'bytes', $2::integer)"
            " where kind = 'tool.result' and agent_turn_id in"
            "   (select agent_turn_id from heliograph.agent_turns where run_id = $1)",
            run_id, BYTES,
        )  # fmt: skip
    finally:
        await connection.close()
    return run_id


async def _has_ended(rig: Rig, run_id: str) -> bool:
    return (await rig.runtime.reader.run(run_id)).status == "ended"


@pytest.mark.more
@pytest.mark.proves("K23", "S22")
async def test_run_whose_pending_signals_exceed_one_answer_fails_and_other_runs_continue(rig: Rig) -> None:
    app = application()
    project = rig.runtime.settings.project
    for run_id in ("run_large", "run_other"):
        await rig.start(app, run_id=run_id)
    for turn in await rig.runtime.reader.turns():
        await rig.client.stop_turn(turn.turn_id)
    await rig.fetch(
        "update heliograph.runs set state = jsonb_build_object('seen', repeat('x', $2::integer)) where project_id = $1 and run_id = 'run_large'",
        project, LARGE,
    )  # fmt: skip
    await rig.fetch(
        "update heliograph.signals set entries = jsonb_build_array(entries -> 0 ||"
        "   jsonb_build_object('payload', jsonb_build_object('text', repeat('x', $2::integer)))) where project_id = $1 and run_id = 'run_large' and is_pending",
        project, LARGE,
    )  # fmt: skip
    await rig.runtime.worker(app.workflow).watchdog.sweep()
    ended = await rig.fetch(
        "select run_id, status, outcome from heliograph.runs where project_id = $1 order by 1", project
    )
    assert [tuple(run) for run in ended] == [("run_large", "ended", "failed"), ("run_other", "ended", "success")]
    [end] = await rig.fetch(
        "select e -> 'payload' as payload from heliograph.signals s, jsonb_array_elements(s.entries) e"
        " where project_id = $1 and run_id = 'run_large' and e ->> 'name' = 'workflow:end'", project,
    )  # fmt: skip
    payload = decode(end["payload"])
    assert (payload["code"], payload["state"]) == (RESOURCE_EXHAUSTED, {})
    assert "its pending signals have" in payload["reason"]
