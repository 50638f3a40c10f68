"""Metrics over OTLP, to a real receiver of the protocol."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from heliograph.errors import InvalidInput
from heliograph.redaction import keep_out
from heliograph.status import service
from heliograph.status.measurements import Measurements
from heliograph.telemetry.metrics import Family, Registry
from heliograph.telemetry.metrics_names import DURATION, QUEUE, SIGNAL_COUNT, SIGNAL_LATENCY, STARTED
from heliograph.telemetry.opening import open_metric_export
from heliograph.telemetry.otel_metrics import MetricExport
from heliograph.telemetry.settings import TelemetrySettings
from heliograph.turn.phases import Phase
from tests.reach.otlp_receiver import receiving_grpc, receiving_http


def recorded() -> Registry:
    registry = Registry()
    registry.add(SIGNAL_COUNT, "tool_call", "sent", amount=3)
    registry.add(STARTED[Phase.ACT], "writer")
    for milliseconds in (0.5, 7.0, 1e9):
        registry.observe(SIGNAL_LATENCY, milliseconds, "tool_call", "success")
    registry.observe(DURATION[Phase.ACT], 20, "writer")
    registry.replace(QUEUE, [(("p", "press", "default", "ready"), 4.0)])
    return registry


@pytest.mark.proves("G-29", "LC-102", "LC-103")
@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_collector_receives_the_metrics_under_the_names_of_the_specification(protocol: Any) -> None:
    with (receiving_http if protocol != "grpc" else receiving_grpc)() as receiver:
        export = open_metric_export(TelemetrySettings(is_on=True, endpoint=receiver.endpoint, protocol=protocol))
        assert export is not None
        export.send(recorded().collect())
    assert set(receiver.metrics) == {
        "signal_count", "signal_latency_ms", "agent.lifecycle.act.started", "agent.lifecycle.act.duration", "heliograph_queue_turns",
    }  # fmt: skip
    [count] = receiver.points("signal_count", "sum").items()
    assert (count[0], count[1].as_double) == (("signal_type=tool_call", "status=sent"), 3)
    assert receiver.metrics["signal_count"].sum.is_monotonic
    [latency] = receiver.points("signal_latency_ms", "histogram").values()
    assert (latency.count, latency.sum, latency.bucket_counts[0], latency.bucket_counts[-1]) == (
        3,
        1_000_000_007.5,
        1,
        1,
    )
    assert len(latency.bucket_counts) == len(latency.explicit_bounds) + 1
    assert receiver.metrics["signal_latency_ms"].unit == "ms"
    [queue] = receiver.points("heliograph_queue_turns", "gauge").values()
    assert queue.as_double == 4


def test_collector_that_is_away_is_reported_once_and_again_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    with receiving_http() as receiver, caplog.at_level(logging.INFO):
        export = MetricExport(TelemetrySettings(is_on=True, endpoint=receiver.endpoint))
        receiver.status = 400
        for _ in range(3):
            export.send(recorded().collect())
        assert len(caplog.records) == 1, caplog.text
        receiver.status = 200
        export.send(recorded().collect())
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.proves("S13")
def test_secret_in_a_label_does_not_reach_the_collector() -> None:
    keep_out("canary-77ab31f0")
    registry = Registry()
    registry.add(STARTED[Phase.ACT], "canary-77ab31f0")
    with receiving_http() as receiver:
        MetricExport(TelemetrySettings(is_on=True, endpoint=receiver.endpoint)).send(registry.collect())
    assert list(receiver.points("agent.lifecycle.act.started", "sum")) == [("agent=***",)]


def test_export_is_off_without_its_settings() -> None:
    assert open_metric_export(TelemetrySettings()) is None
    assert open_metric_export(TelemetrySettings(is_on=True, metrics=False)) is None


@pytest.mark.parametrize("interval", ["soon", "0", "-1", "1.5", "86400001", "٣"])
def test_malformed_interval_is_rejected(interval: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)
    with pytest.raises(InvalidInput, match="OTEL_METRIC_EXPORT_INTERVAL"):
        MetricExport(TelemetrySettings(is_on=True, endpoint="http://127.0.0.1:1"))


async def test_failed_export_stops_no_later_one_and_logs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    sent: list[int] = []
    third = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Export:
        interval_seconds = 0.001

        def send(self, families: list[Family]) -> None:
            sent.append(len(families))
            if len(sent) == 4:
                loop.call_soon_threadsafe(third.set)
            raise ValueError("a value that the library cannot encode")

    class Own:
        async def collect(self) -> list[Family]:
            return recorded().collect()

    sending = asyncio.create_task(service._keep_sending(cast("Measurements", Own()), cast("MetricExport", Export())))
    async with asyncio.timeout(30):
        await third.wait()
    sending.cancel()
    lines = [record.getMessage() for record in caplog.records if record.name == "heliograph.status"]
    assert lines == ["metrics were not sent; the next ones follow in 0.001 s"]
