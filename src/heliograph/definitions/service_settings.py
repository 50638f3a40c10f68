"""The settings of control signals that only an application has: the grace of its stops, and the heartbeats of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from heliograph.errors import InvalidInput

if TYPE_CHECKING:
    from heliograph.control.settings import HeartbeatSettings

_PATH = "/control_signals"
GRACE_SECONDS = 10.0  # of a graceful stop, without a setting or an option
_SECONDS_MAX = 86_400
_INTERVAL_SECONDS_MIN = 0.01
_MISSED_MAX = 999


def check_grace(value: Mapping[str, Any] | None) -> float | None:
    """Read the grace of graceful stops, `force_after_seconds` of `halt`; None without this setting. Raises InvalidInput."""
    if value is None:
        return None
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, _PATH).halt
    if "force_after_seconds" not in settings.model_fields_set:
        return None
    _check_range("halt", "force_after_seconds", settings.force_after_seconds, 0, _SECONDS_MAX)
    return float(settings.force_after_seconds)


def check_heartbeat(value: Mapping[str, Any] | None) -> HeartbeatSettings | None:
    """Read the settings of heartbeats; None without any. Raises InvalidInput."""
    if value is None or "heartbeat" not in value:
        return None
    from heliograph.control.settings import read_settings

    settings = read_settings(value, _PATH).heartbeat
    if settings.interval_seconds is not None:
        _check_range("heartbeat", "interval_seconds", settings.interval_seconds, _INTERVAL_SECONDS_MIN, _SECONDS_MAX)
    if settings.timeout_seconds is not None:
        _check_range("heartbeat", "timeout_seconds", settings.timeout_seconds, _INTERVAL_SECONDS_MIN, _SECONDS_MAX)
    _check_range("heartbeat", "missed_threshold", settings.missed_threshold, 1, _MISSED_MAX)
    return settings


def _check_range(kind: str, key: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidInput(
            f"{key} must be from {least:g} to {most:g}, not {value:g}",
            code="out_of_range",
            path=f"{_PATH}/{kind}/{key}",
        )
