"""The default timeouts of an application and of an agent, per type of control signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from heliograph.errors import InvalidInput
from heliograph.policy.retry import SECONDS_MAX
from heliograph.types import NotGiven

Timeout: TypeAlias = float | None | NotGiven  # None for no limit; NOT_GIVEN for the default

TOOL_CALL_SECONDS = 60.0

_TYPES = ("tool_call", "delegation")
_SECONDS_MIN = 0.001


@dataclass(frozen=True, slots=True)
class SignalTimeouts:
    """The timeouts of calls that have none of their own, per type of control signal; None where the type has none."""

    tool_call: float | None = None
    delegation: float | None = None


NO_TIMEOUTS = SignalTimeouts()


def check_signal_timeouts(value: Mapping[str, Any] | None, path: str = "/control_signals") -> SignalTimeouts:
    """Read the timeouts of the map `control_signals`. Raises InvalidInput."""
    if value is None:
        return NO_TIMEOUTS
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    return SignalTimeouts(**{
        kind: _checked(seconds, f"{path}/{kind}/timeout_seconds")
        for kind in _TYPES if (seconds := getattr(settings, kind).timeout_seconds) is not None
    })  # fmt: skip


def _checked(seconds: float, path: str) -> float:
    if not _SECONDS_MIN <= seconds <= SECONDS_MAX:
        raise InvalidInput(f"timeout_seconds must be from {_SECONDS_MIN} to {SECONDS_MAX:.0f} (366 days), not {seconds}",
                           code="out_of_range", path=path)  # fmt: skip
    return float(seconds)
