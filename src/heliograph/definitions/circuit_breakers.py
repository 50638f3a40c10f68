"""The circuit breakers of an application: rules for rejecting calls of a target that keeps failing.

The settings of a tool or agent override those of the type of signal. `enabled: false` switches a wider setting off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from heliograph.definitions.ranges import check_range, check_seconds
from heliograph.errors import InvalidInput
from heliograph.types import JsonObject, first_given

if TYPE_CHECKING:
    from heliograph.control.settings import CircuitBreakerSettings

_COUNT_MAX = 1000
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


def check_circuit_breaker(value: CircuitBreaker | Mapping[str, Any] | None, path: str) -> CircuitBreaker | None:
    """Read the circuit breaker of a tool, an agent or a call. Raises InvalidInput."""
    if value is None:
        return None
    from heliograph.control.settings import CircuitBreakerSettings
    from heliograph.control.wire_model import read_model

    given = asdict(value) if isinstance(value, CircuitBreaker) else value
    return checked_breaker(read_model(CircuitBreakerSettings, given, path), path)


def checked_breaker(settings: CircuitBreakerSettings, path: str) -> CircuitBreaker:
    """Return the breaker of parsed settings. Raises InvalidInput for values out of range."""
    made = CircuitBreaker(**settings.to_wire())  # type: ignore[arg-type]  # the settings have the same fields
    for name in ("failure_threshold", "success_threshold", "half_open_max_calls"):
        check_range(getattr(made, name), 1, _COUNT_MAX, f"{path}/{name}")
    check_seconds(made.timeout_seconds, f"{path}/timeout_seconds")
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
