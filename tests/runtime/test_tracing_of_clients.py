"""Messages that clients send: their spans, and the trace of the sender."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from heliograph import Client, Context, Heliograph
from heliograph.ids import span_id_of, trace_id_of
from heliograph.ledger.reader import Reader
from heliograph.telemetry.settings import TelemetrySettings
from tests.reach.otlp_receiver import receiving_http
from tests.runtime.kit import START, Rig
from tests.runtime.test_tracing import check_whole, traced

SENDER = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def office() -> Heliograph:
    """An application whose run goes on until its call has a result."""
    app = Heliograph("office")

    @app.agent(activate_on=START)
    async def clerk(ctx: Context) -> Any:
        return await ctx.call("stamp", {})

    @app.agent(on_request=True)
    def reader(ctx: Context) -> int:
        return 1

    return app


async def sent(rig: Rig, client: Client, run_id: str, *turn_ids: str) -> None:
    """Start a run, let `client` send its messages, and end the run."""
    app = office()
    await rig.start(app, {}, run_id)
    async with rig.serving(app):
        [command] = await rig.taken("stamp")
        with use_span(NonRecordingSpan(SENDER)):
            for turn_id in turn_ids:
                await client.enqueue(run_id, "reader", turn_id=turn_id)
        await command.report(result=1)
        await rig.ended(run_id)


@pytest.mark.proves("OBS-05")
async def test_message_is_recorded_once_with_a_link_to_a_sender_of_another_trace(rig: Rig) -> None:
    run_id = f"{rig.runtime.settings.project}-sent"
    turn_id = f"turn_{run_id}"
    with traced(rig) as (receiver, export):
        await sent(rig, rig.client, run_id, turn_id, turn_id)
        await export.flush()
    check_whole(receiver, run_id)
    enqueued, turn = receiver.one("enqueue reader"), receiver.one("invoke_agent reader")
    assert (enqueued.span_id, enqueued.parent_id) == (span_id_of(f"{turn_id}/enqueue"), span_id_of(run_id))
    assert enqueued.links == [f"{SENDER.span_id:016x}"]
    assert receiver.one("claim reader").links == [enqueued.span_id]
    assert enqueued.attributes["heliograph.turn.id"] == turn.attributes["heliograph.turn.id"] == turn_id


@pytest.mark.proves("OBS-06")
async def test_message_of_the_sender_that_has_started_the_run_is_below_its_span(rig: Rig) -> None:
    run_id = f"{rig.runtime.settings.project}-own"
    with traced(rig) as (receiver, export):
        with use_span(NonRecordingSpan(SENDER)):
            await sent(rig, rig.client, run_id, f"turn_{run_id}")
        await export.flush()
    enqueued = receiver.one("enqueue reader")
    assert (enqueued.parent_id, enqueued.links) == (f"{SENDER.span_id:016x}", [])
    assert {span.trace_id for span in receiver.spans} == {f"{SENDER.trace_id:032x}"}
    assert receiver.one("invoke_workflow office").parent_id == f"{SENDER.span_id:016x}"


async def test_client_with_a_database_of_its_own_exports_when_it_closes(rig: Rig) -> None:
    run_id = f"{rig.runtime.settings.project}-apart"
    with receiving_http() as receiver:
        settings = TelemetrySettings(is_on=True, endpoint=receiver.endpoint)
        async with Client(rig.url, rig.runtime.settings.project, telemetry=settings) as client:
            await sent(rig, client, run_id, f"turn_{run_id}")
    assert receiver.one("enqueue reader").trace_id == trace_id_of(run_id)


async def test_client_without_telemetry_reads_and_imports_nothing_for_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*_: object) -> dict[str, Any]:
        raise AssertionError("the trace of the run was read")

    monkeypatch.setattr(Reader, "trace_of_run", read)
    monkeypatch.setitem(sys.modules, "heliograph.telemetry.otel_export", None)
    for name in ("HELIOGRAPH_OTEL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    run_id = f"{rig.runtime.settings.project}-off"
    async with Client(rig.url, rig.runtime.settings.project) as client:
        await sent(rig, client, run_id, f"turn_{run_id}")
    assert (await rig.turn_of("reader")).outcome == "success"


async def test_message_is_sent_although_the_trace_of_its_run_cannot_be_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Reader, "trace_of_run", hangs)
    monkeypatch.setattr("heliograph.client.message_client._TRACE_SECONDS", 0.05)
    run_id = f"{rig.runtime.settings.project}-frozen"
    with traced(rig) as (receiver, export):
        await sent(rig, rig.client, run_id, f"turn_{run_id}")
        await export.flush()
    assert receiver.named("enqueue reader") == []
    assert len(receiver.named("invoke_agent reader")) == 1
