"""The spans of runs, received by a real receiver of OTLP."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from heliograph import Context, Heliograph, tool
from heliograph.ids import span_id_of, trace_id_of
from heliograph.models import ModelReply, ScriptedModel
from heliograph.redaction import keep_out
from heliograph.telemetry.otel_export import SpanExport
from heliograph.telemetry.settings import TelemetrySettings
from heliograph.trace_context import trace_headers, trace_ids
from tests.reach.otlp_receiver import Receiver, receiving_http
from tests.runtime.kit import START, Rig
from tests.runtime.loop_kit import agent, call


@contextmanager
def traced(rig: Rig, **options: Any) -> Iterator[tuple[Receiver, SpanExport]]:
    """Export the spans of the rig's runtime to a receiver."""
    with receiving_http() as receiver:
        settings = TelemetrySettings(is_on=True, endpoint=receiver.endpoint, **options)
        export = SpanExport(settings)
        rig.runtime.tracer = export.tracer(rig.runtime.world.now)
        yield receiver, export


def check_whole(receiver: Receiver, run_id: str) -> None:
    """Assert that the spans are one trace, whose root is the run, and whose parents exist."""
    assert {span.trace_id for span in receiver.spans} == {trace_id_of(run_id)}
    ids = [span.span_id for span in receiver.spans]
    assert len(ids) == len(set(ids))
    roots = [span for span in receiver.spans if not span.parent_id]
    assert [root.span_id for root in roots] == [span_id_of(run_id)]
    assert [span.name for span in receiver.spans if span.parent_id and span.parent_id not in ids] == []
    assert all(span.start <= span.end for span in receiver.spans)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.proves("OBS-05")
async def test_run_of_a_prompt_agent_is_one_trace_with_the_names_of_the_conventions(rig: Rig) -> None:
    reply = ModelReply("", tool_calls=(call("add", {"a": 1, "b": 2}),), input_tokens=7, output_tokens=3, cost_usd=0.25)
    app = agent(ScriptedModel([reply, "3"]), [add])
    with traced(rig) as (receiver, export):
        run_id = (await rig.run(app, {}, run_id=f"{rig.runtime.settings.project}-one")).run_id
        await export.flush()
    check_whole(receiver, run_id)
    turn = receiver.one("invoke_agent worker")
    assert turn.parent_id == receiver.one("invoke_workflow looping").span_id
    assert turn.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert (turn.attributes["gen_ai.agent.name"], turn.attributes["gen_ai.conversation.id"]) == ("worker", run_id)
    chats = receiver.named("chat scripted")
    assert [chat.parent_id for chat in chats] == [turn.span_id] * 2
    first = chats[0].attributes
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (7, 3)
    assert (first["heliograph.usage.cost_usd"], first["gen_ai.response.finish_reasons"]) == (0.25, ["tool_call"])
    executed = receiver.one("execute_tool add")
    assert executed.parent_id == turn.span_id
    assert (executed.attributes["gen_ai.tool.name"], executed.attributes["gen_ai.tool.call.id"]) == ("add", "m1-1")
    assert receiver.one("enqueue worker").parent_id == receiver.one("invoke_workflow looping").span_id
    assert receiver.one("claim worker").links == [receiver.one("enqueue worker").span_id]
    contents = ("messages", "arguments", "result", "instructions")
    assert [key for span in receiver.spans for key in span.attributes if key.endswith(contents)] == []
    assert {span.service for span in receiver.spans} == {"heliograph"}


async def test_turns_that_signals_wake_are_children_of_the_turn_that_emitted_them(rig: Rig) -> None:
    app = Heliograph("chain")

    @app.agent(activate_on=START, emits=["first:done"])
    def first(ctx: Context) -> int:
        return 1

    @app.agent(activate_on=["first:done"])
    def second(ctx: Context) -> int:
        raise ValueError("a secret reason")

    with traced(rig) as (receiver, export):
        run_id = (await rig.run(app, {}, run_id=f"{rig.runtime.settings.project}-chain")).run_id
        await export.flush()
    check_whole(receiver, run_id)
    earlier, later = receiver.one("invoke_agent first"), receiver.one("invoke_agent second")
    assert later.parent_id == earlier.span_id
    assert receiver.one("enqueue second").parent_id == earlier.span_id
    assert (later.is_error, later.attributes["error.type"]) == (True, "ACTION_FAILED")
    assert receiver.one("invoke_workflow chain").is_error


@pytest.mark.proves("OBS-05")
async def test_trace_continues_over_a_suspension_on_another_worker_with_a_child_and_an_external_tool(rig: Rig) -> None:
    app = Heliograph("parts")

    @app.agent(activate_on=START, updates="out")
    async def parent(ctx: Context) -> Any:
        return [await ctx.delegate("child", {"n": 1}), await ctx.call("weigh", {"kg": 1})]

    @app.agent(on_request=True, pool="other")
    async def child(ctx: Context) -> int:
        return 1

    with traced(rig) as (receiver, export):
        run_id = await rig.start(app, {}, f"{rig.runtime.settings.project}-parts")
        async with rig.serving(app), rig.serving(app, pools=["other"]):
            [command] = await rig.taken("weigh")
        async with rig.serving(app):  # another worker
            await rig.client.report(command.turn_id, command.call_id, token=command.token, result=70)
            await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    turn, delegated = receiver.one("invoke_agent parent"), receiver.named("invoke_agent child")
    [sent] = [span for span in delegated if span.parent_id == turn.span_id]
    [done] = [span for span in delegated if span is not sent]
    assert done.parent_id == sent.span_id
    assert sent.start <= done.start <= sent.end
    weighed = receiver.one("execute_tool weigh")
    assert weighed.parent_id == turn.span_id
    assert weighed.span_id == span_id_of(f"{command.turn_id}:{command.call_id}")
    claims = receiver.named("claim parent")
    assert [claim.attributes["heliograph.outcome"] for claim in claims] == ["suspended", "suspended", "ended"]
    assert [claim.links for claim in claims[1:]] == [[claims[0].span_id], [claims[1].span_id]]
    trace = command.trace["traceparent"].split("-")
    assert trace == ["00", trace_id_of(run_id), weighed.span_id, "01"]


