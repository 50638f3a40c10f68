"""Stops from another process, with few rights, or with a lost reply."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from heliograph import Client
from heliograph.errors import StoreUnavailable
from tests.runtime.kit import Rig, one
from tests.runtime.test_pending_reactions import family, tidied, waiting
from tests.runtime.test_service_logins import as_login, project


@pytest.mark.proves("K25")
@pytest.mark.parametrize("by_turn", [False, True])
async def test_client_that_closes_at_once_has_rung_for_the_end_of_the_run(rig: Rig, *, by_turn: bool) -> None:
    app = waiting("only")
    async with rig.serving(app, sweep_seconds=3600.0) as worker:
        run_id = await rig.start(app)
        turn = await rig.turn_of("only", "suspended")
        async with Client(rig.url, rig.runtime.settings.project) as client:
            await (client.stop_turn(turn.turn_id) if by_turn else client.stop_run(run_id))
        assert one(await rig.ended(run_id), "workflow:end")["metrics"]["turns"] == 1
        await tidied(rig, worker)


@pytest.mark.proves("S2", "L0-80")
@pytest.mark.parametrize("by_turn", [False, True])
async def test_stop_by_an_api_login_takes_effect_in_workers(shared_url: str, *, by_turn: bool) -> None:
    named, app = project(), family()
    async with (
        as_login(shared_url, named, named, services=("api",)) as api_runtime,
        as_login(shared_url, named, named, services=("worker",)) as works,
    ):
        rig = Rig(api_runtime, shared_url)
        async with rig.serving(app, runtime=works, sweep_seconds=3600.0) as worker:
            run_id = await rig.start(app)
            await rig.turn_of("child", "suspended")
            if by_turn:
                stopped = await rig.client.stop_turn((await rig.turn_of("parent")).turn_id)
            else:
                stopped = await rig.client.stop_run(run_id)
            assert stopped.outcome in ("stopped", "stopping")
            assert one(await rig.ended(run_id), "workflow:end")["metrics"]["turns"] == 2
            await tidied(rig, worker)


@pytest.mark.proves("L0-80")
async def test_stop_with_a_lost_reply_reaches_the_children(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ends_with_open_work = True
    app, database, lost = family(), rig.runtime.database, itertools.count()
    async with rig.serving(app):
        await rig.start(app)
        child = await rig.turn_of("child", "suspended")
    call = database.call

    async def call_and_lose(function: str, *args: object) -> Any:
        answer = await call(function, *args)
        if function == "stop" and next(lost) == 0:
            raise StoreUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(database, "call", call_and_lose)
    stopped = await rig.client.stop_turn((await rig.turn_of("parent")).turn_id)
    assert (stopped.outcome, stopped.ended_as) == ("already_done", "canceled")
    assert (await rig.runtime.reader.turn(child.turn_id)).outcome == "canceled"


async def test_outage_after_a_stop_does_not_change_its_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ends_with_open_work = True
    app, database = waiting("only"), rig.runtime.database
    async with rig.serving(app):
        run_id = await rig.start(app)
        turn = await rig.turn_of("only", "suspended")

    async def fetch(_query: str, *_args: object) -> Any:
        raise StoreUnavailable("it is away")

    monkeypatch.setattr(database, "fetch", fetch)
    assert (await rig.client.stop_turn(turn.turn_id)).outcome == "stopped"
    assert (await rig.client.stop_run(run_id)).outcome == "stopping"
