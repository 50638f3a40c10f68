"""What one turn of work A costs the worker: numbers of Python calls, which do not depend on the load of the machine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, TraceFlags, get_current_span

from bench.app import app
from bench.worker_cpu import InstantStore, run_turns
from heliograph.ledger.transactions import Transactions
from heliograph.ports import Tracer
from heliograph.recording.options import RecordingOptions
from heliograph.recording.start import start_of_run
from heliograph.telemetry.null_tracer import NULL_TRACER
from heliograph.telemetry.otel_export import SpanExport
from heliograph.telemetry.otel_formats import Formats, in_context
from heliograph.telemetry.otel_sampling import Sampling
from heliograph.telemetry.otel_spans import RunContext
from heliograph.telemetry.otel_unrecorded import UnrecordedTurn
from heliograph.telemetry.settings import TelemetrySettings
from heliograph.trace_context import trace_headers, trace_ids
from heliograph.world.real import RealWorld
from heliograph.world.user_code import within

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 1, 15, tzinfo=UTC)
# The parts of telemetry that create spans and their attributes.
RECORDING = ("otel_turn.py", "otel_records.py", "opentelemetry/sdk/trace")
# Python calls of one turn without telemetry, in the first seconds of a process, in which it rings more bells; and how many more a turn makes that is not recorded, and one that is.
OFF_MAX, UNRECORDED_MAX, RECORDED_MAX = 243, 14, 115
# How many more a turn makes whose run is recorded for a replay, and the start of such a run.
REPLAYABLE_MAX, START_MAX = 19, 6


def tracer_of(rate: float) -> Tracer:
    return SpanExport(TelemetrySettings(is_on=True, endpoint="http://127.0.0.1:9", sample_rate=rate)).tracer(
        lambda: NOW
    )


async def calls_of(turns: int, tracer: Tracer = NULL_TRACER, *, is_recorded: bool = False) -> Counter[str]:
    """The Python calls in this thread while turns run, by file."""
    with counted() as found:
        await run_turns(turns, tracer, is_recorded=is_recorded)
    return found


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the Python calls of a block in this thread, by file."""
    found: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            found[frame.f_code.co_filename.replace("\\", "/")] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(before)


async def calls_per_turn(tracer: Tracer = NULL_TRACER, *, is_recorded: bool = False) -> float:
    """The least of three counts: other tasks of the thread, and turns that wait for each other, add to some."""
    few, many = [
        min([(await calls_of(turns, tracer, is_recorded=is_recorded)).total() for _ in range(3)]) for turns in (16, 64)
    ]
    return (many - few) / 48


async def further_calls() -> list[float]:
    """The calls of a turn without telemetry, and how many more one that is replayable, unrecorded or recorded makes."""
    await run_turns(16)  # what is computed once
    off = await calls_per_turn()
    others = [await calls_per_turn(is_recorded=True), *[await calls_per_turn(tracer_of(rate)) for rate in (0.0, 1.0)]]
    return [off, *(calls - off for calls in others)]


@pytest.mark.more
def test_turn_makes_few_calls_and_telemetry_few_more() -> None:
    """In a process of its own: while tasks of earlier agents are left, each new task looks for its creator."""
    code = "import asyncio\nfrom tests.reach.test_turn_costs import further_calls\nprint(*asyncio.run(further_calls()))"
    done = subprocess.run([sys.executable, "-c", code], text=True, check=True, capture_output=True, cwd=ROOT)
    for calls, most in zip(
        map(float, done.stdout.split()), (OFF_MAX, REPLAYABLE_MAX, UNRECORDED_MAX, RECORDED_MAX), strict=True
    ):
        assert calls <= most, done.stdout


async def test_start_of_a_recorded_run_makes_few_more_calls() -> None:
    store = InstantStore(0)
    world = RealWorld(store, Transactions(store))  # type: ignore[arg-type]  # a start opens no transaction

    def calls(record: RecordingOptions | None) -> int:
        start_of_run(world, app.workflow, "run_a", {}, {}, record)  # what is computed once
        with counted() as found:
            start_of_run(world, app.workflow, "run_a", {}, {}, record)
        return found.total()

    assert 0 < calls(RecordingOptions()) - calls(None) <= START_MAX
    await world.close()


