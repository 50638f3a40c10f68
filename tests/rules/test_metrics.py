"""Metrics: bounded labels, the text that Prometheus reads, and what the metrics of signals count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from heliograph.records import Wait
from heliograph.signals.model import Draft
from heliograph.telemetry import metrics_names
from heliograph.telemetry.metrics import OTHER, SERIES_MAX, VALUES_MAX, Metric, Registry
from heliograph.telemetry.metrics_database import record_database
from heliograph.telemetry.metrics_signals import OPEN_CALLS_MAX, RESERVED, TurnMetrics
from heliograph.telemetry.metrics_text import text_of

START = datetime(2026, 1, 1, tzinfo=UTC)
CALLS = Metric("calls", "counter", "Calls", ("agent",))
PAIRS = Metric("pairs", "gauge", "Pairs", ("agent", "pool"))
TIMES = Metric("times_ms", "histogram", "Times", ("agent",), (1.0, 2.5, 10.0))


def samples(registry: Registry) -> dict[tuple[str, ...], float]:
    """What Prometheus' own parser reads: values by name and labels, in the order of their names."""
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text_of(registry.collect()))
        for sample in family.samples
    }


@pytest.mark.proves("G-29")
def test_ten_thousand_names_of_agents_make_a_hundred_series_and_lose_no_count() -> None:
    registry = Registry()
    for number in range(10_000):
        registry.add(CALLS, f"agent-{number}")
        registry.observe(TIMES, number, f"agent-{number}")
    read = samples(registry)
    counts = {key: value for key, value in read.items() if key[0] == "calls_total"}
    assert len(counts) == VALUES_MAX + 1
    assert counts["calls_total", f"agent={OTHER}"] == 10_000 - VALUES_MAX
    assert sum(counts.values()) == 10_000
    assert sum(value for key, value in read.items() if key[0] == "times_ms_count") == 10_000


def test_combinations_of_labels_are_bounded_too() -> None:
    registry = Registry()
    registry.replace(PAIRS, [((f"a{n}", f"p{m}"), 1.0) for n in range(VALUES_MAX) for m in range(VALUES_MAX)])
    read = samples(registry)
    assert len(read) == SERIES_MAX + 1
    assert read["pairs", f"agent={OTHER}", f"pool={OTHER}"] == VALUES_MAX**2 - SERIES_MAX


def test_reserved_values_keep_their_series_after_an_attack() -> None:
    registry = Registry({"agent": ["writer"]})
    for number in range(1000):
        registry.add(CALLS, f"agent-{number}")
    registry.add(CALLS, "writer")
    assert samples(registry)["calls_total", "agent=writer"] == 1


@pytest.mark.proves("G-29")
@pytest.mark.parametrize("label", ["run_id", "turn", "agent_id", "trace_id", "call_id", "worker"])
def test_label_outside_the_list_is_rejected(label: str) -> None:
    with pytest.raises(ValueError, match=label):
        Metric("calls", "counter", "Calls", (label,))


def test_labels_of_any_text_reach_prometheus_unchanged() -> None:
    registry = Registry()
    names = ['a"b', "a\\b", "a\nb", "ünï", "{}", "le", "x" * 300]
    for name in names:
        registry.add(CALLS, name)
    read = [key[1].removeprefix("agent=") for key in samples(registry)]
    assert read == [name[:100] for name in names]


def test_histogram_counts_each_value_in_its_bucket_and_all_above() -> None:
    registry = Registry()
    for value in (0.5, 1.0, 2.0, 10.0, 11.0):
        registry.observe(TIMES, value, "a")
    read = samples(registry)
    assert [read["times_ms_bucket", "agent=a", f"le={bound}"] for bound in ("1", "2.5", "10", "+Inf")] == [2, 3, 4, 5]
    assert (read["times_ms_sum", "agent=a"], read["times_ms_count", "agent=a"]) == (24.5, 5)


def test_gauge_without_rows_disappears() -> None:
    registry = Registry()
    registry.replace(PAIRS, [(("a", "p"), 3.0)])
    registry.replace(PAIRS, [])
    assert samples(registry) == {}


# ── The metrics of signals ──


def metrics() -> TurnMetrics:
    return TurnMetrics(Registry(RESERVED), lambda: START + timedelta(seconds=9))


def draft(signal: str, at_ms: int = 0, /, **payload: Any) -> Draft:
    return Draft(signal, payload, at=START + timedelta(milliseconds=at_ms))


