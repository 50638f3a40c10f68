"""MessageRouting: its routes, their problems, and how it applies to an application."""

from __future__ import annotations

import pytest

from heliograph.manifest.message_routing import read_message_routing
from heliograph.manifest.problems import ManifestRejected
from tests.rules.manifest_kit import ROUTING, application, rejected, routing


@pytest.mark.proves("RTE-09", "RTE-01")
def test_route_table_of_a_manifest_replaces_that_of_the_application() -> None:
    text = ROUTING + """\
routes:
  - match: {signal_type: delegation, target_agent: "security-*"}
    destination: {queue: security-agents, priority: high}
  - match: {signal_type: tool_call, tool_name: "external_*"}
    destination: {gateway: external-gateway, rate_limit: 10/s}
"""  # fmt: skip
    app = application(gateways={"external-gateway": "https://agents.example/"})
    assert app.workflow.routes is None
    table = app.configured(routing=routing(text)).workflow.routes
    assert table is not None
    assert [(each.queue, each.gateway) for each in table.destinations] == [
        ("security-agents", None),
        (None, "https://agents.example/"),
    ]
    with pytest.raises(ManifestRejected) as caught:
        application(gateways={"external-gatewai": "https://agents.example/"}).configured(routing=routing(text))
    [problem] = caught.value.problems
    assert (problem.code, problem.line, problem.column, problem.hint) == (
        "unknown_gateway",
        7,
        28,
        "did you mean external-gatewai?",
    )


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ("routes: [{match: {}, destination: {queue: a}}]", ("out_of_range", "/routes/0/match")),
        ("routes: [{match: {tool_name: a}, destination: {}}]", ("queue_or_gateway", "/routes/0/destination")),
        ("routes: [{match: {tool_name: a}, destination: {queue: a, gateway: b}}]", ("queue_or_gateway", "/routes/0/destination")),
        ("routes: [{match: {tool_name: a}, destination: {queue: a, rate_limit: 10/d}}]", ("invalid_rate", "/routes/0/destination/rate_limit")),
        ("routes: [{match: {tool_name: a}, destination: {queue: a, priority: hihg}}]", ("invalid_enum", "/routes/0/destination/priority")),
        ("routes: [{match: {signal_type: tool_cal}, destination: {queue: a}}]", ("unknown_signal_type", "/routes/0/match/signal_type")),
        ("routes: [{match: {signal_type: halt, tool_name: x}, destination: {queue: a}}]", ("matches_nothing", "/routes/0/match")),
        ("routes: {}", ("wrong_type", "/routes")),
        ("routes: []\ndefault: {queue: 'a b'}", ("invalid_id", "/default/queue")),
    ],
)  # fmt: skip
def test_malformed_route_is_rejected_at_its_place(routes: str, expected: tuple[str, str]) -> None:
    [problem] = rejected(f"{ROUTING}{routes}\n", read=read_message_routing)
    assert (problem.code, problem.pointer) == expected
    assert problem.line >= 3
    assert problem.hint


def test_route_of_signals_that_are_not_routed_is_named() -> None:
    made = routing(ROUTING + "routes: [{match: {signal_type: heartbeat}, destination: {queue: a}}]\n")
    assert [(each.code, each.pointer) for each in made.warnings] == [("no_effect", "/routes/0/match/signal_type")]
