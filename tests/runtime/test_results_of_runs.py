"""`Client.result` waits for the end of a run. A caller in the process of the last turn reads nothing for it (decision 0192)."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel

from heliograph import Client, Context, Heliograph
from heliograph.client import EndedRun
from heliograph.client.arguments import check_stop
from heliograph.codes import UNDECODABLE
from heliograph.config import Settings
from heliograph.errors import Conflict, InvalidInput, KernelRejected, NotFound, StoreUnavailable
from heliograph.redaction import keep_out
from heliograph.runtime import open_runtime
from heliograph.worker import claim_loop
from tests.runtime.kit import SOON_SECONDS, START, Rig
from tests.runtime.test_calls_that_claim import idle, single
from tests.runtime.test_next_claims import LINKS, Calls, chain


class Post(BaseModel):
    words: int = 0


async def result_of(rig: Rig, run_id: str, *more: Any) -> EndedRun[Any]:
    async with asyncio.timeout(SOON_SECONDS):
        end: EndedRun[Any] = await rig.client.result(run_id, *more)
    return end


def reads_of(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries of the runtime that are no kernel calls, from now on."""
    found: list[str] = []
    fetch = rig.runtime.database.fetch

    async def noted(query: str, *args: object) -> Any:
        found.append(query)
        return await fetch(query, *args)

    monkeypatch.setattr(rig.runtime.database, "fetch", noted)
    return found


@pytest.mark.parametrize("app", [single(), chain()], ids=["one turn", "a chain of turns"])
async def test_waiting_caller_in_the_process_of_the_last_turn_sends_no_query(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, app: Heliograph
) -> None:
    monkeypatch.setattr(claim_loop, "_AGAIN_SECONDS", claim_loop.POLL_SECONDS)
    calls = Calls(rig, monkeypatch)
    async with rig.serving(app):
        await idle(calls)
        reads = reads_of(rig, monkeypatch)
        end = await result_of(rig, await rig.start(app))
        assert reads == []
        assert [name for name, _, _ in calls.made if "start" in name or "finish" in name] == [
            "start_and_claim", *["finish_and_claim"] * (app.name == "chain") * (LINKS - 1), "finish",
        ]  # fmt: skip
        assert (end.outcome, end.reason, end.metrics["turns"]) == ("success", None, LINKS if app.name == "chain" else 1)
        assert await result_of(rig, end.run_id) == end  # this one is read
        assert len(reads) == 2


async def test_handed_over_result_equals_the_one_that_is_read(rig: Rig) -> None:
    """Numbers, the order of keys, and secrets that the ledger does not keep."""
    keep_out("the-secret-of-this-test")
    app = Heliograph("values")

    @app.agent(activate_on=START, updates="found")
    def one(_: Context) -> Any:
        return {
            "longest": -0.0,
            "b": 1e300,
            "a": [1.50, {"zz": 1, "y": None}],
            "key": "the-secret-of-this-test",
            "é": 12345678901234567890,
        }

    async with rig.serving(app):
        here = await result_of(rig, await rig.start(app))
    read = await result_of(rig, here.run_id)
    assert json.dumps(here.state) == json.dumps(read.state)
    assert here == read
    assert "secret" not in json.dumps(here.state)


async def test_each_caller_has_a_state_of_its_own(rig: Rig) -> None:
    app, may_end = Heliograph("shared", state=Post), asyncio.Event()

    @app.agent(activate_on=START, updates="words")
    async def one(_: Context) -> int:
        await may_end.wait()
        return 7

    async with rig.serving(app):
        run_id = await rig.start(app)
        waiting = [asyncio.create_task(result_of(rig, run_id)) for _ in range(2)]
        typed = asyncio.create_task(result_of(rig, run_id, app))
        await rig.turn_of("one", "running")
        may_end.set()
        first, second = await asyncio.gather(*waiting)
        assert (await typed).state == Post(words=7)
    assert first.state == second.state == {"words": 7}
    assert first.state is not second.state