@pytest.mark.proves("OBS-01", "OBS-02", "OBS-03", "G-29")
def test_signals_have_the_names_and_labels_of_the_specification() -> None:
    counted = metrics()
    counted.logged("t", [
        draft("tool:call", id="c1", name="search"),
        draft("tool:result", 40, id="c1", name="search", status="success", output=1),
        draft("tool:call", id="c2", name="search"),
        draft("tool:result", 3000, id="c2", name="search", status="timeout"),
        draft("error", error_code="NETWORK_ERROR", message="m", recoverable=True),
        draft("thinking:delta", content="is no control signal"),
    ])  # fmt: skip
    read = samples(counted.registry)
    assert {key: value for key, value in read.items() if not key[0].endswith("_bucket")} == {
        ("signal_count_total", "signal_type=tool_call", "status=sent"): 2,
        ("signal_count_total", "signal_type=tool_call_response", "status=success"): 1,
        ("signal_count_total", "signal_type=tool_call_response", "status=timeout"): 1,
        ("signal_count_total", "signal_type=error", "status=recoverable"): 1,
        ("signal_errors_total", "error_code=TOOL_TIMEOUT", "signal_type=tool_call"): 1,
        ("signal_errors_total", "error_code=NETWORK_ERROR", "signal_type=error"): 1,
        ("signal_latency_ms_sum", "signal_type=tool_call", "status=success"): 40,
        ("signal_latency_ms_count", "signal_type=tool_call", "status=success"): 1,
        ("signal_latency_ms_sum", "signal_type=tool_call", "status=timeout"): 3000,
        ("signal_latency_ms_count", "signal_type=tool_call", "status=timeout"): 1,
    }
    text = text_of(counted.registry.collect())  # Prometheus' parser adds _total to the names of counters
    assert [line for line in text.splitlines() if line.startswith("# TYPE signal_")] == [
        "# TYPE signal_count counter",
        "# TYPE signal_errors counter",
        "# TYPE signal_latency_ms histogram",
    ]
    assert 'signal_count{signal_type="tool_call",status="sent"} 2' in text


@pytest.mark.proves("G-29")
def test_model_calls_have_the_names_of_the_conventions_for_genai() -> None:
    counted = metrics()
    counted.logged("t", [
        draft("harness:start", model="openai:small", input="x"),
        draft("harness:error", 1000, code="MODEL_TIMEOUT", message="m"),
        draft("harness:start", 1000, model="test:other", input="x"),
        draft("harness:end", 3000, usage={"inputTokens": 12, "outputTokens": 7, "costUsd": 0.1}, output="y", durationMs=2000),
    ])  # fmt: skip
    read = samples(counted.registry)
    chat, other = "gen_ai_operation_name=chat", "gen_ai_request_model=test:other"
    assert read["gen_ai_client_operation_duration_seconds_sum", "error_type=", chat, other] == 2
    assert (
        read[
            "gen_ai_client_operation_duration_seconds_sum",
            "error_type=MODEL_TIMEOUT",
            chat,
            "gen_ai_request_model=openai:small",
        ]
        == 1
    )
    assert read["gen_ai_client_token_usage_sum", chat, other, "gen_ai_token_type=input"] == 12
    assert read["gen_ai_client_token_usage_sum", chat, other, "gen_ai_token_type=output"] == 7


def test_errors_of_tools_with_ten_thousand_codes_keep_the_codes_of_the_table() -> None:
    counted = metrics()
    for number in range(10_000):
        counted.logged("t", [draft("error", error_code=f"E{number}", message="m", recoverable=False)])
    counted.logged("t", [draft("error", error_code="AUTH_ERROR", message="m", recoverable=False)])
    errors = {key: value for key, value in samples(counted.registry).items() if key[0] == "signal_errors_total"}
    assert len(errors) <= VALUES_MAX + 2
    assert sum(errors.values()) == 10_001
    assert errors["signal_errors_total", "error_code=AUTH_ERROR", "signal_type=error"] == 1


