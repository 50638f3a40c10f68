"""Handlers of lifecycle events: what they receive, and that no handler affects a turn."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.errors import InvalidInput
from heliograph.execution import handler_queues
from heliograph.phases import PhaseContext
from heliograph.turn.phases import Phase
from heliograph.world.seam import BellKey
from tests.runtime.hooks_kit import Hooked
from tests.runtime.kit import START, Rig, lost, one, until

PHASES = [str(phase) for phase in Phase]
STARTED_AND_COMPLETED = [(event, phase) for phase in PHASES for event in ("started", "completed")]


class Seen:
    """An application whose handlers keep what they receive."""

    def __init__(self, app: Heliograph):
        self.app = app
        self.order: list[tuple[str, str]] = []
        self.started: list[dict[str, Any]] = []
        self.completed: list[dict[str, Any]] = []
        self.metrics: list[tuple[str, int]] = []

        @app.on_lifecycle("phase_started")
        async def on_phase_start(phase: str, agent_id: str) -> None:
            self.order.append(("started", phase))
            self.started.append({"phase": phase, "agent_id": agent_id})

        @app.on_lifecycle("phase_completed")
        async def on_phase_complete(phase: str, duration_ms: int, **others: Any) -> None:
            self.order.append(("completed", phase))
            self.completed.append({"phase": phase, "duration_ms": duration_ms, **others})

        @app.on_lifecycle("metric")
        async def on_metric(name: str, value: int) -> None:
            self.metrics.append((name, value))


def working(name: str = "observed", **options: Any) -> Heliograph:
    app = Heliograph(name)

    @app.agent(activate_on=START, updates="out", **options)
    async def worker(ctx: Context) -> str:
        return "done"

    return app


@pytest.mark.proves("LC-100", "LC-101", "LC-102", "LC-103", "LC-105")
async def test_handlers_receive_each_phase_with_its_agent_its_duration_and_its_metrics(rig: Rig) -> None:
    app = Heliograph("observed")
    seen = Seen(app)

    @app.agent(activate_on=START, updates="out")
    async def worker(ctx: Context) -> str:
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.03)
        return "done"

    result = await rig.run(app)
    agent_id = f"{result.run_id}/worker"
    assert seen.started == [{"phase": phase, "agent_id": agent_id} for phase in PHASES]
    assert [each["phase"] for each in seen.completed] == PHASES
    acted = seen.completed[2]
    assert 30 <= acted["duration_ms"] < 3000
    assert type(acted["duration_ms"]) is int
    turn_id = (await rig.turn_of("worker")).turn_id
    assert acted | {"duration_ms": 0} == {"phase": "act", "agent_id": agent_id, "agent": "worker", "run_id": result.run_id,
                                          "turn_id": turn_id, "status": "success", "duration_ms": 0}  # fmt: skip
    assert [m for m in seen.metrics if m[0].endswith("started")] == [
        (f"agent.lifecycle.{p}.started", 1) for p in PHASES
    ]
    durations = [(f"agent.lifecycle.{each['phase']}.duration", each["duration_ms"]) for each in seen.completed]
    assert [m for m in seen.metrics if m[0].endswith("duration")] == durations


async def test_run_returns_after_the_events_of_its_last_turn_although_the_log_ends_before_the_reply(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = working()
    seen, has_ended, call = Seen(app), asyncio.Event(), rig.runtime.world.call

    async def late(function: str, *args: Any) -> Any:
        answer = await call(function, *args)
        if function == "finish":
            rig.runtime.world.ring([BellKey(rig.runtime.settings.project, "log:last")])
            await has_ended.wait()
            for _ in range(50):  # long enough for a worker that does not wait to cancel the turn
                await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(rig.runtime.world, "call", late)
    await rig.run(
        app, run_id="last", on_signal=lambda signal: has_ended.set() if signal.name == "workflow:end" else None
    )
    assert [each["phase"] for each in seen.completed] == PHASES


@pytest.mark.more
async def test_phase_that_waits_starts_once_and_completes_once(rig: Rig) -> None:
    app = Heliograph("waits")
    seen = Seen(app)

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        await ctx.pause(0.01)

    await rig.run(app)
    assert sorted(seen.order) == sorted(STARTED_AND_COMPLETED)


@pytest.mark.parametrize(("what", "status"), [("raises", "failed"), ("late", "timeout")])
async def test_phase_that_fails_completes_with_the_status_of_the_failure(rig: Rig, what: str, status: str) -> None:
    app = Heliograph("fails")
    seen = Seen(app)

    @app.agent(activate_on=START, timeout_seconds=0.05 if what == "late" else 60)
    async def worker(ctx: Context) -> None:
        if what == "late":
            await asyncio.Event().wait()
        raise ValueError("no ink")

    await rig.run(app)
    assert [(each["phase"], each["status"]) for each in seen.completed] == [
        ("init", "success"), ("plan", "success"), ("act", status), ("terminate", "success")]  # fmt: skip


async def test_rejected_delivery_is_reported_once_as_a_failed_act(rig: Rig) -> None:
    app = Heliograph("lacks")
    seen = Seen(app)

    @app.agent(activate_on=START, result_fields=[{"name": "verdict"}])
    async def worker(ctx: Context) -> dict[str, str]:
        return {"other": "x"}

    result = await rig.run(app)
    assert one(result.signals, "error")["error_code"] == "RESULT_MISSING"
    assert [(each["phase"], each["status"]) for each in seen.completed][2:] == [
        ("act", "failed"), ("terminate", "success")]  # fmt: skip


async def test_worker_that_lost_its_turn_reports_no_end_of_it(rig: Rig) -> None:
    app, begun = Heliograph("dies"), asyncio.Event()
    seen = Seen(app)

    @app.agent(activate_on=START)
    async def worker(ctx: Context) -> None:
        if ctx.attempt == 1:
            begun.set()
            await asyncio.Event().wait()

    run_id = await lost(rig, app, begun)
    assert ("completed", "act") not in seen.order
    async with rig.serving(app):
        await rig.ended(run_id)
    assert seen.order.count(("started", "act")) == 2
    assert seen.order.count(("completed", "act")) == 1


# ── Handlers that fail ──


@pytest.mark.proves("LC-105")
async def test_hundred_hanging_handlers_do_not_delay_a_turn_and_every_lost_event_is_counted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    app, forever = working(), asyncio.Event()
    for n in range(100):
        if n % 2:

            @app.on_lifecycle("phase_started")
            async def hangs(phase: str) -> None:
                await forever.wait()
        else:

            @app.on_lifecycle("phase_started")
            def blocks(phase: str) -> None:
                stopped.wait()

    stopped = threading.Event()
    try:
        with caplog.at_level(logging.WARNING, "heliograph.execution"):
            run_id = await rig.start(app)
            async with rig.serving(app) as worker:
                queues = worker.projects[0].handler_queues
                queues.close_seconds = 0.1
                started = time.monotonic()
                await rig.ended(run_id)
                assert time.monotonic() - started < 2  # one call of one handler takes five seconds
        assert queues.lost == 100 * len(PHASES)
        assert caplog.text.count("lost 5 events so far: the worker has ended") == 100
    finally:
        stopped.set()


@pytest.mark.proves("LC-105")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_handler_that_raises_or_hangs_loses_its_event_and_receives_the_next_ones(
    rig: Rig, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    app, received = working(), list[str]()
    may_end = threading.Event()

    def handle(phase: str) -> None:
        received.append(phase)
        if phase == "plan":
            raise SystemExit("a handler exits")

    @app.on_lifecycle("phase_started")
    async def handle_async(phase: str) -> None:
        if kind == "async":
            handle(phase)
            if phase == "act":
                await asyncio.Event().wait()

    @app.on_lifecycle("phase_started")
    def handle_plain(phase: str) -> None:
        if kind == "plain":
            handle(phase)
            if phase == "act":
                may_end.wait(1)  # longer than its timeout

    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        worker.projects[0].handler_queues.handler_seconds = 0.4  # a pause of a busy machine is shorter
        assert one(await rig.ended(run_id), "workflow:end")["state"] == {"out": "done"}
        await until(lambda: received == PHASES)
    assert worker.projects[0].handler_queues.lost == 2
    assert "SystemExit: a handler exits" in caplog.text


async def test_full_queue_drops_new_events_and_logs_the_count(rig: Rig, monkeypatch: pytest.MonkeyPatch,
                                                              caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    monkeypatch.setattr(handler_queues, "QUEUE_MAX", 2)
    app, gate, received = working(), asyncio.Event(), list[str]()

    @app.on_lifecycle("phase_started")
    async def slow(phase: str) -> None:
        await gate.wait()
        received.append(phase)

    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        await rig.ended(run_id)
        await until(lambda: worker.projects[0].handler_queues.lost > 0)
        gate.set()
        await until(lambda: len(received) + worker.projects[0].handler_queues.lost == len(PHASES))
    assert "its queue has 2 events already" in caplog.text


async def test_turn_without_handlers_makes_no_queue(rig: Rig) -> None:
    app = working()
    run_id = await rig.start(app)
    async with rig.serving(app) as worker:
        await rig.ended(run_id)
    assert worker.projects[0].handler_queues._queues == {}


@pytest.mark.parametrize(
    ("event", "function", "problem"),
    [
        ("phase_start", lambda phase: None, "did you mean phase_started?"),
        ("phase_started", lambda duration_ms: None, "needs the arguments duration_ms"),
        ("metric", "no function", "must be a function"),
        ("metric", max, "must have known parameters"),
        (["metric"], lambda: None, "there is no lifecycle event"),
        (print, lambda: None, "on_lifecycle needs the name of an event"),
    ],
)
def test_handler_of_an_unknown_event_or_argument_is_rejected(event: Any, function: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem.replace("?", r"\?")):
        Heliograph("wrong").on_lifecycle(event)(function)


# ── The end of a turn ──


@pytest.mark.more
@pytest.mark.proves("LC-53")
@pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
async def test_completed_turn_is_reported_once_with_its_agent_duration_and_result(rig: Rig, fails: bool) -> None:
    completed = list[dict[str, Any]]()

    async def act(ctx: PhaseContext) -> None:
        await ctx.pause(0.2)
        if fails:
            raise ValueError("no ink")

    app = Hooked(act=act).app()

    @app.on_lifecycle("turn_completed")
    def on_end(**values: Any) -> None:
        completed.append(values)

    result = await rig.run(app)
    [report] = completed
    duration_ms = report.pop("duration_ms")
    turn_id = (await rig.turn_of("worker")).turn_id
    error = {"code": "ACTION_FAILED", "message": "ValueError: no ink", "recoverable": False} if fails else None
    assert report == {
        "agent_id": f"{result.run_id}/worker", "agent": "worker", "run_id": result.run_id, "turn_id": turn_id,
        "status": "failed" if fails else "success", "result": None if fails else "done", "error": error,
    }  # fmt: skip
    assert 200 <= duration_ms < 60_000  # also the time before the suspension


@pytest.mark.parametrize("hooks", [["plan", "act"], []], ids=["hooks", "function"])
async def test_duration_of_a_phase_counts_from_its_start_on_an_earlier_worker(rig: Rig, hooks: list[str]) -> None:
    begun, planned, durations = asyncio.Event(), asyncio.Event(), dict[str, int]()

    async def act(ctx: PhaseContext) -> None:
        if ctx.attempt == 1:
            await ctx.sleep(0.3)
            await planned.wait()  # handlers run beside the turn, and end with their worker
            begun.set()
            await asyncio.Event().wait()

    app = Hooked(hooks, act=act).app()

    @app.on_lifecycle("phase_completed")
    async def on_end(phase: str, duration_ms: int) -> None:
        durations[phase] = duration_ms
        if phase == "plan":
            planned.set()

    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        await rig.ended(run_id)
    assert 300 <= durations["act"] < 60_000
    assert durations["plan"] < 300
