"""The metrics and the pages of a worker that runs turns on PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliograph import Call, Context, Heliograph, Runtime
from heliograph.control.run_log import LOG_NAMES
from heliograph.ledger.pool import Database
from heliograph.status import measurements
from heliograph.status.measurements import Measurements
from heliograph.status.pages import StatusPages
from heliograph.telemetry.metrics import Registry
from heliograph.telemetry.metrics_signals import RESERVED, TurnMetrics
from heliograph.turn.phases import Phase
from heliograph.worker.claim_loop import Worker
from tests.runtime.kit import START, Rig, until
from tests.runtime.test_worker_health import WaitingAgent

Samples = dict[tuple[str, ...], float]


def metrics_of(rig: Rig) -> TurnMetrics:
    return TurnMetrics(Registry(RESERVED), rig.runtime.world.now)


@asynccontextmanager
async def pages_of(
    rig: Rig, worker: Worker, metrics: TurnMetrics, url: str | None = None
) -> AsyncIterator[StatusPages]:
    measured = Measurements(worker, metrics.registry, url or rig.url, rig.runtime.settings.project)
    yield StatusPages(measured)
    await measured.close()


async def samples_of(rig: Rig, metrics: TurnMetrics) -> Samples:
    """The metrics of a worker that has ended."""
    async with pages_of(rig, rig.runtime.worker(newsroom().workflow, metrics=metrics), metrics) as pages:
        return read((await pages.metrics()).text)


def read(text: str) -> Samples:
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(samples: Samples, name: str, *labels: str) -> float:
    return sum(value for key, value in samples.items() if key[0] == name and set(labels) <= set(key))


def newsroom() -> Heliograph:
    """Steps, tools outside and delegations, with and without success."""
    app = Heliograph("newsroom")

    def fail() -> None:
        raise ValueError("no ink")

    @app.agent(activate_on=START, updates="draft")
    async def editor(ctx: Context) -> Any:
        await ctx.step("proofread", lambda: "fine")
        try:
            await ctx.step("print", fail)
        except Exception:
            await ctx.report_error("NETWORK_ERROR", "no printer")
        results = await ctx.calls([Call("weather", {}), Call("stocks", {})])
        await ctx.delegate("writer", {"topic": "ink"})
        try:
            await ctx.delegate("critic", {"topic": "ink"})
        except Exception:
            return [each.status for each in results]

    @app.agent(on_request=True)
    def writer(ctx: Context) -> str:
        return "all about ink"

    @app.agent(on_request=True)
    def critic(ctx: Context) -> str:
        raise ValueError("too short")

    return app


async def run_newsroom(rig: Rig, metrics: TurnMetrics | None) -> list[Any]:
    app = newsroom()
    async with rig.serving(app, metrics=metrics):
        run_id = await rig.start(app)
        commands = {command.tool: command for command in await rig.taken("weather", "stocks", count=2)}
        await commands["weather"].report(result={"celsius": 3})
        await commands["stocks"].report(error={"code": "CLOSED", "message": "holiday"})
        return await rig.ended(run_id)


@pytest.mark.proves("OBS-01", "OBS-02", "OBS-03")
async def test_each_control_signal_of_a_run_is_counted_once_with_its_latency_and_its_error(rig: Rig) -> None:
    metrics = metrics_of(rig)
    signals = await run_newsroom(rig, metrics)
    samples = await samples_of(rig, metrics)
    logged = Counter(LOG_NAMES[signal.name] for signal in signals if signal.name in LOG_NAMES)
    assert {kind: total(samples, "signal_count_total", f"signal_type={kind}") for kind in logged} == logged
    assert (logged["tool_call"], logged["delegation"]) == (4, 2)
    assert logged["error"] >= 2
    for status, count in (("success", 2), ("failed", 2)):
        assert total(samples, "signal_latency_ms_count", "signal_type=tool_call", f"status={status}") == count
    for status in ("completed", "failed"):
        assert total(samples, "signal_latency_ms_count", "signal_type=delegation", f"status={status}") == 1
    assert total(samples, "signal_errors_total", "signal_type=tool_call", "error_code=CLOSED") == 1
    assert total(samples, "signal_errors_total", "signal_type=error", "error_code=NETWORK_ERROR") == 1
    assert total(samples, "signal_errors_total", "signal_type=delegation") == 1


@pytest.mark.proves("LC-102", "LC-103")
async def test_phases_have_the_metrics_of_the_specification_without_any_handler(rig: Rig) -> None:
    metrics = metrics_of(rig)
    await run_newsroom(rig, metrics)
    samples = await samples_of(rig, metrics)
    for phase in (Phase.INIT, Phase.PLAN, Phase.ACT, Phase.TERMINATE):
        for agent in ("editor", "writer", "critic"):
            assert total(samples, f"agent_lifecycle_{phase}_started_total", f"agent={agent}") == 1, (phase, agent)
            assert total(samples, f"agent_lifecycle_{phase}_duration_count", f"agent={agent}") == 1, (phase, agent)
    assert total(samples, "heliograph_turns_ended_total", "agent=critic", "outcome=failed") == 1
    assert total(samples, "heliograph_turns_claimed_total", "agent=editor") == 4


async def test_result_of_a_call_that_another_worker_opened_is_counted_without_a_latency(rig: Rig) -> None:
    app = newsroom()
    async with rig.serving(app):
        run_id = await rig.start(app)
        commands = await rig.taken("weather", "stocks", count=2)
        await rig.turn_of("editor", "suspended")
    for command in commands:
        await command.report(result=1)
    metrics = metrics_of(rig)
    async with rig.serving(app, metrics=metrics):
        await rig.ended(run_id)
    samples = await samples_of(rig, metrics)
    assert total(samples, "signal_count_total", "signal_type=tool_call_response", "status=success") == 2
    assert total(samples, "signal_latency_ms_count", "signal_type=tool_call") == 0


@contextmanager
def counted(runtime: Runtime) -> Iterator[Counter[str]]:
    """Count the kernel calls of a runtime, except those that a timer makes."""
    calls: Counter[str] = Counter()
    world = runtime.world
    call = world.call

    async def count(function: str, *args: object) -> Any:
        if not function.startswith(
            ("sweep", "claim", "read_outbox", "renew", "beat", "take_", "react", "bell", "mark_")
        ):
            calls[function.removesuffix("_and_claim")] += 1
        return await call(function, *args)

    world.call = count
    try:
        yield calls
    finally:
        world.call = call


async def test_metrics_change_no_kernel_call_of_a_turn(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START, emits=["draft:ready"], updates="draft")
    def writer(ctx: Context) -> str:
        return "the draft"

    @app.agent(activate_on=["draft:ready"], updates="verdict")
    def critic(ctx: Context) -> str:
        return "good"

    made = []
    for metrics in (None, metrics_of(rig)):
        with counted(rig.runtime) as calls:
            async with rig.serving(app, metrics=metrics):
                await rig.ended(await rig.start(app))
        made.append(calls)
    assert made[0] == made[1]
    assert made[0]["finish"] + made[0]["finish_and_claim"] == 2
    assert (made[0]["start_runs"], made[0]["append"]) == (1, 0)


async def test_metrics_are_read_while_the_worker_is_busy(rig: Rig) -> None:
    waiting, metrics = WaitingAgent(), metrics_of(rig)
    async with rig.serving(waiting.app, metrics=metrics, concurrency=2) as worker:
        for number in range(5):
            await rig.start(waiting.app, run_id=f"r{number}")
        await waiting.begun.wait()
        await until(lambda: sum(worker.leases.values()) == 2)
        async with pages_of(rig, worker, metrics) as pages:
            samples = read((await pages.metrics()).text)
        project = f"project={rig.runtime.settings.project}"
        assert (samples["heliograph_worker_slots",], samples["heliograph_worker_slots_used",]) == (2, 2)
        assert samples["heliograph_worker_leases", project] == 2
        assert samples["heliograph_leases", f"application={waiting.app.name}", project, "state=valid"] == 2
        queue = (f"application={waiting.app.name}", "pool=default", project, "state=ready")
        assert samples["heliograph_queue_turns", *queue] == 3
        assert samples["heliograph_queue_oldest_seconds", *queue] > 0
        assert samples["heliograph_database_up",] == 1
        waiting.released.set()
        for number in range(5):
            await rig.ended(f"r{number}")


async def test_worker_is_ready_while_it_claims_and_its_database_responds(rig: Rig) -> None:
    waiting, metrics = WaitingAgent(), metrics_of(rig)
    async with pages_of(rig, rig.runtime.worker(waiting.app.workflow, metrics=metrics), metrics) as pages:
        assert (await pages.ready()).text == "not ready: the worker does not claim turns\n"
    async with rig.serving(waiting.app, metrics=metrics) as worker, pages_of(rig, worker, metrics) as pages:
        await until(lambda: worker.is_claiming)
        assert (await pages.ready()).status is HTTPStatus.OK
        assert (await pages.live()).status is HTTPStatus.OK
        worker.stop()
        assert (await pages.ready()).status is HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.proves("S20")
async def test_without_a_database_the_worker_is_alive_and_its_own_metrics_remain(rig: Rig) -> None:
    waiting, metrics = WaitingAgent(), metrics_of(rig)
    away = "postgresql://helio:sesame-9@127.0.0.1:1/none"
    async with rig.serving(waiting.app, metrics=metrics) as worker, pages_of(rig, worker, metrics, away) as pages:
        await until(lambda: worker.is_claiming)
        ready = await pages.ready()
        assert (ready.status, ready.text) == (
            HTTPStatus.SERVICE_UNAVAILABLE,
            "not ready: the database is not reachable\n",
        )
        assert (await pages.live()).status is HTTPStatus.OK
        async with asyncio.timeout(10):
            samples = read((await pages.metrics()).text)
        assert (samples["heliograph_database_up",], samples["heliograph_worker_slots",]) == (0, 16)
        assert total(samples, "heliograph_queue_turns") == 0


@pytest.mark.more
async def test_server_that_does_not_respond_delays_no_page_for_long(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(*args: Any) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)  # like a driver, which waits for the server after a cancellation

    waiting, metrics = WaitingAgent(), metrics_of(rig)
    async with rig.serving(waiting.app, metrics=metrics) as worker, pages_of(rig, worker, metrics) as pages:
        await until(lambda: worker.is_claiming)
        with monkeypatch.context() as frozen:
            frozen.setattr(measurements, "read_state", silent)
            frozen.setattr(Database, "fetch", silent)
            async with asyncio.timeout(4.5):
                ready, text = await asyncio.gather(pages.ready(), pages.metrics())
        assert ready.text == "not ready: the database is not reachable\n"
        assert read(text.text)["heliograph_database_up",] == 0
        await until(lambda: _is_ready(pages))


async def test_slow_measurement_delays_no_check(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def silent(*args: Any) -> Any:
        asked.set()
        await asyncio.sleep(3600)

    waiting, metrics = WaitingAgent(), metrics_of(rig)
    async with rig.serving(waiting.app, metrics=metrics) as worker, pages_of(rig, worker, metrics) as pages:
        await until(lambda: worker.is_claiming)
        monkeypatch.setattr(Database, "fetch", silent)
        measuring = asyncio.create_task(pages.metrics())
        await asked.wait()
        assert (await pages.ready()).text == "ready\n"
        assert not measuring.done()
        measuring.cancel()


async def test_halt_of_a_running_turn_is_counted_by_its_worker(rig: Rig) -> None:
    waiting, metrics = WaitingAgent(), metrics_of(rig)
    async with rig.serving(waiting.app, metrics=metrics):
        run_id = await rig.start(waiting.app)
        await waiting.begun.wait()
        await rig.client.stop_run(run_id)
        await rig.ended(run_id)
    samples = await samples_of(rig, metrics)
    assert total(samples, "signal_count_total", "signal_type=halt") == 1


async def test_worker_without_metrics_runs_no_code_of_theirs(rig: Rig) -> None:
    ran: Counter[str] = Counter()

    def trace(frame: Any, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and ("/telemetry/metrics" in path or "/heliograph/status/" in path):
            ran[path] += 1

    sys.setprofile(trace)
    try:
        await run_newsroom(rig, None)
        assert ran == {}
        metrics = metrics_of(rig)
        await run_newsroom(rig, metrics)
    finally:
        sys.setprofile(None)
    assert ran


async def _is_ready(pages: StatusPages) -> bool:
    return (await pages.ready()).status is HTTPStatus.OK
