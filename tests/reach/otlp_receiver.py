"""A real receiver of OTLP, over HTTP and over gRPC, which keeps the spans and the metrics that it receives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


@dataclass(frozen=True, slots=True)
class SeenSpan:
    """A received span; ids are in hexadecimal, and parent_id is empty for a span without one."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[str]
    is_error: bool
    service: str


@dataclass(slots=True)
class Receiver:
    """metrics: by name. status: of its responses over HTTP. delay: the seconds before each response.

    connections: the names of the spans of each connection over HTTP, by its port.
    """

    endpoint: str
    metrics: dict[str, Any] = field(default_factory=dict)
    spans: list[SeenSpan] = field(default_factory=list)
    requests: int = 0
    status: int = 200
    delay: float = 0.0
    answer: bytes = b""  # an empty message of the protocol
    connections: dict[int, set[str]] = field(default_factory=dict)

    def take(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            service = {each.key: each.value.string_value for each in group.resource.attributes}["service.name"]
            self.spans += [_seen(span, service) for scope in group.scope_spans for span in scope.spans]

    def take_metrics(self, request: ExportMetricsServiceRequest) -> None:
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                self.metrics.update({metric.name: metric for metric in scope.metrics})

    def points(self, name: str, kind: str) -> dict[tuple[str, ...], Any]:
        data = getattr(self.metrics[name], kind)
        return {tuple(f"{a.key}={a.value.string_value}" for a in each.attributes): each for each in data.data_points}

    def named(self, name: str) -> list[SeenSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> SeenSpan:
        (found,) = self.named(name)
        return found

    def wait_for(self, name: str, count: int = 1, seconds: float = 30.0) -> None:
        until = time.monotonic() + seconds
        while len(self.named(name)) < count:
            assert time.monotonic() < until, f"no {name} among {[span.name for span in self.spans]}"
            time.sleep(0.01)


@contextmanager
def receiving_http(*, keeps_connections: bool = False) -> Iterator[Receiver]:
    """Receive OTLP over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps_connections else "HTTP/1.0"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests += 1
            time.sleep(receiver.delay)
            if receiver.status == 200:
                if self.path == "/v1/traces":
                    known = len(receiver.spans)
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                    names = {span.name for span in receiver.spans[known:]}
                    receiver.connections.setdefault(self.client_address[1], set()).update(names)
                else:
                    assert self.path == "/v1/metrics"
                    receiver.take_metrics(ExportMetricsServiceRequest.FromString(body))
            answer = receiver.answer
            self.send_response(receiver.status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002  the name of the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def receiving_grpc() -> Iterator[Receiver]:
    """Receive OTLP over gRPC."""

    class Traces(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:
            receiver.requests += 1
            receiver.take(request)
            return ExportTraceServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(self, request: ExportMetricsServiceRequest, context: Any) -> ExportMetricsServiceResponse:
            receiver.take_metrics(request)
            return ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]  # it is generated
        add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
        receiver = Receiver(f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        try:
            yield receiver
        finally:
            server.stop(0).wait()


def _seen(span: Any, service: str) -> SeenSpan:
    return SeenSpan(
        span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.kind, span.start_time_unix_nano,
        span.end_time_unix_nano, {each.key: _value(each.value) for each in span.attributes},
        [link.span_id.hex() for link in span.links], span.status.code == span.status.STATUS_CODE_ERROR, service,
    )  # fmt: skip


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)
