"""Envelopes and route tables: the examples, required keys, wildcards, precedence, and malformed routes."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.envelope import Envelope, read_envelope
from heliograph.control.payloads import DelegationPayload, HaltPayload, Priority, ToolCallPayload
from heliograph.control.rates import RateLimit
from heliograph.control.routing import Destination, Match, Route, RouteTable, read_routes
from heliograph.control.signals import DelegationSignal, HaltSignal, ToolCallSignal, WireSignal
from heliograph.control.wildcard import compile_wildcard
from heliograph.errors import InvalidInput
from heliograph.signals.json_parser import parse_json
from tests.rules.control_examples import ENVELOPE, ROUTES

NOW = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)


def example_of_an_envelope() -> Envelope:
    lint = ToolCallSignal(payload=ToolCallPayload(tool_name="lint", parameters={"file": "main.py"}))
    return Envelope(
        id="msg-uuid-123", timestamp=NOW, source="orchestrator-agent", destination="code-review-agent",
        trace_id="trace-abc123", span_id="span-def456", signal=lint,
    )  # fmt: skip


def example_of_routes() -> RouteTable:
    return RouteTable(
        api_version="ossa/v0.4.9",
        routes=(
            Route(match=Match(signal_type="delegation", target_agent="security-*"),
                  destination=Destination(queue="security-agents", priority="high")),
            Route(match=Match(signal_type="tool_call", tool_name="external_*"),
                  destination=Destination(gateway="external-gateway", rate_limit=RateLimit(10, 1))),
        ),
    )  # fmt: skip


def tool(name: str) -> WireSignal:
    return ToolCallSignal(payload=ToolCallPayload(tool_name=name, parameters={}))


def delegation(target: str) -> WireSignal:
    return DelegationSignal(payload=DelegationPayload(target_agent=target, task={}))


def halt() -> WireSignal:
    return HaltSignal(payload=HaltPayload(reason="user_interrupt"))


def table(*routes: tuple[dict[str, Any], dict[str, Any]], **more: Any) -> RouteTable:
    listed = [{"match": match, "destination": destination} for match, destination in routes]
    return read_routes({"kind": "MessageRouting", "routes": listed, **more})


def queue_of(routes: RouteTable, signal: WireSignal) -> str | None:
    found = routes.destination_of(signal)
    return None if found is None else found.queue


def rejected(match: Any = None, destination: Any = None, **more: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        table(
            ({"tool_name": "a"} if match is None else match, {"queue": "q"} if destination is None else destination),
            **more,
        )
    return caught.value


@pytest.mark.proves("ENV-01", "ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-06", "ENV-07", "ENV-08", "G-18")
def test_example_of_an_envelope_is_the_same_over_the_wire_and_in_python() -> None:
    received = read_envelope(parse_json(json.dumps(ENVELOPE)))
    assert received == example_of_an_envelope()
    sent = example_of_an_envelope().to_wire()
    assert read_envelope(parse_json(json.dumps(sent))) == example_of_an_envelope()
    signal = {
        "type": "tool_call",
        "async": True,
        "timeout_seconds": 60,
        "payload": {"tool_name": "lint", "parameters": {"file": "main.py"}},
    }
    assert sent == {"envelope": {**ENVELOPE["envelope"], "signal": signal}}


@pytest.mark.proves("ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-06", "ENV-07", "ENV-08")
@pytest.mark.parametrize(
    "key", ["id", "timestamp", "source", "destination", "trace_id", "span_id", "signal", "signal/type", "signal/payload",
            "signal/payload/tool_name"],
)  # fmt: skip
def test_envelope_without_a_required_key_is_rejected_with_its_pointer(key: str) -> None:
    wire = copy.deepcopy(ENVELOPE)
    owner, *rest = wire["envelope"], *key.split("/")
    for part in rest[:-1]:
        owner = owner[part]
    del owner[rest[-1]]
    with pytest.raises(InvalidInput) as caught:
        read_envelope(wire)
    assert (caught.value.code, caught.value.path) == ("required_field", f"/envelope/{key}")


@pytest.mark.proves("ENV-01", "ENV-08")
@pytest.mark.parametrize(
    ("wire", "path"),
    [({}, "/envelope"), (ENVELOPE["envelope"], "/envelope"), ({"envelope": []}, "/envelope"), ([], None),
     ({"envelope": {**ENVELOPE["envelope"], "signal": {"type": "tool_cal", "payload": {}}}}, "/envelope/signal/type"),
     ({"envelope": {**ENVELOPE["envelope"], "hops": 1}}, "/envelope/hops"),
     ({"envelope": {**ENVELOPE["envelope"], "id": 7}}, "/envelope/id")],
)  # fmt: skip
def test_malformed_envelope_is_rejected_with_its_pointer(wire: Any, path: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_envelope(wire)
    assert caught.value.path == path


@pytest.mark.proves("G-18", "ENV-03")
def test_envelope_has_the_time_in_utc_and_gives_it_to_its_signal() -> None:
    later = {**ENVELOPE["envelope"], "timestamp": "2024-01-15T12:30:00+02:00"}
    received = read_envelope(
        {"envelope": {**later, "signal": {**later["signal"], "timestamp": "2020-01-01T00:00:00Z"}}}
    )
    assert received.timestamp == received.signal.timestamp == NOW
    wire: Any = received.to_wire()["envelope"]
    assert wire["timestamp"] == "2024-01-15T10:30:00Z"
    assert "timestamp" not in wire["signal"]
    built = Envelope(**{**dict(example_of_an_envelope()), "timestamp": NOW.astimezone(timezone(timedelta(hours=-5)))})
    assert built == example_of_an_envelope()


@pytest.mark.proves("RTE-01", "RTE-02", "RTE-03", "RTE-04", "RTE-05", "RTE-06", "RTE-07", "RTE-08")
def test_example_of_a_route_table_is_the_same_over_the_wire_and_in_python() -> None:
    assert read_routes(parse_json(json.dumps(ROUTES))) == example_of_routes()
    assert example_of_routes().to_wire() == ROUTES


@pytest.mark.proves("RTE-02", "RTE-03", "RTE-04", "RTE-05", "RTE-06", "RTE-07", "RTE-08")
def test_routes_of_the_example_match_by_type_target_and_tool() -> None:
    first = example_of_routes().destination_of(delegation("security-audit"))
    assert first is not None
    assert (first.queue, first.gateway, first.priority) == ("security-agents", None, "high")
    second = example_of_routes().destination_of(tool("external_mail"))
    assert second is not None
    assert (second.queue, second.gateway, second.rate_limit) == (None, "external-gateway", RateLimit(10, 1))
    for signal in (
        delegation("insecurity-audit"),
        tool("security-x"),
        tool("internal_mail"),
        delegation("external_mail"),
        halt(),
    ):
        assert example_of_routes().destination_of(signal) is None


@pytest.mark.proves("RTE-01")
@pytest.mark.parametrize(
    ("place", "path"),
    [(("kind",), "/kind"), (("routes",), "/routes"), (("routes", 1, "match"), "/routes/1/match"),
     (("routes", 0, "destination"), "/routes/0/destination")],
)  # fmt: skip
def test_route_table_without_a_required_key_is_rejected_with_its_pointer(place: tuple[Any, ...], path: str) -> None:
    wire: Any = copy.deepcopy(ROUTES)
    owner = wire
    for part in place[:-1]:
        owner = owner[part]
    del owner[place[-1]]
    with pytest.raises(InvalidInput) as caught:
        read_routes(wire)
    assert (caught.value.code, caught.value.path) == ("required_field", path)


@pytest.mark.proves("G-24")
def test_first_route_that_matches_decides() -> None:
    routes = table(({"tool_name": "mail"}, {"queue": "one"}), ({"tool_name": "*"}, {"queue": "two"}),
                   ({"signal_type": "tool_call"}, {"queue": "three"}))  # fmt: skip
    assert [queue_of(routes, tool(name)) for name in ("mail", "search")] == ["one", "two"]


@pytest.mark.proves("G-24")
def test_default_takes_signals_that_no_route_matches() -> None:
    route = ({"tool_name": "mail"}, {"queue": "mail"})
    assert queue_of(table(route, default={"queue": "rest"}), halt()) == "rest"
    assert queue_of(table(route), halt()) is None
    assert queue_of(table(default={"queue": "rest"}), tool("mail")) == "rest"


@pytest.mark.proves("G-24", "RTE-05", "RTE-07")
@pytest.mark.parametrize("destination", [{}, {"priority": "high"}, {"queue": "q", "gateway": "g"}])
def test_destination_with_both_or_neither_of_queue_and_gateway_is_rejected(destination: Any) -> None:
    error = rejected(destination=destination)
    assert (error.code, error.path) == ("queue_or_gateway", "/routes/0/destination")
    assert "it must have exactly one of them" in error.message
    assert rejected(default=destination).path == "/default"


@pytest.mark.proves("G-25", "RTE-06")
def test_priority_of_the_payload_wins_unless_the_route_forces_its_own() -> None:
    plain, forced = Destination(queue="q", priority="low"), Destination(queue="q", priority="low", force=True)
    own: tuple[Priority | None, ...] = ("critical", None)
    assert [plain.choose_priority(each) for each in own] == ["critical", "low"]
    assert [forced.choose_priority(each) for each in own] == ["low", "low"]
    assert Destination(queue="q").choose_priority(None) is None
    assert rejected(destination={"queue": "q", "force": True}).path == "/routes/0/destination/priority"


@pytest.mark.proves("RTE-08", "G-24")
@pytest.mark.parametrize(
    ("text", "rate"),
    [("10/s", (10, 1)), ("600/m", (600, 60)), ("1/h", (1, 3600)), ("1000000000/s", (1_000_000_000, 1))],
)
def test_rate_is_a_count_per_second_minute_or_hour(text: str, rate: tuple[int, int]) -> None:
    routes = table(({"tool_name": "a"}, {"queue": "q", "rate_limit": text}))
    assert routes.routes[0].destination.rate_limit == RateLimit(*rate)
    assert routes.to_wire()["routes"] == [
        {"match": {"tool_name": "a"}, "destination": {"queue": "q", "rate_limit": text}}
    ]


@pytest.mark.proves("RTE-08", "G-24")
@pytest.mark.parametrize(
    "text", ["10/x", "10/", "/s", "10", "0/s", "-1/s", "1.5/s", "10/s ", "10/min", "1000000001/s", "٣/s", 11, True]
)
def test_malformed_rate_is_rejected(text: Any) -> None:
    error = rejected(destination={"queue": "q", "rate_limit": text})
    assert (error.code, error.path) == ("invalid_rate", "/routes/0/destination/rate_limit")
    assert "must be N/s, N/m or N/h" in error.message


@pytest.mark.proves("RTE-03", "RTE-04")
@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("security-*", ["security-", "security-audit", "security-a*"], ["security", "a-security-b", "Security-x"]),
        ("*-agent", ["-agent", "a-agent"], ["agent", "a-agent-b"]),
        ("a*b*c", ["abc", "axbxc", "abbcc"], ["ab", "acb", "abcd"]),
        ("*", ["", "anything"], []),
        ("a*a", ["aa", "aba"], ["a"]),
        ("plain", ["plain"], ["plain-x", "xplain", ""]),
        ("a**b", ["ab", "axb"], ["a"]),
    ],
)
def test_wildcard_matches_any_characters(text: str, matching: list[str], other: list[str]) -> None:
    compiled = compile_wildcard(text)
    assert [name for name in (*matching, *other) if compiled.matches(name)] == matching


@pytest.mark.proves("RTE-03")
@given(st.text("ab*", min_size=1, max_size=8), st.text("ab", max_size=12))
def test_wildcard_agrees_with_a_slow_matcher(text: str, name: str) -> None:
    assert compile_wildcard(text).matches(name) == fnmatchcase(name, text)


@pytest.mark.proves("RTE-02", "RTE-03", "RTE-04")
@pytest.mark.parametrize(
    ("match", "code", "path"),
    [
        ({}, "required_field", ""),
        ({"signal_type": "delegatio"}, "unknown_signal_type", "/signal_type"),
        ({"signal_type": "x*"}, "unknown_signal_type", "/signal_type"),
        ({"target_agent": "a?"}, "invalid_wildcard", "/target_agent"),
        ({"target_agent": ""}, "out_of_range", "/target_agent"),
        ({"tool_name": "x" * 201}, "invalid_wildcard", "/tool_name"),
        ({"tool_name": 7}, "wrong_type", "/tool_name"),
        ({"agent": "a"}, "unknown_field", "/agent"),
        ({"signal_type": "halt", "tool_name": "a"}, "matches_nothing", ""),
        ({"target_agent": "a", "tool_name": "b"}, "matches_nothing", ""),
    ],
)
def test_match_that_is_malformed_or_never_true_is_rejected(match: Any, code: str, path: str) -> None:
    error = rejected(match)
    assert (error.code, error.path) == (code, f"/routes/0/match{path}")


@pytest.mark.proves("RTE-02")
def test_type_of_a_match_may_be_a_wildcard() -> None:
    routes = table(({"signal_type": "delegation*"}, {"queue": "d"}), ({"signal_type": "*"}, {"queue": "all"}))
    assert [queue_of(routes, signal) for signal in (delegation("a"), tool("a"), halt())] == ["d", "all", "all"]


@pytest.mark.proves("RTE-01", "RTE-05")
@pytest.mark.parametrize(
    ("more", "code", "path"),
    [({"kind": "RuntimeSpec"}, "invalid_enum", "/kind"), ({"apiVersion": "ossa/v1"}, "invalid_enum", "/apiVersion"),
     ({"routes": {}}, "wrong_type", "/routes"), ({"routes": [3]}, "wrong_type", "/routes/0"),
     ({"api_version": "ossa/v0.4.9"}, "unknown_field", "/api_version"), ({"default": {"queue": "q*"}}, "invalid_id", "/default/queue")],
)  # fmt: skip
def test_malformed_route_table_is_rejected(more: Any, code: str, path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_routes({"kind": "MessageRouting", "routes": [], **more})
    assert (caught.value.code, caught.value.path) == (code, path)