async def test_result_of_a_run_of_another_process_is_read(rig: Rig) -> None:
    settings = Settings(database_url=rig.url, project=rig.runtime.settings.project)
    async with open_runtime(settings) as elsewhere, rig.serving(chain(), runtime=elsewhere):
        waiting = asyncio.create_task(result_of(rig, "before"))
        with pytest.raises(NotFound) as unknown:
            await waiting
        end = await result_of(rig, await rig.start(chain()))
    assert unknown.value.code == "unknown_run"
    assert (end.outcome, end.state) == ("success", {"n": LINKS})


async def test_stopped_run_is_returned_as_canceled_while_its_turn_still_runs_here(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog of this process ends the run, and hands its end over."""
    monkeypatch.setattr("heliograph.run_follower.POLL_SECONDS", SOON_SECONDS)
    app, is_running, may_end = Heliograph("stopped"), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START)
    async def one(_: Context) -> None:
        is_running.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):  # it does not end when the kernel ends its turn
                await may_end.wait()

    async with rig.serving(app):
        run_id = await rig.start(app)
        waiting = asyncio.create_task(result_of(rig, run_id))
        await is_running.wait()
        await rig.client.stop_run(run_id, now=True)
        end = await waiting
        may_end.set()
    assert (end.outcome, end.reason) == ("canceled", "user_interrupt")


async def test_result_is_read_after_a_lost_reply_to_the_last_commit(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repeated call returns `duplicate`, so the caller reads the end."""
    lost: list[Any] = []

    def lose_reply(function: str, _args: Any, answer: Any) -> None:
        if function == "finish" and answer is not None and not lost:
            lost.append(answer)
            raise StoreUnavailable("the reply was lost")

    calls = Calls(rig, monkeypatch, lose_reply)
    async with rig.serving(single()):
        reads = reads_of(rig, monkeypatch)
        end = await result_of(rig, await rig.start(single()))
    assert sum("read_log" in query for query in reads) == 1
    assert [answer[0]["outcome"] for name, _, answer in calls.made if name == "finish"] == ["ok", "duplicate"]
    assert end.outcome == "success"


async def test_failed_run_is_returned_and_not_raised(rig: Rig) -> None:
    app = Heliograph("failing")

    @app.agent(activate_on=START)
    def one(_: Context) -> None:
        raise ValueError("no")

    async with rig.serving(app):
        end = await result_of(rig, await rig.start(app))
    assert end.outcome == "failed"
    assert end == await result_of(rig, end.run_id)


async def test_state_that_does_not_match_the_application_is_an_error(rig: Rig) -> None:
    app = Heliograph("worded")

    @app.agent(activate_on=START, updates="words")
    def one(_: Context) -> str:
        return "many"

    typed = Heliograph("worded", state=Post)
    typed.agent(name="one", activate_on=START)(lambda ctx: None)
    run_id = (await rig.run(app)).run_id
    with pytest.raises(InvalidInput) as wrong:
        await result_of(rig, run_id, typed)
    assert wrong.value.code == "invalid_state"


async def test_application_of_another_run_is_an_error(rig: Rig) -> None:
    """Its state might accept any object."""
    async with rig.serving(single()):
        run_id = await rig.start(single())
        for _ in range(2):  # the end is handed over, and read
            with pytest.raises(Conflict, match="one of the application single, not of chain"):
                await result_of(rig, run_id, chain())


async def test_long_state_is_read(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Heliograph("long")
    app.agent(name="one", activate_on=START, updates="text")(lambda ctx: "x" * 100_000)
    async with rig.serving(app):
        reads = reads_of(rig, monkeypatch)
        end = await result_of(rig, await rig.start(app))
        assert reads
    assert end.state == {"text": "x" * 100_000}


async def test_end_by_another_process_is_found_while_a_turn_is_executed_here(rig: Rig) -> None:
    app, is_running, may_end = Heliograph("lost"), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START)
    async def one(_: Context) -> None:
        is_running.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    settings = Settings(database_url=rig.url, project=rig.runtime.settings.project)
    # neither a sweep nor a renewal tells this worker that its turn is lost, and no ring does
    async with open_runtime(settings) as elsewhere, rig.serving(app, sweep_seconds=3600, lease_seconds=3600):
        run_id = await rig.start(app)
        waiting = asyncio.create_task(result_of(rig, run_id))
        await is_running.wait()
        stop = {"run_id": run_id, **check_stop(now=True, grace_seconds=0.0, reason="lost", actor=None)}
        await elsewhere.world.call("stop_runs", settings.project, [stop])
        async with rig.serving(single("lost"), runtime=elsewhere):
            end = await waiting
        may_end.set()
    assert end.outcome == "canceled"


async def test_run_that_is_pruned_before_its_end_is_read_is_an_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, signals = (await rig.run(single())).run_id, rig.runtime.reader.signals

    async def pruned_first(run_id: str, after: int, limit: int) -> Any:
        await rig.runtime.ledger.prune(rig.runtime.world.now(), 100)
        return await signals(run_id, after, limit)

    monkeypatch.setattr(rig.runtime.reader, "signals", pruned_first)
    for _ in range(2):
        with pytest.raises(NotFound) as pruned:
            await result_of(rig, run_id)
        assert pruned.value.code == "pruned_run"


async def test_wait_outlasts_an_outage(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig.serving(single()):
        run_id = (await rig.run(single())).run_id
    failed: list[str] = []
    fetch = rig.runtime.database.fetch

    async def fail_twice(query: str, *args: object) -> Any:
        if len(failed) < 2:
            failed.append(query)
            raise StoreUnavailable("the database is away")
        return await fetch(query, *args)

    monkeypatch.setattr(rig.runtime.database, "fetch", fail_twice)
    assert (await result_of(rig, run_id)).outcome == "success"
    assert len(failed) == 2


async def test_cancelled_wait_does_not_stop_the_run(rig: Rig) -> None:
    app, may_end = Heliograph("patient"), asyncio.Event()

    @app.agent(activate_on=START)
    async def one(_: Context) -> None:
        await may_end.wait()

    async with rig.serving(app):
        run_id = await rig.start(app)
        waiting = asyncio.create_task(rig.client.result(run_id))
        await rig.turn_of("one", "running")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may_end.set()
        assert (await result_of(rig, run_id)).outcome == "success"
    assert rig.runtime._local_runs._waiters == {}
    assert rig.runtime._local_runs._turns == {}


async def test_invalid_id_and_damaged_log_are_errors(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="run id"):
        await rig.client.result("no id")
    run_id = (await rig.run(single())).run_id
    await rig.fetch(
        "update heliograph.signals set entries = jsonb_set(entries, '{-1,name}', '\"note\"') where run_id = $1 and seq ="
        " (select max(seq) from heliograph.signals where run_id = $1)",
        run_id,
    )
    try:
        with pytest.raises(KernelRejected, match=r"does not end with workflow:end") as damaged:
            await result_of(rig, run_id)
        assert damaged.value.code == UNDECODABLE
    finally:
        await rig.fetch(
            "update heliograph.signals set entries = jsonb_set(entries, '{-1,name}', '\"workflow:end\"') where run_id = $1 and seq ="
            " (select max(seq) from heliograph.signals where run_id = $1)",
            run_id,
        )


async def test_run_without_on_signal_reads_the_log_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = reads_of(rig, monkeypatch)
    result = await rig.run(chain())
    assert [signal.seq for signal in result.signals] == [*range(1, len(result.signals) + 1)]
    assert sum("read_log" in query for query in reads) == 1


async def test_client_of_another_process_waits_for_a_ring_not_for_the_poll(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.run_follower.POLL_SECONDS", SOON_SECONDS)
    app, may_end, has_read = Heliograph("rung"), asyncio.Event(), asyncio.Event()

    @app.agent(activate_on=START)
    async def one(_: Context) -> None:
        await may_end.wait()

    async with Client(rig.url, rig.runtime.settings.project) as client, rig.serving(app):
        run_id = await rig.start(app)
        reader = client._open.reader
        read = reader.progress_of_run

        async def noted(run_id: str) -> Any:
            found = await read(run_id)
            has_read.set()
            return found

        monkeypatch.setattr(reader, "progress_of_run", noted)
        async with asyncio.timeout(SOON_SECONDS / 2):
            waiting = asyncio.create_task(client.result(run_id))
            await has_read.wait()
            may_end.set()
            assert (await waiting).outcome == "success"
