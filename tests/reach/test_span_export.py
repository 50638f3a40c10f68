"""The export of spans while the collector is unavailable, slow, or slower than the spans: it costs only spans."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http import trace_exporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext

from heliograph.redaction import keep_keys_out, keep_out, redacted_text
from heliograph.telemetry.opening import open_telemetry
from heliograph.telemetry.otel_export import FLUSH_SECONDS, SpanExport, resource
from heliograph.telemetry.otel_outage import ExportOutage
from heliograph.telemetry.otel_redaction import without_secrets
from heliograph.telemetry.otel_spans import RunContext
from heliograph.telemetry.settings import TelemetrySettings
from tests.reach.otlp_receiver import receiving_http

NOW = datetime(2026, 1, 15, 10, 30, tzinfo=UTC)


def now() -> datetime:
    return NOW


def export_to(endpoint: str, **options: Any) -> SpanExport:
    return SpanExport(TelemetrySettings(is_on=True, endpoint=endpoint, **options))


def record(export: SpanExport, count: int, **attributes: Any) -> None:
    tracer, run = export.tracer(now), RunContext("run_a", 1, None, is_sampled=True)
    for n in range(count):
        tracer.recording.spans.record(
            run, f"span {n}", None, since=NOW, until=NOW + timedelta(seconds=1), attributes=attributes
        )


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records
            if record.name.startswith(("heliograph.telemetry", "opentelemetry", "urllib3"))]  # fmt: skip


async def test_spans_arrive_with_their_times(caplog: pytest.LogCaptureFixture) -> None:
    with receiving_http() as receiver, caplog.at_level(logging.INFO):
        export = export_to(receiver.endpoint)
        record(export, 2)
        await export.flush()
    assert [span.name for span in receiver.spans] == ["span 0", "span 1"]
    assert receiver.spans[0].end - receiver.spans[0].start == 1_000_000_000
    assert lines(caplog) == []


async def test_outage_is_one_line_and_its_end_another(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving_http() as receiver, caplog.at_level(logging.INFO):
        receiver.status = 400  # not retried, so that each batch fails at once
        export = export_to(receiver.endpoint)
        for _ in range(3):
            record(export, 2)
            await export.flush()
        assert [level for level, _ in lines(caplog)] == ["WARNING"]
        assert f"{receiver.endpoint} does not accept spans" in lines(caplog)[0][1]
        receiver.status = 200
        record(export, 1)
        await export.flush()
    assert receiver.requests >= 4
    assert lines(caplog)[1:] == [
        ("INFO", f"the collector at {receiver.endpoint} accepts data again; 6 items were lost")
    ]


@pytest.mark.more
async def test_collector_that_does_not_exist_delays_neither_spans_nor_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        export = export_to(f"http://127.0.0.1:{unused.getsockname()[1]}")
        before = time.monotonic()
        record(export, 100)
        assert time.monotonic() - before < 1
        await export.flush()
        assert time.monotonic() - before < FLUSH_SECONDS + 2
    assert len(lines(caplog)) == 1


@pytest.mark.more
async def test_slow_collector_and_full_queue_cost_spans_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    with receiving_http() as receiver:
        receiver.delay = 8.0
        export = export_to(receiver.endpoint)
        before = time.monotonic()
        record(export, 5_000)
        assert time.monotonic() - before < 3
        before = time.monotonic()
        await export.flush()
        assert time.monotonic() - before < FLUSH_SECONDS + 1
        receiver.delay = 0.0
    assert [level for level, _ in lines(caplog)] == ["WARNING"]
    assert "as fast as they are recorded" in lines(caplog)[0][1]


async def test_secrets_in_the_spans_of_libraries_are_redacted() -> None:
    keep_out("export-canary-1")
    with receiving_http() as receiver:
        export = export_to(receiver.endpoint)
        record(export, 1, error="it is export-canary-1", parts=["export-canary-1", "b"], number=1)
        await export.flush()
    assert receiver.spans[0].attributes == {"error": "it is ***", "parts": ["***", "b"], "number": 1}


async def test_secrets_in_events_links_and_the_resource_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_out("export-canary-2")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,token=export-canary-2")
    assert resource().attributes["token"] == "***"
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("library")
    context = SpanContext(1, 2, is_remote=True)
    for name, links in (("export-canary-2", []), ("clean", [Link(context, {"of": "export-canary-2"})])):
        span = tracer.start_span("span", links=links)
        span.add_event(name)
        span.end()
        assert isinstance(span, ReadableSpan)
        assert "canary" in f"{span.events[0].name} {[link.attributes for link in span.links]}"
        clean = without_secrets([span])[0]
        assert "canary" not in f"{clean.events[0].name} {[link.attributes for link in clean.links]}"
        assert "***" in f"{clean.events[0].name} {[link.attributes for link in clean.links]}"


def test_headers_for_the_collector_are_secrets() -> None:
    keep_keys_out({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20export-canary-3,x-key=export-canary-4"})
    assert redacted_text("Bearer export-canary-3, export-canary-3, export-canary-4") == "***, ***, ***"


def test_headers_that_name_a_data_set_or_a_tenant_are_no_secrets() -> None:
    written = "x-dataset=production-metrics,x-scope-orgid=heliograph,x-auth=heliograph,x-team=Canary5canary5canary5"
    keep_keys_out({"OTEL_EXPORTER_OTLP_HEADERS": written})
    text = "production-metrics of heliograph"
    assert (redacted_text(text), redacted_text("Canary5canary5canary5")) == (text, "***")


async def test_collector_that_answers_nonsense_costs_no_more_than_its_spans(caplog: pytest.LogCaptureFixture) -> None:
    with receiving_http() as receiver, caplog.at_level(logging.INFO):
        receiver.answer = b"\xff" * 1000
        export = export_to(receiver.endpoint)
        record(export, 1)
        await export.flush()
        assert len(receiver.spans) == 1
        assert lines(caplog) == []
        for status in (404, 413):
            receiver.status = status
            record(export, 1)
            await export.flush()
    assert [level for level, _ in lines(caplog)] == ["WARNING"], caplog.text


async def test_session_of_a_credential_provider_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    own, asked = requests.Session(), list[str]()

    def load(variable: str) -> requests.Session:
        asked.append(variable)
        return own

    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "own")
    monkeypatch.setattr(trace_exporter, "_load_session_from_envvar", load)
    with receiving_http() as receiver:
        own.hooks["response"].append(lambda response, **_: asked.append(response.url))
        export = export_to(receiver.endpoint)
        record(export, 1)
        await export.flush()
    assert len(receiver.spans) == 1
    assert asked[-1] == f"{receiver.endpoint}/v1/traces"


@pytest.mark.parametrize("status", [301, 308])
async def test_redirect_of_the_collector_is_an_outage(caplog: pytest.LogCaptureFixture, status: int) -> None:
    with receiving_http() as receiver, caplog.at_level(logging.INFO):
        receiver.status = status
        export = export_to(receiver.endpoint)
        record(export, 1)
        await export.flush()
        assert [level for level, _ in lines(caplog)] == ["WARNING"]
        receiver.status = 200
        record(export, 1)
        await export.flush()
    assert len(receiver.spans) == 1


async def test_collector_that_closes_each_connection_is_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.2")

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server:
        export = export_to(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(2):
            record(export, 1)
            await export.flush()
    assert [level for level, _ in lines(caplog)] == ["WARNING"]


def test_sustained_overload_is_one_line_although_the_collector_accepts_some_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = iter(range(0, 10_000, 10))
    outage = ExportOutage("http://collector:4318", lambda: float(next(clock)))
    with caplog.at_level(logging.INFO):
        for _ in range(50):
            outage.was_full()
            outage.succeeded()
            assert not outage.is_rejecting
        assert [level for level, _ in lines(caplog)] == ["WARNING"]
        for _ in range(10):
            outage.succeeded()
    assert [level for level, _ in lines(caplog)] == ["WARNING", "INFO"]
    assert "50 items were lost" in lines(caplog)[1][1]


async def test_telemetry_that_is_off_has_a_tracer_without_spans() -> None:
    async with open_telemetry(TelemetrySettings(), now) as tracer:
        assert tracer.memory_of_start() == {}
        assert tracer.headers_of("run_a", None, {}) == {}
    async with open_telemetry(TelemetrySettings(is_on=True, traces=False), now) as tracer:
        assert tracer.headers_of("run_a", None, {}) == {}
