"""Traces between deployments and other systems: gateways and callbacks over real sockets, in all formats."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Context, Heliograph
from heliograph.ids import span_id_of, trace_id_of
from heliograph.telemetry.otel_formats import Formats
from tests.reach.hook_server import hooked
from tests.runtime.gateway_kit import allowed, delegation, gateway_of, local, run_of
from tests.runtime.kit import Rig
from tests.runtime.test_callbacks import allow, application
from tests.runtime.test_gateway_calls import remote
from tests.runtime.test_tracing import traced

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
RECEIVED: dict[str, dict[str, Any]] = {
    "w3c": {"traceparent": f"00-{TRACE}-{SPAN}-01"},
    "b3": {"b3": f"{TRACE}-{SPAN}-1"},
    "b3multi": {"x_b3_traceid": TRACE, "x_b3_spanid": SPAN, "x_b3_sampled": "1"},
    "jaeger": {"uber_trace_id": f"{TRACE}:{SPAN}:0:1"},
}


@pytest.mark.more
@pytest.mark.proves("OBS-06")
@pytest.mark.parametrize("name", ["w3c", "b3", "b3multi", "jaeger"])
async def test_trace_continues_in_the_deployment_behind_a_gateway(
    rig: Rig, lone_rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    far = remote([])
    with traced(rig, propagation=(name,)) as (receiver, export):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)  # of the gateway
        lone_rig.runtime.tracer = export.tracer(lone_rig.runtime.world.now)
        async with gateway_of(lone_rig, far) as served, lone_rig.serving(far), allowed(rig, served) as url:
            app = local(url, {"n": 2})
            run_id = await rig.start(app)
            async with rig.serving(app):
                await rig.ended(run_id)
        await export.flush()
    assert {span.trace_id for span in receiver.spans} == {trace_id_of(run_id)}
    sent = {span.span_id for span in receiver.named("execute_tool runtime:gateway")}
    received = receiver.named("invoke_workflow remote")
    assert len(received) == 2  # a delegation, and a tool call
    assert {span.parent_id for span in received} <= sent
    ids = [span.span_id for span in receiver.spans]
    assert [span.name for span in receiver.spans if span.parent_id not in ("", *ids)] == []


@pytest.mark.proves("OBS-06")
@pytest.mark.parametrize("name", ["w3c", "b3", "b3multi", "jaeger"])
async def test_request_of_another_system_in_any_format_is_the_parent_of_its_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    app = Heliograph("service")

    @app.agent(on_request=True)
    def double(ctx: Context) -> int:
        return 2 * int(ctx.task["n"])

    with traced(rig) as (receiver, export):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        async with gateway_of(rig, app) as served, rig.serving(app):
            answer = await served.post(delegation(), **RECEIVED[name])
            assert answer.payload["result"] == 4
            run_id = await run_of(rig, "double")
            await rig.ended(run_id)
        await export.flush()
    run = receiver.one("invoke_workflow service")
    assert (run.trace_id, run.span_id, run.parent_id) == (TRACE, span_id_of(run_id), SPAN)
    assert receiver.one("invoke_agent double").parent_id == run.span_id
    assert {span.trace_id for span in receiver.spans} == {TRACE}


async def test_request_with_invalid_headers_is_executed_in_a_trace_of_its_own(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Heliograph("service")

    @app.agent(on_request=True)
    def double(ctx: Context) -> int:
        return 2 * int(ctx.task["n"])

    with traced(rig) as (receiver, export):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        async with gateway_of(rig, app) as served, rig.serving(app):
            answer = await served.post(delegation(), traceparent="00-broken", uber_trace_id="x:y")
            assert answer.payload["result"] == 4
            await rig.ended(await run_of(rig, "double"))
        await export.flush()
    assert receiver.one("invoke_workflow service").parent_id == ""


@pytest.mark.proves("OBS-06")
async def test_callbacks_have_the_trace_of_their_turn_and_their_run(rig: Rig) -> None:
    with traced(rig, propagation=("w3c", "b3")) as (_, export):
        async with hooked() as hook:
            allow(rig, hook)
            app = application(hook.url)
            run_id, _ = await rig.runtime.start(app.workflow, {}, callback_url=f"{hook.url}?run")
            async with rig.serving(app):
                await rig.ended(run_id)
                await hook.until(lambda: len(hook.requests) == 2)
            child = await rig.turn_of("child")
        await export.flush()
    found: dict[str, Any] = {}
    for request in hook.requests:
        pairs = [(key.encode(), value.encode()) for key, value in request.headers.items()]
        contexts = [Formats([name]).read(pairs) for name in ("w3c", "b3")]
        assert contexts[0] is not None
        assert contexts[1] is not None
        assert contexts[0].span_id == contexts[1].span_id
        found[request.path] = (f"{contexts[0].trace_id:032x}", f"{contexts[0].span_id:016x}")
    trace = trace_id_of(run_id)
    assert found == {"/hook": (trace, span_id_of(child.turn_id)), "/hook?run": (trace, span_id_of(run_id))}
