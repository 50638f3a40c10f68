"""The policy of heartbeats: what they contain, how a worker judges itself, and which ones the log records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from heliograph.agents import define_agent
from heliograph.control.payloads import HeartbeatPayload
from heliograph.control.settings import HeartbeatSettings
from heliograph.control.wire_model import read_model
from heliograph.definitions.ready_metadata import ready_metadata
from heliograph.models import FunctionHarness, ScriptedModel
from heliograph.policy.heartbeat import HeartbeatPolicy, assess, is_logged

AT = datetime(2024, 1, 15, 10, 30, tzinfo=UTC)
LEASE_SECONDS = 30.0


@pytest.mark.proves("CTL-64", "CTL-75")
def test_policy_has_the_defaults_of_the_specification() -> None:
    assert HeartbeatPolicy.of(HeartbeatSettings()) == HeartbeatPolicy() == HeartbeatPolicy(True, 30, 5, 3)
    own = HeartbeatSettings(enabled=False, interval_seconds=7, timeout_seconds=2, missed_threshold=9)
    assert HeartbeatPolicy.of(own) == HeartbeatPolicy(False, 7, 2, 9)


@pytest.mark.proves("CTL-74")
def test_settings_of_a_worker_count_before_those_of_its_applications() -> None:
    application = HeartbeatSettings(enabled=False, interval_seconds=7, missed_threshold=9)
    assert HeartbeatPolicy.of(None, [application]) == HeartbeatPolicy(False, 7, 5, 9)
    assert HeartbeatPolicy.of(HeartbeatSettings(missed_threshold=4), [application]) == HeartbeatPolicy(False, 7, 5, 4)
    own = HeartbeatSettings(enabled=True, interval_seconds=60)
    assert HeartbeatPolicy.of(own, [application]) == HeartbeatPolicy(True, 60, 5, 9)


@pytest.mark.proves("CTL-74")
def test_of_several_applications_the_smallest_values_count() -> None:
    slow, quick = HeartbeatSettings(interval_seconds=90, missed_threshold=2), HeartbeatSettings(interval_seconds=10)
    assert HeartbeatPolicy.of(None, [slow, quick]) == HeartbeatPolicy(True, 10, 5, 2)
    assert HeartbeatPolicy.of(None, [slow, None]) == HeartbeatPolicy(True, 30, 5, 2)
    off = HeartbeatSettings(enabled=False, interval_seconds=1)
    assert HeartbeatPolicy.of(None, [slow, off]) == HeartbeatPolicy(True, 90, 5, 2)
    assert not HeartbeatPolicy.of(None, [off, off]).is_enabled


@pytest.mark.proves("CTL-63", "CTL-65")
@pytest.mark.parametrize(
    ("metrics", "late_seconds", "status", "warnings"),
    [
        ({}, 0.0, "healthy", []),
        ({"memory_percent": 89.9, "cpu_percent": 89.9, "open_files_percent": 89.9}, 0.9, "healthy", []),
        ({"memory_percent": 94}, 0.0, "degraded", ["High memory usage: 94 % of the limit"]),
        ({"cpu_percent": 90.0}, 0.0, "degraded", ["High CPU usage: 90 % of one processor"]),
        ({"open_files_percent": 95}, 0.0, "degraded", ["Approaching resource limits: 95 % of the open files"]),
        ({}, 4.2, "degraded", ["The event loop did not run for 4.2 s: an agent or a tool blocks it"]),
        ({}, 30.0, "unhealthy", ["The event loop did not run for 30.0 s: an agent or a tool blocks it"]),
    ],
)
def test_worker_judges_itself_by_its_metrics(
    metrics: dict[str, float], late_seconds: float, status: str, warnings: list[str]
) -> None:
    health = assess(metrics, late_seconds, LEASE_SECONDS)
    assert (health.status, list(health.warnings), health.metrics) == (status, warnings, metrics)


@pytest.mark.proves("CTL-60", "CTL-61", "CTL-62", "CTL-65", "G-20", "G-21")
@pytest.mark.parametrize("phase", ["idle", "act"])
def test_payload_has_the_specified_form(phase: str) -> None:
    payload = assess({"memory_mb": 480, "memory_percent": 94}, 0.0, LEASE_SECONDS).payload(AT, phase)
    assert payload == {
        "timestamp": "2024-01-15T10:30:00.000Z", "phase": phase, "status": "degraded",
        "metrics": {"memory_mb": 480, "memory_percent": 94}, "warnings": ["High memory usage: 94 % of the limit"],
    }  # fmt: skip
    wire = read_model(HeartbeatPayload, payload).to_wire()
    assert {**payload, "timestamp": "2024-01-15T10:30:00Z"} == wire
    assert "warnings" not in assess({}, 0.0, LEASE_SECONDS).payload(AT, phase)


@pytest.mark.parametrize(
    ("was_running_before", "logged", "status", "expected"),
    [
        (False, None, "healthy", False),
        (False, None, "unhealthy", False),
        (True, None, "healthy", True),
        (True, "healthy", "healthy", False),
        (True, "healthy", "degraded", True),
        (True, "degraded", "healthy", True),
    ],
)
def test_log_records_the_first_heartbeat_of_a_long_turn_and_each_change(
    was_running_before: bool, logged: str | None, status: str, expected: bool
) -> None:
    assert is_logged(was_running_before, logged, status) is expected


@pytest.mark.proves("CTL-57")
@pytest.mark.parametrize(
    ("model", "models"),
    [
        ("openai-chat:gpt-5", [{"provider": "openai-chat", "model": "gpt-5"}]),
        ("test", [{"model": "test"}]),
        (["a:x", "b:y", "a:x"], [{"provider": "a", "model": "x"}, {"provider": "b", "model": "y"}]),
        (TestModel(), [{"provider": "test", "model": "test"}]),
        (None, [{"provider": "p", "model": "default"}]),
    ],
)
def test_metadata_names_runtime_tools_and_models(model: Any, models: list[Any]) -> None:
    agent = define_agent("a", prompt="p", activate_on=["workflow:start"], model=model)
    metadata = ready_metadata([agent], "p:default")
    assert metadata == {"runtime": metadata["runtime"], "tools_loaded": 0, "models": models}
    assert str(metadata["runtime"]).startswith("python 3.")


@pytest.mark.proves("CTL-57")
def test_metadata_of_a_model_has_a_name_that_can_be_stored() -> None:
    class Named(FunctionHarness):
        model = "a\0b\ud800" + "x" * 1000

    agent = define_agent("a", prompt="p", activate_on=["workflow:start"], model=Named(lambda _: "hello"))
    named: Any = ready_metadata([agent])["models"]
    assert named == [{"model": "a\ufffdb\ufffd" + "x" * 196}]


@pytest.mark.proves("CTL-57")
def test_metadata_of_an_agent_without_models_names_none() -> None:
    agent = define_agent("a", run=lambda _: None, activate_on=["workflow:start"])
    assert set(ready_metadata([agent], "p:default")) == {"runtime", "tools_loaded"}
    scripted = define_agent("a", prompt="p", activate_on=["workflow:start"], model=ScriptedModel("hello"))
    assert "tools_loaded" in ready_metadata([scripted])
