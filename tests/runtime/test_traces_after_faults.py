"""Traces of turns that something interrupts: a stop, a lost lease, a deferral, or an error of telemetry itself."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from heliograph import Context, Heliograph, Step
from heliograph.errors import StepInDoubt
from heliograph.ids import span_id_of
from heliograph.models import ModelReply
from heliograph.ports import ModelRequest, UserMessage
from heliograph.redaction import keep_out
from heliograph.telemetry import otel_content as content
from heliograph.telemetry.otel_spans import Spans
from heliograph.trace_context import trace_headers
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import allowed, gateway_of, local
from tests.runtime.kit import START, Rig, lost
from tests.runtime.test_callbacks import allow, application
from tests.runtime.test_gateway_calls import remote
from tests.runtime.test_tracing import check_whole, traced


@pytest.mark.proves("OBS-05")
async def test_turn_that_the_kernel_ends_has_a_span_with_its_parent_its_times_and_its_calls(rig: Rig) -> None:
    app = Heliograph("ended")

    @app.agent(activate_on=START, emits=["first:done"])
    def first(ctx: Context) -> int:
        return 1

    @app.agent(activate_on=["first:done"])
    async def parent(ctx: Context) -> Any:
        return await asyncio.gather(ctx.delegate("child", {}), ctx.call("weigh", {}))

    @app.agent(on_request=True)
    async def child(ctx: Context) -> Any:
        return await ctx.call("measure", {})

    with traced(rig) as (receiver, export):
        run_id = await rig.start(app, {}, f"{rig.runtime.settings.project}-ended")
        async with rig.serving(app):
            [weigh] = await rig.taken("weigh")
            await rig.taken("measure")
            await rig.client.stop_turn(weigh.turn_id, now=True)
            await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    turn = receiver.one("invoke_agent parent")
    assert turn.parent_id == receiver.one("invoke_agent first").span_id
    assert turn.is_error
    assert turn.start < turn.end
    assert receiver.one("execute_tool weigh").parent_id == turn.span_id
    sent, done = sorted(receiver.named("invoke_agent child"), key=lambda span: span.start)
    assert (sent.parent_id, done.parent_id) == (turn.span_id, sent.span_id)
    assert receiver.one("execute_tool measure").parent_id == done.span_id


@pytest.mark.proves("OBS-05")
async def test_spans_below_a_step_of_a_turn_that_the_kernel_ends_have_a_parent(rig: Rig) -> None:
    app, begun, headers = Heliograph("cut"), asyncio.Event(), []

    async def work() -> None:
        headers.append(trace_headers()["traceparent"])  # another system records a span below it
        begun.set()
        await asyncio.Event().wait()

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> Any:
        await ctx.step("before", lambda: 1)
        await ctx.step("work", work)

    with traced(rig) as (receiver, export):
        run_id = await rig.start(app)
        async with rig.serving(app):
            async with asyncio.timeout(60):
                await begun.wait()
            await rig.client.stop_turn((await rig.turn_of("one")).turn_id, now=True)
            await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    turn, steps = receiver.one("invoke_agent one"), receiver.named("execute_tool work")
    assert headers[0].split("-")[2] in [step.span_id for step in steps]
    assert {step.parent_id for step in steps} == {turn.span_id}
    assert len(receiver.named("execute_tool before")) == 1


async def continued(rig: Rig, app: Heliograph, begun: asyncio.Event) -> str:
    """Start a run, kill the owner of its turn when `begun` is set, and let another worker end the run."""
    run_id = await lost(rig, app, begun)
    async with rig.serving(app):
        await rig.ended(run_id)
    return run_id


async def test_call_that_a_lost_worker_has_begun_and_the_next_one_repeats_has_two_spans_with_different_ids(
    rig: Rig,
) -> None:
    app, begun, calls = Heliograph("twice"), asyncio.Event(), []

    async def work() -> int:
        calls.append(1)
        begun.set()
        if len(calls) == 1:
            await asyncio.Event().wait()
        return 1

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> Any:
        return await ctx.step(Step("work", effect="idempotent"), work)

    with traced(rig) as (receiver, export):
        run_id = await continued(rig, app, begun)
        await export.flush()
    check_whole(receiver, run_id)
    lost, done = sorted(receiver.named("execute_tool work"), key=lambda span: span.is_error, reverse=True)
    assert (lost.is_error, lost.attributes["error.type"], done.is_error) == (True, "CancelledError", False)
    turn = await rig.turn_of("one")
    assert done.span_id == span_id_of(f"{turn.turn_id}:{done.attributes['gen_ai.tool.call.id']}")
    earlier, later = sorted(receiver.named("claim one"), key=lambda span: span.start)
    assert (earlier.attributes["heliograph.outcome"], later.links) == ("lost", [earlier.span_id])


@pytest.mark.proves("OBS-05")
async def test_call_in_doubt_has_the_span_to_which_its_first_owner_refers(rig: Rig) -> None:
    app, begun, headers = Heliograph("doubt"), asyncio.Event(), []

    async def work() -> None:
        headers.append(trace_headers()["traceparent"])
        begun.set()
        await asyncio.Event().wait()

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> Any:
        with suppress(StepInDoubt):
            await ctx.step("work", work)

    with traced(rig) as (receiver, export):
        run_id = await continued(rig, app, begun)
        await export.flush()
    check_whole(receiver, run_id)
    lost, doubtful = sorted(receiver.named("execute_tool work"), key=lambda span: span.start)
    assert (lost.attributes["error.type"], doubtful.attributes["error.type"]) == ("CancelledError", "IN_DOUBT")
    assert doubtful.span_id == headers[0].split("-")[2] != lost.span_id


async def test_claim_after_a_deferral_links_to_the_claim_before_it(rig: Rig) -> None:
    app, runs = Heliograph("later"), []

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> int:
        runs.append(1)
        if len(runs) == 1:
            ctx.defer("not yet", 0.01)
        return 1

    with traced(rig) as (receiver, export):
        run_id = await rig.start(app, {}, f"{rig.runtime.settings.project}-later")
        async with rig.serving(app):
            await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    earlier, later = sorted(receiver.named("claim one"), key=lambda span: span.start)
    assert [earlier.attributes["heliograph.outcome"], later.attributes["heliograph.outcome"]] == ["deferred", "ended"]
    assert (earlier.links, later.links) == ([receiver.one("enqueue one").span_id], [earlier.span_id])


async def test_callback_has_a_span_for_each_attempt(rig: Rig) -> None:
    with traced(rig) as (receiver, export):
        async with hooked() as hook:
            allow(rig, hook)
            app = application(hook.url)
            run_id, _ = await rig.runtime.start(
                app.workflow, {}, f"{rig.runtime.settings.project}-hook", f"{hook.url}?run"
            )
            async with rig.serving(app):
                await rig.ended(run_id)
                while len(await rig.client.callbacks("delivered")) < 2:  # noqa: ASYNC110  no event announces it
                    await asyncio.sleep(0.01)
            child = await rig.turn_of("child")
        await export.flush()
    check_whole(receiver, run_id)
    spans = receiver.named("POST callback")
    assert {span.parent_id for span in spans} == {span_id_of(run_id), span_id_of(child.turn_id)}
    assert [span.attributes["server.address"] for span in spans] == ["127.0.0.1"] * 2
    assert not any(span.is_error for span in spans)


@pytest.mark.more
async def test_request_to_a_gateway_has_a_span_below_its_call(rig: Rig, lone_rig: Rig) -> None:
    far = remote([])
    with traced(rig) as (receiver, export):
        async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
            app = local(url, {"n": 2})
            run_id = await rig.start(app, {}, f"{rig.runtime.settings.project}-far")
            async with rig.serving(app):
                await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    sent = receiver.named("POST gateway")
    assert {span.parent_id for span in sent} == {
        span.span_id for span in receiver.named("execute_tool runtime:gateway")
    }
    assert {span.attributes["http.response.status_code"] for span in sent} <= {200, 404}


@pytest.mark.proves("OBS-05")
async def test_errors_of_telemetry_fail_no_turn_and_are_logged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Heliograph("broken")

    @app.agent(activate_on=START, updates="out")
    async def one(ctx: Context) -> Any:
        return [await ctx.step("inner", lambda: 1), await ctx.delegate("two", {})]

    @app.agent(on_request=True)
    async def two(ctx: Context) -> int:
        return 2

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the SDK has changed")

    with traced(rig) as (_, export):
        for name in ("start", "record", "copy"):
            monkeypatch.setattr(Spans, name, broken)
        result = await rig.run(app, {})
        await export.flush()
    assert (result.outcome, result.state["out"]) == ("success", [1, 2])
    logged = [record.getMessage() for record in caplog.records if "telemetry failed" in record.getMessage()]
    assert len(logged) == len(set(logged)) > 0


async def test_line_of_a_claim_and_lines_of_agents_are_attributed_and_redacted(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    keep_out("fault-canary-1")
    app = Heliograph("lines")

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> None:
        ctx.logger.warning("it is fault-canary-1")

    with traced(rig) as (receiver, export), caplog.at_level(logging.INFO):
        await rig.run(app, {})
        await export.flush()
    turn = receiver.one("invoke_agent one")
    [claimed] = [record for record in caplog.records if record.getMessage().startswith("claimed ")]
    assert (claimed.trace_id, claimed.span_id) == (turn.trace_id, turn.span_id)  # type: ignore[attr-defined]  # extras
    [line] = [record.getMessage() for record in caplog.records if record.name == "heliograph.agents.one"]
    assert line == "it is ***"


async def test_turn_without_telemetry_calls_the_tracer_a_fixed_number_of_times(rig: Rig) -> None:
    app = Heliograph("plain")

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> Any:
        return await ctx.step("inner", lambda: 1)

    await rig.run(app, {})  # imports and caches
    called: Counter[tuple[str, str]] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and "/telemetry/" in (name := frame.f_code.co_filename):
            called[name.rpartition("/")[2], frame.f_code.co_name] += 1

    sys.setprofile(count)
    try:
        await rig.run(app, {})
    finally:
        sys.setprofile(None)
    assert called.pop(("logs.py", "enter_turn")) == 1
    per_turn = ("turn", "claimed", "tool_call", "returned", "ended")
    assert {
        name: number for (file, name), number in called.items() if file == "null_tracer.py" and name in per_turn
    } == dict.fromkeys(per_turn, 1)
    assert {file for file, _ in called} == {"null_tracer.py"}
    assert sum(called.values()) <= 10


def test_contents_without_room_lose_the_oldest_messages_and_remain_json() -> None:
    request = ModelRequest(tuple(UserMessage(f"{n} {'x' * 3000}") for n in range(9)))
    found = content.of_request(request)["gen_ai.input.messages"]
    kept = [message["parts"][0]["content"].split()[0] for message in json.loads(found)]
    assert kept == ["7", "8"]
    long = json.loads(content.of_value({"text": f"begin {'x' * 90_000} end", "n": 1}))
    assert (long["text"][:5], long["text"][-3:], long["n"]) == ("begin", "end", 1)
    assert len(content.of_value(list(range(90_000)))) <= 8_000
    assert json.loads(content.of_reply(ModelReply("y" * 90_000))["gen_ai.output.messages"])
