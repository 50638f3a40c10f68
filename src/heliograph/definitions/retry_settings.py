"""The retry settings of an application and of an agent, per type of control signal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.policy.retry import RetryPolicy, policy_of

_TYPES = ("tool_call", "delegation")


@dataclass(frozen=True, slots=True)
class SignalPolicies:
    """The retry policies per type of control signal; None where the type has none."""

    tool_call: RetryPolicy | None = None
    delegation: RetryPolicy | None = None


NO_POLICIES = SignalPolicies()


def check_signal_policies(value: Mapping[str, Any] | None, path: str = "/control_signals") -> SignalPolicies:
    """Read the retry policies of the map `control_signals`. Raises InvalidInput."""
    if value is None:
        return NO_POLICIES
    from heliograph.control.settings import read_settings  # slow to import; most applications have no such map

    settings = read_settings(value, path)
    read = {kind: getattr(settings, kind).retry for kind in _TYPES}
    return SignalPolicies(**{
        kind: policy_of(retry, f"{path}/{kind}/retry") for kind, retry in read.items() if retry is not None
    })  # fmt: skip
