"""The retry settings of an application and of an agent: per type of control signal, and per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy, policy_of, retry_policy

_TYPES = ("tool_call", "delegation")
_SETTING = "retry"
_EFFECTIVE = (_SETTING, "circuit_breaker")

ModelPolicies = Sequence[tuple[str, RetryPolicy]]


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
                                   f"effect are {' and '.join(_EFFECTIVE)} of {' and '.join(_TYPES)}", code="no_effect", path=f"{path}/{kind}/{key}")  # fmt: skip
    read = {kind: getattr(settings, kind).retry for kind in _TYPES}
    return SignalPolicies(**{
        kind: policy_of(retry, f"{path}/{kind}/{_SETTING}") for kind, retry in read.items() if retry is not None
    })  # fmt: skip


def check_model_policies(value: Mapping[str, Any] | None) -> ModelPolicies:
    """Read the map from names of models, in which `*` matches any characters, to `{"retry": ...}`. Raises InvalidInput."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"models must be an object of names and settings, not {safe_repr(value)}", code="wrong_type", path="/models"
        )
    from heliograph.control.model_errors import pointer
    from heliograph.control.wildcard import compile_wildcard

    policies: list[tuple[str, RetryPolicy]] = []
    for name, settings in value.items():
        path = pointer("/models", name)
        try:
            compile_wildcard(str(name))
        except InvalidInput as error:
            raise InvalidInput(f"the name of a model {error.message}", code=error.code, path=path) from None
        if not isinstance(settings, Mapping) or set(settings) != {_SETTING}:
            raise InvalidInput(f"the settings of model {safe_repr(name)} must be an object with the key '{_SETTING}', not "
                               f"{safe_repr(settings)}", code="wrong_type", path=path)  # fmt: skip
        if (policy := retry_policy(settings[_SETTING], f"{path}/{_SETTING}")) is not None:
            policies.append((str(name), policy))
    return tuple(policies)


def policy_of_model(policies: ModelPolicies, model: str) -> RetryPolicy | None:
    """Return the policy of the first pattern that matches the name of the model."""
    if not policies:
        return None
    from heliograph.control.wildcard import compile_wildcard

    return next((policy for name, policy in policies if compile_wildcard(name).matches(model)), None)
