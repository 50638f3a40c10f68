"""Deferred turns: by their agent, by a pause, or by a model that may succeed later; the number of deferrals is limited."""

from typing import Any

import pytest

from heliograph import Context, Defer, Heliograph, Signal
from heliograph.errors import HarnessError
from heliograph.models import ScriptedModel
from heliograph.world.seam import bell_keys
from tests.runtime.kit import START, Rig, names, one, until


async def ran(rig: Rig, app: Heliograph) -> list[Signal]:
    """Run an application with frequent sweeps, so that deferred turns are due within milliseconds; return the log."""
    run_id = await rig.start(app)
    async with rig.serving(app):
        return await rig.ended(run_id)


def state_of(signals: list[Signal]) -> Any:
    return one(signals, "workflow:end")["state"]


@pytest.mark.proves("L0-64")
@pytest.mark.parametrize("is_raised", [True, False])
async def test_deferred_turn_restarts_after_its_delay(rig: Rig, is_raised: bool) -> None:
    app = Heliograph("later")

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> Any:
        if ctx.deferrals < 2:
            if is_raised:
                raise Defer("busy", 0.02)
            ctx.defer("busy", 0.02)
        return [ctx.deferrals, ctx.attempt]

    signals = await ran(rig, app)
    assert state_of(signals) == {"seen": [2, 1]}  # no attempt is counted: nothing was lost
    assert names(signals).count("ready") == 1
    turn = await rig.turn_of("worker")
    rows = await rig.fetch(
        "select retry_count, defer_reason from heliograph.inbox_overview where turn_id = $1", turn.turn_id
    )
    assert [tuple(row) for row in rows] == [(2, "busy")]


@pytest.mark.proves("G-71", "L0-64")
async def test_turn_deferred_too_often_fails_with_the_reason(rig: Rig) -> None:
    runs: list[int] = []
    app = Heliograph("never")

    @app.agent(activate_on=START)
    def worker(ctx: Context) -> Any:
        runs.append(ctx.deferrals)
        raise Defer("still busy", 0)

    signals = await ran(rig, app)
    failed = one(signals, "agent:failed")
    assert runs == [0, 1, 2, 3]
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "RESOURCE_EXHAUSTED")
    assert "still busy" in failed["error"]["message"]


@pytest.mark.proves("L0-64", "G-71")
@pytest.mark.usefixtures("soon")
async def test_recoverable_model_failure_is_retried_later(rig: Rig) -> None:
    app = Heliograph("asks")
    busy = HarnessError("overloaded", code="NETWORK_ERROR", recoverable=True)
    app.prompt_agent("writer", "Write.", model=ScriptedModel([busy, busy, "there"]), activate_on=START, updates="text")
    signals = await ran(rig, app)
    assert state_of(signals) == {"text": "there"}
    assert names(signals).count("harness:error") == 2
    assert names(signals).count("harness:start") == 3
    assert (await rig.turn_of("writer")).defer_count == 2


@pytest.mark.proves("G-71")
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("retries", "requests_made"), [(0, 1), (1, 2), (5, 6)])
async def test_agent_option_sets_the_number_of_model_retries(rig: Rig, retries: int, requests_made: int) -> None:
    app = Heliograph("gives-up")
    replies = [HarnessError("overloaded", code="NETWORK_ERROR", recoverable=True) for _ in range(9)]
    app.prompt_agent("writer", "Write.", model=ScriptedModel(replies), activate_on=START, retries=retries)
    signals = await ran(rig, app)
    assert names(signals).count("harness:start") == requests_made
    failed = one(signals, "agent:failed")["error"]
    assert failed == {"code": "NETWORK_ERROR", "message": "overloaded", "recoverable": True}


async def test_unrecoverable_model_failure_is_not_retried(rig: Rig) -> None:
    app = Heliograph("objects")
    app.prompt_agent("writer", "Write.", model=ScriptedModel([HarnessError("no key")]), activate_on=START)
    signals = await ran(rig, app)
    assert names(signals).count("harness:start") == 1


@pytest.mark.proves("L0-77", "K11")
async def test_pause_occupies_no_worker_and_ends_by_its_timer(rig: Rig) -> None:
    app = Heliograph("pauses")

    @app.agent(activate_on=START, updates="seen")
    async def worker(ctx: Context) -> Any:
        await ctx.pause(0.05)
        await ctx.pause(0.05)
        return "rested"

    run_id = await rig.start(app)
    async with rig.serving(app):
        await rig.turn_of("worker", "suspended")
        signals = await rig.ended(run_id)
    assert one(signals, "workflow:end")["state"] == {"seen": "rested"}
    results: list[Any] = [s.payload for s in signals if s.name == "tool:result"]
    assert [(payload["name"], payload["status"]) for payload in results] == [("timer", "success")] * 2


