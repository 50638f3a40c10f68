"""Workers that die, stall, stop, or meet: another continues, and no finished turn runs again."""

import asyncio
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.config import Settings
from heliograph.errors import Rejected
from heliograph.runtime import open_runtime
from heliograph.worker.leases import Leases
from tests.runtime.kit import START, Rig, names, one, until


class Gate:
    """An agent that can be seen inside and let out again."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.may_end = asyncio.Event()

    async def __call__(self, ctx: Context) -> int:
        self.entered.append(ctx.attempt)
        async with asyncio.timeout(60):
            await self.may_end.wait()
        return ctx.attempt


def gated(gate: Gate, **options: Any) -> Heliograph:
    app = Heliograph("gated")

    @app.agent(activate_on=START, updates="attempt", **options)
    async def a(ctx: Context) -> int:
        return await gate(ctx)

    return app


async def _never_renews(_: Leases) -> None:
    await asyncio.Event().wait()


@pytest.mark.proves("K7", "L0-111", "G-62")
async def test_idempotent_turn_of_a_dead_worker_runs_again_with_the_same_key(rig: Rig) -> None:
    seen: list[Any] = []
    app = Heliograph("idempotent")

    @app.agent(activate_on=START)
    def a(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.idempotency_key))

    run_id = await rig.start(app)
    (lost,) = await rig.claimed_by_the_dead(app)
    async with rig.serving(app) as worker:
        signals = await rig.ended(run_id)
    assert seen == [(2, f"{rig.runtime.settings.project}/idempotent/{lost.turn_id}")]
    assert worker.watchdog.recovered == [lost.turn_id]
    assert one(signals, "workflow:end")["outcome"] == "success"
    epochs = [lease.turn_epoch for lease in await rig.runtime.reader.leases(lost.turn_id)]
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 2


@pytest.mark.proves("K14")
async def test_once_turn_of_a_dead_worker_is_not_run_again_and_ends_in_doubt(rig: Rig) -> None:
    ran: list[int] = []
    app = Heliograph("once")
    app.agent(name="a", activate_on=START, effect="once")(lambda ctx: ran.append(ctx.attempt))
    run_id = await rig.start(app)
    await rig.claimed_by_the_dead(app)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert ran == []
    assert one(signals, "agent:failed")["error"]["code"] == "IN_DOUBT"
    assert one(signals, "workflow:end")["outcome"] == "failed"


@pytest.mark.proves("K19", "G-62")
async def test_turn_that_loses_every_worker_ends_as_failed_after_its_attempts(rig: Rig) -> None:
    app = Heliograph("unlucky")
    app.agent(name="a", activate_on=START, max_attempts=3)(lambda _ctx: None)
    run_id = await rig.start(app)
    for _ in range(3):
        (lost,) = await rig.claimed_by_the_dead(app)

        async def is_swept(turn_id: str = lost.turn_id) -> bool:
            swept = await rig.runtime.ledger.sweep("leases")
            return turn_id in swept.recovered + swept.ended

        await until(is_swept)
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert one(signals, "agent:failed")["error"]["code"] == "RESOURCE_EXHAUSTED"


@pytest.mark.proves("L0-02", "L0-110", "K2", "K6")
async def test_worker_stalled_past_its_lease_writes_nothing_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    app = gated(gate)
    run_id = await rig.start(app)
    with monkeypatch.context() as patch:
        patch.setattr(Leases, "keep", _never_renews)
        stalled = rig.serving(app, lease_seconds=0.2, sweep_seconds=60)
        await stalled.__aenter__()
        await until(lambda: gate.entered == [1])
    async with rig.serving(app):
        await until(lambda: gate.entered == [1, 2])
        gate.may_end.set()  # both finish now; only one of them is the owner
        signals = await rig.ended(run_id)
    await stalled.__aexit__(None, None, None)
    assert one(signals, "workflow:end")["state"] == {"attempt": 2}
    assert names(signals).count("agent:completed") == 1
    assert len(await rig.runtime.reader.all_signals(run_id)) == len(signals)


@pytest.mark.proves("K7")
async def test_worker_stops_a_turn_whose_lease_it_lost(rig: Rig) -> None:
    gate = Gate()
    app = gated(gate)
    run_id = await rig.start(app)
    rig.ends_with_open_work = True
    async with rig.serving(app, lease_seconds=0.3, sweep_seconds=60, concurrency=1) as worker:  # with room for no other
        await until(lambda: gate.entered == [1])

        async def is_taken_away() -> bool:  # unless a heartbeat came in between
            await rig.fetch("update heliograph.agent_state_head set lease_until = now() where run_id = $1", run_id)
            await rig.runtime.ledger.sweep("leases")
            return len(await rig.runtime.ledger.claim([{"target": app.name}], "another", 1, 60)) == 1

        await until(is_taken_away)
        await until(lambda: not worker._running)


@pytest.mark.more
async def test_worker_renews_a_turn_longer_than_many_leases(rig: Rig) -> None:
    app = Heliograph("long")
    app.agent(name="a", activate_on=START, updates="attempt")(_three_leases)
    run_id = await rig.start(app)
    async with rig.serving(app, lease_seconds=0.3):
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"attempt": 1}


async def _three_leases(ctx: Context) -> int:
    await ctx.sleep(0.9)
    return ctx.attempt


async def test_stopping_worker_finishes_its_running_turns(rig: Rig) -> None:
    gate = Gate()
    app = gated(gate)
    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        await until(lambda: gate.entered == [1])
        worker.stop()
        gate.may_end.set()
    assert one(await rig.ended(run_id), "workflow:end")["state"] == {"attempt": 1}


async def test_turn_unfinished_within_the_grace_is_released_and_continues_elsewhere_at_once(rig: Rig) -> None:
    gate = Gate()
    app = gated(gate)
    run_id = await rig.start(app)
    async with rig.serving(app, grace_seconds=0.05, lease_seconds=3600):
        await until(lambda: gate.entered == [1])
    gate.may_end.set()
    async with rig.serving(app):  # it does not wait for an hour
        signals = await rig.ended(run_id)
    assert gate.entered == [1, 1]  # nothing was lost, so no attempt is counted
    assert one(signals, "workflow:end")["state"] == {"attempt": 1}


@pytest.mark.proves("K14")
async def test_once_turn_released_in_the_middle_is_not_run_again(rig: Rig) -> None:
    gate = Gate()
    app = gated(gate, effect="once")
    run_id = await rig.start(app)
    async with rig.serving(app, grace_seconds=0.05, lease_seconds=3600):
        await until(lambda: gate.entered == [1])
    gate.may_end.set()
    async with rig.serving(app):
        signals = await rig.ended(run_id)
    assert gate.entered == [1]
    assert one(signals, "agent:failed")["error"]["code"] == "IN_DOUBT"


async def test_worker_of_one_run_takes_no_turn_of_another(rig: Rig) -> None:
    app = Heliograph("two")
    app.agent(name="a", activate_on=START, effect="once", updates="ran")(lambda ctx: ctx.attempt)
    waiting = await rig.start(app, {"n": 1})
    assert (await rig.run(app, {"n": 2})).outcome == "success"
    [turn] = await rig.runtime.reader.turns(run_id=waiting)
    assert (turn.status, turn.attempts, turn.turn_epoch) == ("dispatched", 0, 1)
    async with rig.serving(app):
        assert one(await rig.ended(waiting), "workflow:end")["state"] == {"n": 1, "ran": 1}


async def test_worker_claims_no_turn_of_an_agent_that_its_version_lacks(rig: Rig) -> None:
    newer, older = Heliograph("shop"), Heliograph("shop")
    newer.agent(name="pay", activate_on=START, effect="once", updates="paid")(lambda ctx: ctx.attempt)
    older.agent(name="sell", activate_on=START)(lambda _ctx: None)
    run_id = await rig.start(newer)
    async with rig.serving(older) as worker:
        await worker.watchdog.sweep()
        [turn] = await rig.runtime.reader.turns(run_id=run_id)
        assert (turn.status, turn.attempts) == ("dispatched", 0)
        async with rig.serving(newer):
            assert one(await rig.ended(run_id), "workflow:end")["state"] == {"paid": 1}


@pytest.mark.proves("L0-42")
async def test_turn_without_its_inbox_row_is_a_protocol_error_and_is_rejected(rig: Rig) -> None:
    app = Heliograph("lost")
    ran: list[int] = []
    app.agent(name="a", activate_on=START)(lambda ctx: ran.append(ctx.attempt))
    run_id = await rig.start(app)
    [lost_row] = await rig.fetch(
        "with gone as (delete from heliograph.agent_inbox where project_id = $1 returning *) select to_jsonb(gone) from gone",
        rig.runtime.settings.project,
    )
    found = await rig.runtime.world.call("doctor", rig.runtime.settings.project, False)
    assert [each["check"].split()[0] for each in found] == ["I10", "I14"]
    async with rig.serving(app):
        failed = one(await rig.ended(run_id), "agent:failed")
    assert ran == []
    assert failed["error"]["code"] == "INIT_FAILED"
    assert "protocol error" in failed["error"]["message"]
    await rig.fetch(  # for the checks that follow each test
        "insert into heliograph.agent_inbox overriding system value"
        ' select * from jsonb_populate_record(null::heliograph.agent_inbox, $1::jsonb || \'{"status": "consumed"}\')',
        lost_row[0],
    )


# ── The same run id again ──


async def test_equal_run_id_and_state_are_the_same_run(rig: Rig) -> None:
    ran: list[int] = []
    app = Heliograph("again")
    app.agent(name="a", activate_on=START, updates="n")(lambda ctx: ran.append(ctx.attempt))
    first = await rig.run(app, {"n": 0}, run_id="run_again")
    again = await rig.run(app, {"n": 0}, run_id="run_again")
    assert ran == [1]
    assert again == first


async def test_equal_run_id_with_another_state_is_rejected(rig: Rig) -> None:
    app = Heliograph("again")
    app.agent(name="a", activate_on=START)(lambda _ctx: None)
    await rig.run(app, {"n": 0}, run_id="run_again")
    with pytest.raises(Rejected) as caught:
        await rig.run(app, {"n": 1}, run_id="run_again")
    assert caught.value.code == "id_conflict"


@pytest.mark.parametrize("run_id", ["", "a b", "a/b", "a\nb", "x" * 101, "ä", "a\0"])
async def test_ambiguous_run_id_is_rejected(rig: Rig, run_id: str) -> None:
    app = Heliograph("again")
    app.agent(name="a", activate_on=START)(lambda _ctx: None)
    with pytest.raises(Exception, match="a run id must be") as caught:
        await rig.run(app, run_id=run_id)
    assert getattr(caught.value, "code", "") == "invalid_id"


async def test_two_runtimes_that_start_the_same_id_at_once_share_one_run(rig: Rig) -> None:
    ran: list[str] = []
    app = Heliograph("shared", reducers={"n": lambda old, new: old + new})

    @app.agent(activate_on=START, emits=["n:next"])
    def source(ctx: Context) -> None:
        for n in range(6):
            ctx.emit("n:next", n)

    for name in ("x", "y", "z"):

        @app.agent(name=name, activate_on=["n:next"], updates="n")
        async def adds(ctx: Context) -> int:
            ran.append(ctx.turn_id)
            await ctx.sleep(0.001)
            return 1

    settings = Settings(database_url=rig.url, project=rig.runtime.settings.project)
    async with open_runtime(settings) as other, asyncio.timeout(60):
        one_result, other_result = await asyncio.gather(
            rig.runtime.run(app.workflow, {"n": 0}, run_id="run_shared"),
            other.run(app.workflow, {"n": 0}, run_id="run_shared"),
        )
    assert one_result == other_result
    assert one_result.state == {"n": 18}
    assert len(ran) == len(set(ran)) == 18
