"""Read the map `control_signals` of an agent or an application, once. Settings without an effect are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.definitions.call_settings import NO_SETTINGS, CallSettings, SignalSettings
from heliograph.definitions.circuit_breakers import checked_breaker
from heliograph.definitions.effective_settings import OF_AGENTS, OF_APPLICATIONS, check_effective
from heliograph.definitions.ranges import GRACE_SECONDS_MAX, check_range, check_seconds
from heliograph.policy.retry import policy_of

if TYPE_CHECKING:
    from heliograph.control.settings import ControlSettings, HaltSettings, HeartbeatSettings
    from heliograph.control.settings import SignalSettings as GivenSettings

_PATH = "/control_signals"
GRACE_SECONDS = 10.0  # of a graceful stop, without a setting or an option
_INTERVAL_SECONDS_MIN = 0.01
_INTERVAL_SECONDS_MAX = 86_400
_MISSED_MAX = 999


@dataclass(frozen=True, slots=True)
class ApplicationSettings:
    """The settings of an application. calls: of its agents. grace_seconds: of graceful stops and of halts through gateways.

    None for no setting.
    """

    calls: SignalSettings = NO_SETTINGS
    grace_seconds: float | None = None
    heartbeat: HeartbeatSettings | None = None


def read_agent_settings(value: Mapping[str, Any] | None, path: str) -> SignalSettings:
    """Read the map of an agent. Raises InvalidInput: `no_effect`, `out_of_range`, and the errors of `read_settings`."""
    return NO_SETTINGS if value is None else _calls(_read(value, path, OF_AGENTS), path)


def read_application_settings(value: Mapping[str, Any] | None) -> ApplicationSettings:
    """Read the map of an application. Raises InvalidInput: `no_effect`, `out_of_range`, and the errors of `read_settings`."""
    if value is None:
        return ApplicationSettings()
    settings = _read(value, _PATH, OF_APPLICATIONS)
    calls = _calls(settings, _PATH)
    heartbeat = _heartbeat(settings.heartbeat) if "heartbeat" in value else None
    return ApplicationSettings(calls, _grace_seconds(settings.halt), heartbeat)


def _read(value: Mapping[str, Any], path: str, effective: Mapping[str, tuple[str, ...]]) -> ControlSettings:
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    check_effective(value, settings, path, effective)
    return settings


def _calls(settings: ControlSettings, path: str) -> SignalSettings:
    return SignalSettings(
        _of_type(settings.tool_call, f"{path}/tool_call"), _of_type(settings.delegation, f"{path}/delegation")
    )


def _of_type(given: GivenSettings, path: str) -> CallSettings:
    seconds, retry, breaker = given.timeout_seconds, given.retry, given.circuit_breaker
    if seconds is not None:
        check_seconds(seconds, f"{path}/timeout_seconds")
    return CallSettings(
        None if seconds is None else float(seconds),
        None if retry is None else policy_of(retry, f"{path}/retry"),
        None if breaker is None else checked_breaker(breaker, f"{path}/circuit_breaker"),
        given.rate_limit,
    )


def _grace_seconds(halt: HaltSettings) -> float | None:
    if "force_after_seconds" not in halt.model_fields_set:
        return None
    check_range(halt.force_after_seconds, 0, GRACE_SECONDS_MAX, f"{_PATH}/halt/force_after_seconds")
    return float(halt.force_after_seconds)


def _heartbeat(given: HeartbeatSettings) -> HeartbeatSettings:
    for key in ("interval_seconds", "timeout_seconds"):
        if (seconds := getattr(given, key)) is not None:
            check_range(seconds, _INTERVAL_SECONDS_MIN, _INTERVAL_SECONDS_MAX, f"{_PATH}/heartbeat/{key}")
    check_range(given.missed_threshold, 1, _MISSED_MAX, f"{_PATH}/heartbeat/missed_threshold")
    return given