def test_result_that_arrives_before_the_suspension_is_counted_once() -> None:
    counted = metrics()
    counted.logged("t", [draft("tool:call", id="c1", name="search")])
    waits = [Wait("c1", "search", "tool", "resolved", 2, status="failed", content={"error": {"code": "NO_INK"}})]
    counted.resolved("t", waits)
    counted.resolved("t", waits)
    read = samples(counted.registry)
    assert read["signal_count_total", "signal_type=tool_call_response", "status=failed"] == 1
    assert read["signal_errors_total", "error_code=NO_INK", "signal_type=tool_call"] == 1
    assert read["signal_latency_ms_sum", "signal_type=tool_call", "status=failed"] == 9000


def test_calls_without_a_result_are_forgotten_in_the_end() -> None:
    counted = metrics()
    for number in range(OPEN_CALLS_MAX + 10):
        counted.logged(f"t{number}", [draft("tool:call", id="c1", name="search")])
    assert len(counted._opened) == OPEN_CALLS_MAX


@pytest.mark.parametrize("payload", [{}, {"id": 1, "status": None}, {"status": {"a": 1}, "error": "text"}])
@pytest.mark.parametrize("name", ["tool:call", "tool:result", "error", "heartbeat", "delegation", "halt", "ready"])
def test_malformed_payload_is_counted_like_any_other(name: str, payload: dict[str, Any]) -> None:
    counted = metrics()
    counted.logged("t", [draft(name, **payload)])
    assert sum(value for key, value in samples(counted.registry).items() if key[0] == "signal_count_total") == 1


# ── The gauges of the database ──

MEASURED = {
    "news": {
        "queues": [{"application": "press", "pool": "default", "state": "ready", "count": 3, "seconds": 1.5}],
        "leases": [{"application": "press", "state": "expired", "count": 1}],
        "outbox": [{"kind": "cmd", "count": 2, "seconds": 4}],
        "breakers": [{"type": "tool_call", "state": "open", "count": 1}],
        "budgets": [{"kind": "tokens", "maximum": 100, "used": 30, "reserved": 5}],
    }
}


def test_measurement_of_the_database_becomes_gauges_and_none_removes_them() -> None:
    registry = Registry()
    record_database(registry, MEASURED)
    assert samples(registry) == {
        ("heliograph_queue_turns", "application=press", "pool=default", "project=news", "state=ready"): 3,
        ("heliograph_queue_oldest_seconds", "application=press", "pool=default", "project=news", "state=ready"): 1.5,
        ("heliograph_leases", "application=press", "project=news", "state=expired"): 1,
        ("heliograph_outbox_messages", "kind=cmd", "project=news"): 2,
        ("heliograph_outbox_oldest_seconds", "kind=cmd", "project=news"): 4,
        ("heliograph_circuit_breakers", "kind=tool_call", "project=news", "state=open"): 1,
        ("heliograph_budgets", "amount=maximum", "kind=tokens", "project=news"): 100,
        ("heliograph_budgets", "amount=used", "kind=tokens", "project=news"): 30,
        ("heliograph_budgets", "amount=reserved", "kind=tokens", "project=news"): 5,
        ("heliograph_database_up",): 1,
    }
    record_database(registry, None)
    assert samples(registry) == {("heliograph_database_up",): 0}


def test_age_of_further_queues_is_that_of_the_oldest_and_their_number_is_the_sum() -> None:
    registry = Registry()
    queue = MEASURED["news"]["queues"][0]
    queues = [{**queue, "application": f"a{n}", "seconds": float(n)} for n in range(VALUES_MAX + 10)]
    record_database(registry, {"news": {**MEASURED["news"], "queues": queues}})
    read = samples(registry)
    other = (f"application={OTHER}", "pool=default", "project=news", "state=ready")
    assert read["heliograph_queue_turns", *other] == 30
    assert read["heliograph_queue_oldest_seconds", *other] == VALUES_MAX + 9


def test_every_metric_has_its_own_name_and_text_on_one_line() -> None:
    every = metrics_names.ALL
    assert len({metric.text_name for metric in every}) == len(every) > 20
    assert [metric.name for metric in every if not metric.help or {"\n", "\\"} & set(metric.help)] == []
    assert [
        m.name for m in every if (m.kind == "histogram") != bool(m.buckets) or list(m.buckets) != sorted(m.buckets)
    ] == []


def test_secret_in_a_label_is_replaced_by_stars() -> None:
    from heliograph.redaction import keep_out

    keep_out("canary-9f2b7c1d")
    registry = Registry()
    registry.add(CALLS, "agent canary-9f2b7c1d")
    assert samples(registry) == {("calls_total", "agent=agent ***"): 1}