async def test_turn_that_is_not_recorded_creates_no_span_and_no_attributes() -> None:
    unrecorded = await calls_of(16, tracer_of(0.0))
    assert [file for file in unrecorded if any(part in file for part in RECORDING)] == []
    recorded = await calls_of(16, tracer_of(1.0))
    assert all(any(part in file for file in recorded) for part in RECORDING)


def test_turn_that_is_not_recorded_is_the_trace_context_of_its_code() -> None:
    turn = UnrecordedTurn(Formats(["w3c"]), RunContext("run_a", 5, None, is_sampled=False), "turn_1")
    with turn.claimed():
        found = get_current_span().get_span_context()
        assert (found.trace_id, found.trace_flags.sampled) == (5, False)
        assert not get_current_span().is_recording()
        assert trace_headers() == {"traceparent": f"00-{5:032x}-{found.span_id:016x}-00"}
        assert trace_ids() == turn.ids == (f"{5:032x}", f"{found.span_id:016x}")
    assert trace_ids() is None
    assert not get_current_span().get_span_context().is_valid


def test_turn_that_is_not_recorded_can_be_closed_in_another_context() -> None:
    turn = UnrecordedTurn(Formats(["w3c"]), RunContext("run_a", 5, None, is_sampled=False), "turn_1")
    copy_context().run(turn.__enter__)
    turn.__exit__()
    assert trace_ids() is None


CALLERS = [
    None,
    *(
        SpanContext(7, 8, is_remote=remote, trace_flags=TraceFlags(flag))
        for remote, flag in product((True, False), (0, 1))
    ),
]
RATIO = TraceIdRatioBased(0.25)


@pytest.mark.parametrize("sampler", [
    ALWAYS_ON, ALWAYS_OFF, RATIO, ParentBased(ALWAYS_ON), ParentBased(ALWAYS_OFF), ParentBased(RATIO), ParentBased(TraceIdRatioBased(0)),
    ParentBased(TraceIdRatioBased(1)), ParentBased(TraceIdRatioBased(1e-9)), ParentBased(RATIO, remote_parent_not_sampled=ALWAYS_ON),
    ParentBased(ParentBased(RATIO)),
], ids=map(str, range(11)))  # fmt: skip
def test_traces_are_sampled_as_the_sampler_of_the_sdk_does(sampler: Sampler) -> None:
    bound = 2**62  # of the lower 64 bits of the trace id, for a quarter
    ids = [1, 2**64, bound - 1, bound, bound + 1, 2**64 - 1, 2**127 + bound - 1, 2**127 + bound, 2**128 - 1]
    for trace_id, caller in product(ids, CALLERS):
        above = None if caller is None else in_context(caller)
        expected = sampler.should_sample(above, trace_id, "invoke_workflow").decision is Decision.RECORD_AND_SAMPLE
        assert Sampling(sampler).records(trace_id, caller) is expected


async def test_work_that_waits_for_nothing_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def noting(when: float, *rest: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *rest, **more)

    monkeypatch.setattr(loop, "call_at", noting)

    async def work(pause: float | None) -> str:
        if pause is not None:
            await asyncio.sleep(pause)
        return "done"

    assert await within(5.0, work(None)) == "done"
    assert timers == []
    assert await within(5.0, work(0)) == "done"
    assert len(timers) == 1


async def test_work_that_waits_receives_what_it_waits_for() -> None:
    answers: asyncio.Queue[int] = asyncio.Queue()
    found, has_all, is_closed = list[int](), asyncio.Event(), False

    async def work() -> None:
        nonlocal is_closed
        try:
            while len(found) < 3:
                found.append(await answers.get())
            has_all.set()
            await asyncio.Event().wait()
        finally:
            is_closed = True

    task = asyncio.create_task(within(60.0, work()))
    for n in range(3):
        await asyncio.sleep(0)
        answers.put_nowait(n)
    await has_all.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (found, is_closed) == ([0, 1, 2], True)
