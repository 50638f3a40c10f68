"""The settings of the calls that an agent makes, merged from those of the agent and those of its application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from heliograph.definitions.circuit_breakers import CircuitBreaker, SignalBreakers, breaker_among
from heliograph.definitions.rate_limits import SignalRates
from heliograph.definitions.retry_settings import SignalPolicies
from heliograph.definitions.signal_timeouts import TOOL_CALL_SECONDS, SignalTimeouts, Timeout
from heliograph.policy.retry import RetryPolicy, narrowest
from heliograph.types import NotGiven, first_given

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit

CallType: TypeAlias = Literal["tool_call", "delegation"]


class Scope(Protocol):
    """An agent or an application: it has settings per type of control signal."""

    @property
    def signal_timeouts(self) -> SignalTimeouts: ...
    @property
    def signal_policies(self) -> SignalPolicies: ...
    @property
    def signal_breakers(self) -> SignalBreakers: ...
    @property
    def signal_rates(self) -> SignalRates: ...


@dataclass(frozen=True, slots=True)
class CallSettings:
    """The settings of an agent's calls of one type of control signal; a call may have its own.

    None where neither the agent nor its application has a setting, or where the narrower one switches it off.
    """

    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None
    circuit_breaker: CircuitBreaker | None = None
    rate_limit: RateLimit | None = None

    @classmethod
    def of(cls, kind: CallType, *scopes: Scope) -> CallSettings:
        """The settings of the first scope that has them, the narrowest scope first."""
        return cls(
            first_given(*(getattr(each.signal_timeouts, kind) for each in scopes), _DEFAULT_SECONDS[kind]),
            narrowest(*(getattr(each.signal_policies, kind) for each in scopes)),
            breaker_among(*(getattr(each.signal_breakers, kind) for each in scopes)),
            first_given(*(getattr(each.signal_rates, kind) for each in scopes)),
        )

    def timeout_of(self, own: Timeout) -> float | None:
        """The timeout of a call: its own, otherwise that of the settings."""
        return self.timeout_seconds if isinstance(own, NotGiven) else own


_DEFAULT_SECONDS: dict[CallType, float | None] = {"tool_call": TOOL_CALL_SECONDS, "delegation": None}
