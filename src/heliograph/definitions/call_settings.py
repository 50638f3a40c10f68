"""The settings of the calls that an agent makes: of the agent, of its application, and both merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from heliograph.definitions.circuit_breakers import CircuitBreaker, breaker_among
from heliograph.policy.retry import RetryPolicy, narrowest
from heliograph.types import NotGiven, Timeout, first_given

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit

CallType: TypeAlias = Literal["tool_call", "delegation"]

TOOL_CALL_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of calls of one type of control signal; a call may have its own. None for no setting."""

    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None
    circuit_breaker: CircuitBreaker | None = None
    rate_limit: RateLimit | None = None

    def timeout_of(self, own: Timeout) -> float | None:
        """The timeout of a call: its own, otherwise that of the settings."""
        return self.timeout_seconds if isinstance(own, NotGiven) else own


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """The settings of an agent or an application, by the type of its calls."""

    tool_call: CallSettings = CallSettings()
    delegation: CallSettings = CallSettings()


NO_SETTINGS = SignalSettings()
_DEFAULT_SECONDS: dict[CallType, float | None] = {"tool_call": TOOL_CALL_SECONDS, "delegation": None}


def merged_settings(kind: CallType, *scopes: SignalSettings) -> CallSettings:
    """Return the settings of calls of this type. Each setting comes from the first scope that has it; the narrowest scope comes first.

    A scope that switches a retry policy or a circuit breaker off also overrides the wider scopes: the result has None.
    """
    given = [scope.tool_call if kind == "tool_call" else scope.delegation for scope in scopes]
    return CallSettings(
        first_given(*(each.timeout_seconds for each in given), _DEFAULT_SECONDS[kind]),
        narrowest(*(each.retry for each in given)),
        breaker_among(*(each.circuit_breaker for each in given)),
        first_given(*(each.rate_limit for each in given)),
    )