# ── Result fields ──


@pytest.mark.proves("L0-84", "L0-85", "L0-89")
async def test_deliverable_without_a_required_field_fails_and_names_it(rig: Rig) -> None:
    app = Heliograph("fields")
    wanted: list[dict[str, Any]] = [
        {"name": "summary"},
        {"name": "score", "type": "integer"},
        {"name": "note", "required": False},
    ]
    app.agent(name="a", activate_on=START, result_fields=wanted)(lambda _ctx: {"score": "high"})
    result = await rig.run(app)
    error = one(result.signals, "agent:failed")["error"]
    assert error["code"] == "RESULT_MISSING"
    assert "summary, score, note: summary is missing; score is not of type integer" in error["message"]


@pytest.mark.proves("L0-83", "L0-84")
async def test_deliverable_with_its_fields_has_them_by_name(rig: Rig) -> None:
    app = Heliograph("fields")
    app.agent(name="a", activate_on=START, result_fields=[{"name": "summary"}])(
        lambda _ctx: {"summary": "s", "more": 1}
    )
    await rig.run(app)
    (card,) = await rig.runtime.reader.cards((await rig.turn_of("a")).turn_id)
    assert card.content == {"fields": [{"name": "summary", "value": "s"}, {"name": "more", "value": 1}]}


@pytest.mark.proves("L0-84")
async def test_message_may_name_the_required_fields_of_its_answer(rig: Rig) -> None:
    app = Heliograph("asked")

    @app.agent(activate_on=START)
    async def waits(ctx: Context) -> Any:
        return await ctx.call("a")

    app.agent(name="answers", on_request=True)(lambda ctx: ctx.task)
    run_id = await rig.start(app)
    async with rig.serving(app):
        (command,) = await rig.taken("a")
        fields = [{"name": "summary"}]
        lacking = await rig.client.enqueue(run_id, "answers", {"other": 1}, result_fields=fields)
        covering = await rig.client.enqueue(run_id, "answers", {"summary": 1}, result_fields=fields)
        await command.report(result=1)
        await rig.ended(run_id)
    assert [(await rig.runtime.reader.turn(turn)).outcome for turn in (lacking, covering)] == ["failed", "success"]


# ── How long ──


@pytest.mark.proves("RET-05")
async def test_recorded_delays_of_a_model_that_keeps_failing_grow_up_to_thirty_seconds(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.policy.retry.jitter_of", lambda _key, _attempt: 1.0)  # the whole of each delay
    app = Heliograph("keeps-failing")
    busy = HarnessError("overloaded", code="NETWORK_ERROR", recoverable=True)
    app.prompt_agent("writer", "Write.", model=ScriptedModel([busy] * 8), activate_on=START, retries=7)
    run_id, delays = await rig.start(app), list[float]()
    async with rig.serving(app):
        for n in range(1, 8):
            await until(lambda n=n: _is_deferred(rig, run_id, n))
            (row,) = await rig.fetch(
                "select i.next_retry_at - h.moved_at as delay from heliograph.agent_inbox i join heliograph.agent_state_head h"
                " on h.project_id = i.project_id and h.active_agent_turn_id = i.agent_turn_id where h.run_id = $1", run_id,
            )  # fmt: skip
            delays.append(row["delay"].total_seconds())
            await rig.fetch(  # as if that time had passed: for head and inbox at once, because a claim checks both
                "with inbox as (update heliograph.agent_inbox i set next_retry_at = now() from heliograph.agent_turns t"
                " where t.run_id = $1 and t.agent_turn_id = i.agent_turn_id)"
                " update heliograph.agent_state_head set due_at = now() where run_id = $1", run_id,
            )  # fmt: skip
            rig.runtime.world.ring(bell_keys(rig.runtime.ledger.project, [f"work:{app.name}"]))
        signals = await rig.ended(run_id)
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    assert one(signals, "agent:failed")["error"]["code"] == "NETWORK_ERROR"


async def _is_deferred(rig: Rig, run_id: str, times: int) -> bool:
    query = "select 1 from heliograph.inbox_overview where agent_id = $1 || '/writer' and status = 'deferred' and retry_count = $2"
    return bool(await rig.fetch(query, run_id, times))