async def test_turn_that_the_kernel_ends_has_a_span(rig: Rig) -> None:
    app = Heliograph("stopped")

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> Any:
        await ctx.step("before", lambda: 1)
        return await ctx.call("weigh", {})

    with traced(rig) as (receiver, export):
        run_id = await rig.start(app, {}, f"{rig.runtime.settings.project}-stopped")
        async with rig.serving(app):
            [command] = await rig.taken("weigh")
            await rig.client.stop_turn(command.turn_id, now=True)
            await rig.ended(run_id)
        await export.flush()
    check_whole(receiver, run_id)
    turn = receiver.one("invoke_agent one")
    assert (turn.is_error, turn.attributes["heliograph.outcome"]) == (True, "canceled")
    assert receiver.one("execute_tool before").parent_id == turn.span_id


@pytest.mark.proves("OBS-07")
async def test_share_of_the_traces_is_recorded_and_all_processes_choose_the_same(rig: Rig) -> None:
    app = Heliograph("many")
    seen: list[Any] = []

    @app.agent(activate_on=START)
    def one(ctx: Context) -> None:
        seen.append(trace_headers()["traceparent"])

    with traced(rig, sample_rate=0.5) as (receiver, export):
        runs = [f"{rig.runtime.settings.project}-{n}" for n in range(12)]
        for run_id in runs:
            await rig.run(app, {}, run_id=run_id)
        await export.flush()
    recorded = {span.trace_id for span in receiver.spans}
    assert recorded == {trace_id_of(run_id) for run_id in runs if int(trace_id_of(run_id)[16:], 16) < 2**63}
    assert {each.split("-")[1] for each in seen if each.endswith("-01")} == recorded
    assert len(seen) == 12


async def test_contents_are_recorded_on_request_without_secrets(rig: Rig) -> None:
    keep_out("tracing-canary-1")
    app = agent(ScriptedModel([call("add", {"a": 1, "b": 2}), "tracing-canary-1 is 3"]), [add])
    with traced(rig, captures_content=True) as (receiver, export):
        await rig.run(app, {})
        await export.flush()
    executed, (_, last) = receiver.one("execute_tool add"), receiver.named("chat scripted")
    assert executed.attributes["gen_ai.tool.call.arguments"] == '{"a":1,"b":2}'
    assert executed.attributes["gen_ai.tool.call.result"] == "3"
    assert "Work." in last.attributes["gen_ai.input.messages"]
    assert "*** is 3" in last.attributes["gen_ai.output.messages"]
    assert "canary" not in repr(receiver.spans)


async def test_span_of_the_caller_is_the_parent_of_the_run_and_its_sampling_decides(rig: Rig) -> None:
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

    app = Heliograph("called")

    @app.agent(activate_on=START)
    def one(ctx: Context) -> None: ...

    with traced(rig) as (receiver, export):
        for number, flags in ((1, TraceFlags.SAMPLED), (2, TraceFlags.DEFAULT)):
            caller = SpanContext(number, 5, is_remote=False, trace_flags=TraceFlags(flags))
            with use_span(NonRecordingSpan(caller)):
                await rig.run(app, {})
        await export.flush()
    assert {span.trace_id for span in receiver.spans} == {f"{1:032x}"}
    assert receiver.one("invoke_workflow called").parent_id == f"{5:016x}"


async def test_code_of_an_agent_has_the_ids_of_its_span(rig: Rig) -> None:
    app = Heliograph("ids")
    seen: list[Any] = []

    @app.agent(activate_on=START)
    async def one(ctx: Context) -> None:
        seen.append(trace_ids())
        await ctx.step("inner", lambda: seen.append(trace_ids()))

    with traced(rig) as (receiver, export):
        run_id = (await rig.run(app, {})).run_id
        await export.flush()
    turn, step = receiver.one("invoke_agent one"), receiver.one("execute_tool inner")
    assert seen == [(trace_id_of(run_id), turn.span_id), (trace_id_of(run_id), step.span_id)]
    assert trace_ids() is None


async def test_telemetry_adds_no_call_of_the_database(rig: Rig) -> None:
    calls: list[str] = []
    real = rig.runtime.world.call

    async def counted(function: str, *args: object) -> Any:
        calls.append(function)
        return await real(function, *args)

    rig.runtime.world.call = counted
    app = agent(ScriptedModel([call("add", {"a": 1, "b": 2}), "3"], per_turn=True), [add])

    async def run(run_id: str) -> list[str]:
        calls.clear()
        await rig.run(app, {}, run_id=run_id)
        written = ("start_runs", "begin_call", "record_call", "finish", "append", "suspend", "react")
        return [each for each in calls if each in written]

    without = await run("run_off")
    with traced(rig):
        assert await run("run_on") == without


@pytest.mark.more
def test_process_without_telemetry_imports_nothing_of_opentelemetry(database_url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from heliograph import Heliograph\n"
        "app = Heliograph('plain')\n"
        "@app.agent(activate_on=['workflow:start'])\n"
        "def one(ctx): return 1\n"
        "print(asyncio.run(app.run({})).outcome, [name for name in sys.modules if 'opentelemetry' in name])\n"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    environment |= {"HELIOGRAPH_DATABASE_URL": database_url}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "success []\n"
