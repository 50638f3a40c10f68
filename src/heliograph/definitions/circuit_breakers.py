"""The circuit breakers of an application: rules for rejecting calls of a target that keeps failing.

The settings of a tool or agent override those of the type of signal. `enabled: false` switches a wider setting off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heliograph.errors import InvalidInput
from heliograph.policy.retry import SECONDS_MAX
from heliograph.types import JsonObject, first_given

_TYPES = ("tool_call", "delegation")
_COUNT_MAX = 1000
_SECONDS_MIN = 0.001
_TYPE_OF_KIND = {"child": "delegation", "model": "model_call"}


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """One target is not called while it fails; all workers share the breaker.

    It opens after `failure_threshold` failures in a row, and calls then fail at once with CIRCUIT_OPEN. After
    `timeout_seconds` it is half open and admits `half_open_max_calls` trials. `success_threshold` successes close it; once
    they are out of reach, it opens again. Timeouts and recoverable errors are failures; other errors are not counted.
    """

    failure_threshold: int = 5
    success_threshold: int = 2
    timeout_seconds: float = 60.0
    half_open_max_calls: int = 3
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class SignalBreakers:
    """The breakers per type of control signal; None where the type has none."""

    tool_call: CircuitBreaker | None = None
    delegation: CircuitBreaker | None = None


NO_BREAKERS = SignalBreakers()


def check_signal_breakers(value: Mapping[str, Any] | None, path: str = "/control_signals") -> SignalBreakers:
    """Read the circuit breakers of the map `control_signals`. Raises InvalidInput."""
    if value is None:
        return NO_BREAKERS
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    return SignalBreakers(**{
        kind: _checked(given.to_wire(), f"{path}/{kind}/circuit_breaker")
        for kind in _TYPES if (given := getattr(settings, kind).circuit_breaker) is not None
    })  # fmt: skip


def check_circuit_breaker(value: CircuitBreaker | Mapping[str, Any] | None, path: str) -> CircuitBreaker | None:
    """Read the circuit breaker of a tool, an agent or a call. Raises InvalidInput."""
    if value is None:
        return None
    from heliograph.control.settings import CircuitBreakerSettings
    from heliograph.control.wire_model import read_model

    given = asdict(value) if isinstance(value, CircuitBreaker) else value
    return _checked(read_model(CircuitBreakerSettings, given, path).to_wire(), path)


def _checked(wire: JsonObject, path: str) -> CircuitBreaker:
    made = CircuitBreaker(**wire)  # type: ignore[arg-type]  # the settings have the same fields
    for name in ("failure_threshold", "success_threshold", "half_open_max_calls"):
        if getattr(made, name) > _COUNT_MAX:
            raise InvalidInput(
                f"{name} must be at most {_COUNT_MAX}, not {getattr(made, name)}",
                code="out_of_range",
                path=f"{path}/{name}",
            )
    if not _SECONDS_MIN <= made.timeout_seconds <= SECONDS_MAX:
        raise InvalidInput(f"timeout_seconds must be from {_SECONDS_MIN} to {SECONDS_MAX:.0f} (366 days), not {made.timeout_seconds}",
                           code="out_of_range", path=f"{path}/timeout_seconds")  # fmt: skip
    if made.success_threshold > made.half_open_max_calls:
        raise InvalidInput(f"success_threshold ({made.success_threshold}) must be at most half_open_max_calls "
                           f"({made.half_open_max_calls}); otherwise the circuit breaker could not close", code="out_of_range",
                           path=f"{path}/success_threshold")  # fmt: skip
    return made


def breaker_among(*breakers: CircuitBreaker | None) -> CircuitBreaker | None:
    """The first breaker that is given, the narrowest setting first; None if it is disabled, or if there is none."""
    found = first_given(*breakers)
    return found if found is not None and found.enabled else None


def breaker_item(breaker: CircuitBreaker, kind: str, target: str) -> JsonObject:
    """The breaker of one call, as the kernel takes it. kind: the kind of the call, or `model`."""
    settings = asdict(breaker)
    del settings["enabled"]
    return {"type": _TYPE_OF_KIND.get(kind, "tool_call"), "target": target, **settings}
