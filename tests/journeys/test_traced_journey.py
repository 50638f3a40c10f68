"""One trace over a `kill -9`, an approval on the next day, a child on another worker, an MCP server, a callback, and another system."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heliograph import Signal
from heliograph.config import Settings
from heliograph.ids import trace_id_of
from heliograph.ledger import pool
from heliograph.ledger.kernel import KERNEL
from heliograph.runtime import Runtime, open_runtime
from heliograph.telemetry.otel_export import SpanExport
from heliograph.telemetry.otel_formats import Formats
from heliograph.telemetry.otel_spans import RunContext
from heliograph.telemetry.otel_tracer import OtelTracer
from heliograph.telemetry.settings import TelemetrySettings, read_telemetry
from tests.journeys.traced_app import app
from tests.reach.embedded_kit import eventually
from tests.reach.otlp_receiver import Receiver, receiving_grpc, receiving_http
from tests.runtime.kit import Rig
from tests.runtime.test_callbacks import SECRETS
from tests.runtime.test_tracing import check_whole

ROOT = Path(__file__).parent.parent.parent
DAY = timedelta(days=1)
Receiving = Callable[[], AbstractContextManager[Receiver]]


@contextmanager
def scale(receiver: Receiver, protocol: Any, name: str) -> Iterator[str]:
    """Another system with telemetry of its own: it answers over HTTP, and its spans continue the trace of the header that it reads."""
    export = SpanExport(TelemetrySettings(is_on=True, endpoint=receiver.endpoint, protocol=protocol))
    tracer = export.tracer(lambda: datetime.now(UTC))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            pairs = [(key.encode(), value.encode()) for key, value in self.headers.items()]
            found = Formats([name]).read(pairs)
            assert found is not None
            assert Formats([name]).write(found).keys() <= {key.lower() for key in self.headers}
            run, now = RunContext("", found.trace_id, None, is_sampled=found.trace_flags.sampled), datetime.now(UTC)
            tracer.recording.spans.record(run, f"POST {self.path}", found.span_id, since=now, until=now)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002  the name of the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def begin_and_kill(environment: dict[str, str], run_id: str, receiver: Receiver) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.journeys.traced_app", run_id], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        eventually(Path(environment["TRACED_BEGAN"]).exists, 40)
        receiver.wait_for("execute_tool weigh")
    finally:
        process.kill()
        process.communicate()


@pytest.mark.more
@pytest.mark.proves("OBS-05", "OBS-06", "OBS-08")
@pytest.mark.parametrize(
    ("protocol", "receiving", "name"),
    [
        ("grpc", receiving_grpc, "jaeger"),
        ("http/protobuf", receiving_http, "b3"),
        ("http/protobuf", receiving_http, "w3c"),
    ],
)
async def test_one_trace_covers_kill_9_an_approval_on_the_next_day_a_child_and_other_systems(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, receiving: Receiving, name: str
) -> None:
    run_id, gate = f"run_traced_{name}", tmp_path / "gate"
    with receiving() as receiver, scale(receiver, protocol, name) as url:
        own = {
            "TRACED_SYSTEM": url, "TRACED_BEGAN": str(tmp_path / "began"), "TRACED_GATE": str(gate), "OTEL_BSP_SCHEDULE_DELAY": "50",
            "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_PROPAGATORS": {"w3c": "tracecontext"}.get(name, name),
        }  # fmt: skip
        path = f"{ROOT / 'src'}:{ROOT}"
        for key, value in own.items():
            monkeypatch.setenv(key, value)
        environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": database_url, "PYTHONPATH": path}
        await asyncio.to_thread(begin_and_kill, environment, run_id, receiver)
        assert receiver.named("invoke_agent lead") == []
        gate.touch()
        settings = Settings(database_url=database_url, webhook_secrets=SECRETS, egress_allow=url)
        async with open_runtime(settings, read_telemetry(os.environ)) as runtime:
            assert isinstance(
                runtime.tracer, OtelTracer
            )  # the first exporter of this process has the spans of libraries
            monkeypatch.setattr("mcp.shared._otel._tracer", runtime.tracer.recording.spans._tracer)
            rig = Rig(runtime, database_url)
            async with rig.serving(app):
                [approval] = await approvals(rig)
            move_clocks(monkeypatch, runtime)
            async with rig.serving(app), rig.serving(app, pools=["carriers"]):
                await rig.client.grant(approval.turn_id, approval.call_id)
                log = await rig.ended(run_id)
                await asyncio.to_thread(receiver.wait_for, "POST callback")
        for span in ("invoke_workflow traced-parcels", "POST /scale", "POST /hook"):
            await asyncio.to_thread(receiver.wait_for, span)
    # the opening of the connection to an MCP server belongs to no run
    receiver.spans = [span for span in receiver.spans if span.name != "MCP send server/discover"]
    check_whole(receiver, run_id)
    check_journey(receiver, run_id)
    check_other_systems(receiver, name, log)


def move_clocks(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> None:
    """Let the next day begin: for this process, and for the kernel, which receives the time as an argument."""
    real = runtime.world.now
    monkeypatch.setattr(runtime.world, "now", lambda: real() + DAY)
    monkeypatch.setattr(
        pool, "statement_of", lambda function: KERNEL[function].statement("clock_timestamp() + interval '1 day'")
    )


async def approvals(rig: Rig) -> list[Any]:
    async with asyncio.timeout(60):
        while not (found := await rig.client.approvals()):  # noqa: ASYNC110  no event announces it
            await asyncio.sleep(0.01)
    return found


def check_journey(receiver: Receiver, run_id: str) -> None:
    lead = receiver.one("invoke_agent lead")
    assert lead.trace_id == trace_id_of(run_id)
    weighed = receiver.one("execute_tool weigh")
    assert weighed.parent_id == lead.span_id
    assert receiver.one("POST /scale").parent_id == weighed.span_id
    assert (
        receiver.one("execute_tool wait").parent_id == lead.span_id
    )  # the killed worker made it, and the next one again
    [approved] = [span for span in receiver.spans if span.attributes.get("heliograph.call.kind") == "human"]
    assert approved.end - approved.start >= DAY.total_seconds() * 10**9
    [sent] = [span for span in receiver.named("invoke_agent carrier") if span.parent_id == lead.span_id]
    [done] = [span for span in receiver.named("invoke_agent carrier") if span is not sent]
    assert done.parent_id == sent.span_id
    assert receiver.one("claim carrier").links == [receiver.one("enqueue carrier").span_id]
    assert receiver.one("enqueue carrier").parent_id == sent.span_id
    claims = sorted(receiver.named("claim lead"), key=lambda span: span.start)
    assert [claim.attributes["heliograph.outcome"] for claim in claims] == ["suspended", "suspended", "ended"]
    assert [claim.links for claim in claims[1:]] == [[claim.span_id] for claim in claims[:-1]]
    killed = claims[0].links
    assert len(killed) == 1  # the claim of the killed worker, which is missing
    assert killed[0] not in [span.span_id for span in receiver.spans]
    assert lead.end - lead.start >= DAY.total_seconds() * 10**9


def check_other_systems(receiver: Receiver, name: str, log: list[Signal]) -> None:
    """Each other system has read the trace and the span of the call to it, in the configured format."""
    run, declared = receiver.one("invoke_workflow traced-parcels"), receiver.one("execute_tool trace")
    [carried] = [span for span in receiver.named("invoke_agent carrier") if span.span_id == declared.parent_id]
    assert {span.parent_id for span in receiver.named("chat scripted")} == {carried.span_id}
    results: list[Any] = [signal.payload for signal in log if signal.name == "tool:result"]
    [meta] = [result["output"] for result in results if result["name"] == "trace"]
    found = Formats([name]).read([(key.encode(), str(value).encode()) for key, value in meta.items()])
    assert found is not None
    own = receiver.one("MCP send tools/call trace")  # of the MCP library, which writes the process's format, too
    assert own.parent_id == declared.span_id
    assert f"{found.trace_id:032x}" == declared.trace_id
    assert f"{found.span_id:016x}" in (declared.span_id, own.span_id)
    assert receiver.one("POST callback").parent_id == receiver.one("POST /hook").parent_id == run.span_id
