"""Trace headers in all formats: written, read again, and ignored where they are invalid."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from heliograph.telemetry.otel_formats import Formats, read_w3c, written_w3c

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {
    "w3c": {"traceparent": f"00-{TRACE}-{SPAN}-01"},
    "b3": {"b3": f"{TRACE}-{SPAN}-1"},
    "b3multi": {"x-b3-traceid": TRACE, "x-b3-spanid": SPAN, "x-b3-sampled": "1"},
    "jaeger": {"uber-trace-id": f"{TRACE}:{SPAN}:{'0' * 16}:03"},
}


def encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.title().encode(), value.encode()) for name, value in headers.items()]


def context(flags: int = TraceFlags.SAMPLED) -> SpanContext:
    return SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=True, trace_flags=TraceFlags(flags))


@pytest.mark.proves("OBS-06")
@pytest.mark.parametrize("name", HEADERS)
def test_each_format_is_written_if_it_is_configured_and_read_in_any_case(name: str) -> None:
    assert Formats([name]).write(context()) == HEADERS[name]
    for reader in HEADERS:
        found = Formats([reader]).read(encoded(HEADERS[name]))
        assert found is not None
        assert (found.trace_id, found.span_id, bool(found.trace_flags.sampled)) == (int(TRACE, 16), int(SPAN, 16), True)


@pytest.mark.proves("OBS-06")
def test_several_formats_are_written_together_and_the_first_valid_one_is_read() -> None:
    formats = Formats(["jaeger", "w3c"])
    assert formats.write(context()) == {**HEADERS["jaeger"], **HEADERS["w3c"]}
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    found = formats.read(encoded({"traceparent": other, **HEADERS["jaeger"]}))
    assert found is not None
    assert found.trace_id == int(TRACE, 16)
    found = formats.read(encoded({"traceparent": other, "uber-trace-id": "broken"}))
    assert found is not None
    assert found.trace_id == int("1" * 32, 16)


def test_decision_not_to_record_is_written_and_read() -> None:
    for name in HEADERS:
        found = Formats([name]).read(encoded(Formats([name]).write(context(0))))
        assert found is not None
        assert not found.trace_flags.sampled


@pytest.mark.parametrize("headers", [
    {}, {"traceparent": ""}, {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {"traceparent": f"00-{TRACE}-{'0' * 16}-01"},
    {"traceparent": f"ff-{TRACE}-{SPAN}-01"}, {"traceparent": "x" * 100_000}, {"b3": "1"}, {"b3": f"{TRACE}-zz-1"}, {"b3": "a-b-c-d-e-f"},
    {"x-b3-traceid": TRACE}, {"x-b3-traceid": "٣" * 32, "x-b3-spanid": "٣" * 16}, {"uber-trace-id": "g:h:i:j"},
    {"uber-trace-id": f"{'0' * 32}:{SPAN}:0:1"}, {"uber-trace-id": "\x00"}, {"uber-trace-id": f"{TRACE}{TRACE}:{SPAN}:0:1"},
])  # fmt: skip
def test_invalid_headers_are_ignored(headers: dict[str, str]) -> None:
    for name in HEADERS:
        encoded_headers = [(key.encode(), value.encode("utf-8")) for key, value in headers.items()]
        assert Formats([name]).read(encoded_headers) is None


def test_repeated_header_is_ignored() -> None:
    assert Formats(["w3c"]).read(encoded(HEADERS["w3c"]) * 2) is None


def test_memory_of_a_run_keeps_a_context_as_text_and_ignores_other_values() -> None:
    found = read_w3c(written_w3c(context()))
    assert found is not None
    assert (found.trace_id, found.span_id) == (int(TRACE, 16), int(SPAN, 16))
    assert [read_w3c(value) for value in (None, 5, "", "broken", {"traceparent": 1})] == [None] * 5


def test_several_headers_of_the_vendors_part_are_one_list_and_a_long_part_is_dropped() -> None:
    parts = [(b"traceparent", HEADERS["w3c"]["traceparent"].encode()), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    found = Formats(["w3c"]).read(parts)
    assert found is not None
    assert found.trace_state.to_header() == "a=1,b=2"
    many = [(b"tracestate", f"key{n}=1".encode()) for n in range(1000)]
    for hostile in (
        many,
        [(b"tracestate", b",".join(value for _, value in many))],
        [(b"tracestate", "é=\u2028".encode())],
    ):
        found = Formats(["w3c"]).read(parts[:1] + hostile)
        assert found is not None
        assert found.trace_id == int(TRACE, 16)
        assert len(found.trace_state.to_header()) <= 512
