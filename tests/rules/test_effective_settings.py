"""Settings of `control_signals` that an application or an agent rejects, because they would have no effect."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph import Heliograph, tool
from heliograph.control.settings import read_settings
from heliograph.definitions.agent import define_agent
from heliograph.errors import InvalidInput
from tests.rules.control_examples import SETTINGS

EXAMPLE = SETTINGS["configuration"]
CALLS = {kind: EXAMPLE[kind] for kind in ("tool_call", "delegation")}


def rejection_by_application(settings: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        Heliograph("bad", control_signals=settings)
    return caught.value


def rejection_by_agent(settings: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        define_agent("bad", run=print, on_request=True, control_signals=settings)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "key", "value", "hint"),
    [
        ("tool_call", "async", False, "always true"),
        ("delegation", "async", False, "always true"),
        ("halt", "async", True, "always false"),
        ("halt", "timeout_seconds", 6, "always 5"),
        ("tool_call", "payload", {}, "timeout_seconds, retry, circuit_breaker, rate_limit"),
        ("halt", "retry", {}, "no effect"),
        ("heartbeat", "circuit_breaker", {}, "no effect"),
        ("error", "payload", {}, "lifecycle_options"),
        ("ready", "timeout_seconds", 5, "no effect"),
    ],
)
def test_setting_without_effect_is_rejected_with_its_name_and_place(kind: str, key: str, value: Any, hint: str) -> None:
    settings = {**CALLS, kind: {key: value}}
    for path, error in (
        ("/control_signals", rejection_by_application(settings)),
        ("/agents/bad/control_signals", rejection_by_agent(settings)),
    ):
        assert (error.code, error.path) == ("no_effect", f"{path}/{kind}/{key}")
        assert f"'{key}' of {kind}" in error.message
        assert hint in error.message


@pytest.mark.parametrize("kind", ["tool_call", "delegation"])
@pytest.mark.parametrize("seconds", [1e9, 0.0001])
def test_timeout_out_of_range_is_rejected(kind: str, seconds: float) -> None:
    settings = {kind: {"timeout_seconds": seconds}}
    for error in (rejection_by_application(settings), rejection_by_agent(settings)):
        assert error.code == "out_of_range"
        assert str(error.path).endswith(f"/control_signals/{kind}/timeout_seconds")


@pytest.mark.proves("CTL-71", "CTL-72")
def test_settings_of_calls_are_accepted() -> None:
    app = Heliograph("calm", control_signals=EXAMPLE)
    app.agent(name="one", on_request=True, control_signals=CALLS)(print)
    for settings in (app.workflow.signal_settings, app.workflow.agents["one"].signal_settings):
        assert (settings.tool_call.timeout_seconds, settings.delegation.timeout_seconds) == (60, 300)
    policies = app.workflow.signal_settings.tool_call.retry, app.workflow.signal_settings.delegation.retry
    assert [each and (each.max_attempts, each.initial_delay_seconds) for each in policies] == [(3, 1), (2, 5)]


def test_map_is_parsed_once_for_each_application_and_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*args: Any) -> Any:
        parsed.append(args[1])
        return read_settings(*args)

    parsed: list[str] = []
    monkeypatch.setattr("heliograph.control.settings.read_settings", parse)
    app = Heliograph("calm", control_signals=EXAMPLE)
    app.agent(name="one", on_request=True, control_signals=CALLS)(print)
    app.agent(name="two", on_request=True)(print)
    assert app.workflow.name == "calm"
    assert parsed == ["/control_signals", "/agents/one/control_signals"]


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("halt", "force_after_seconds", 1),
        ("heartbeat", "enabled", False),
        ("heartbeat", "interval_seconds", 1),
        ("heartbeat", "missed_threshold", 1),
    ],
)
def test_setting_of_an_application_is_rejected_by_an_agent_with_the_place_to_set_it(
    kind: str, key: str, value: Any
) -> None:
    error = rejection_by_agent({kind: {key: value}})
    assert (error.code, error.path) == ("no_effect", f"/agents/bad/control_signals/{kind}/{key}")
    assert "set it in the control_signals of the application" in error.message


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("halt", "force_after_seconds", 86401),
        ("heartbeat", "interval_seconds", 0.001),
        ("heartbeat", "interval_seconds", 86401),
        ("heartbeat", "timeout_seconds", 86401),
        ("heartbeat", "missed_threshold", 1000),
    ],
)
def test_setting_of_an_application_out_of_range_is_rejected(kind: str, key: str, value: Any) -> None:
    error = rejection_by_application({kind: {key: value}})
    assert (error.code, error.path) == ("out_of_range", f"/control_signals/{kind}/{key}")


def test_null_timeout_is_no_setting() -> None:
    app = Heliograph("calm", control_signals={"tool_call": {"timeout_seconds": None}})
    app.agent(name="one", on_request=True)(print)
    assert app.workflow.signal_settings.tool_call.timeout_seconds is None


@pytest.mark.parametrize("seconds", [0, -1, "60", True, float("nan")])
def test_tool_rejects_a_timeout_that_is_no_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout_seconds must be None or a number"):
        tool(timeout_seconds=seconds)(print)
