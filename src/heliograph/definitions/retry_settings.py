"""The retry settings of an application and of an agent, per type of control signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy, policy_of

_TYPES = ("tool_call", "delegation")
_SETTING = "retry"
_EFFECTIVE = (_SETTING, "circuit_breaker", "rate_limit")


@dataclass(frozen=True, slots=True)
class SignalPolicies:
    """The retry policies per type of control signal; None where the type has none."""

    tool_call: RetryPolicy | None = None
    delegation: RetryPolicy | None = None


NO_POLICIES = SignalPolicies()


def check_signal_policies(value: Mapping[str, Any] | None, path: str = "/control_signals") -> SignalPolicies:
    """Read the map `control_signals`. Raises InvalidInput: `unknown_signal_type`, `no_effect`, and the errors of a retry policy."""
    if value is None:
        return NO_POLICIES
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    for kind, given in value.items():
        for key in given:
            if kind not in _TYPES or key not in _EFFECTIVE:
                raise InvalidInput(f"control_signals: '{safe_repr(key)}' of {kind} has no effect; remove it. The settings with an "
                                   f"effect are {', '.join(_EFFECTIVE)} of {' and '.join(_TYPES)}", code="no_effect", path=f"{path}/{kind}/{key}")  # fmt: skip
    read = {kind: getattr(settings, kind).retry for kind in _TYPES}
    return SignalPolicies(**{
        kind: policy_of(retry, f"{path}/{kind}/{_SETTING}") for kind, retry in read.items() if retry is not None
    })  # fmt: skip
