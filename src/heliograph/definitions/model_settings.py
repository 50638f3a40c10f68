"""The settings per model of an application: retries, circuit breakers and rate limits, by names with wildcards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliograph.definitions.circuit_breakers import CircuitBreaker, check_circuit_breaker
from heliograph.definitions.rate_limits import Rate, check_rate_limit
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy, retry_policy

if TYPE_CHECKING:
    from heliograph.control.rates import RateLimit

_KEYS = ("retry", "circuit_breaker", "requests", "tokens")
_PATTERN_BYTES_MAX = 200  # the pattern names the buckets of its limits


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of the models whose names match `pattern`, in which `*` matches any characters; None where one is not set.

    requests, tokens: how many calls and tokens all workers may use together, for all models that match.
    """

    pattern: str
    retry: RetryPolicy | None = None
    circuit_breaker: CircuitBreaker | None = None
    requests: RateLimit | None = None
    tokens: RateLimit | None = None


def check_model_settings(value: Mapping[str, Any] | None) -> tuple[ModelSettings, ...]:
    """Read the map from names of models to objects with some of the keys `retry`, `circuit_breaker`, `requests` and `tokens`. Raises InvalidInput."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput(
            f"models must be an object of names and settings, not {safe_repr(value)}", code="wrong_type", path="/models"
        )
    return tuple(_settings(name, settings) for name, settings in value.items())


def policy_of_model(models: Sequence[ModelSettings], model: str) -> RetryPolicy | None:
    """Return the policy of the first pattern that matches the name of the model and has one."""
    return next((found.retry for found in _matching(models, model) if found.retry is not None), None)


def breaker_of_model(models: Sequence[ModelSettings], model: str) -> CircuitBreaker | None:
    """Return the breaker of the first pattern that matches the name of the model and has one; None if it is disabled."""
    found = next((each.circuit_breaker for each in _matching(models, model) if each.circuit_breaker is not None), None)
    return found if found is not None and found.enabled else None


def has_limits(models: Sequence[ModelSettings]) -> bool:
    """Whether any model has a rate limit."""
    return any(each.requests is not None or each.tokens is not None for each in models)


def limits_of_model(models: Sequence[ModelSettings], model: str) -> Sequence[ModelSettings]:
    """Return all settings with limits that match the name of a model, for example those of its provider and its own."""
    return _matching([each for each in models if each.requests is not None or each.tokens is not None], model)


def rates_of_model(limits: Sequence[ModelSettings], tokens: int) -> tuple[Rate, ...]:
    """Return the rates of one model call with this estimate of its tokens."""
    rates = list[Rate]()
    for limit in limits:
        if limit.requests is not None:
            rates.append(Rate("model", limit.pattern, limit.requests.count, limit.requests.seconds))
        if limit.tokens is not None:
            rates.append(Rate("model_tokens", limit.pattern, limit.tokens.count, limit.tokens.seconds, tokens))
    return tuple(rates)


def _settings(name: Any, settings: Any) -> ModelSettings:
    from heliograph.control.wildcard import compile_wildcard
    from heliograph.json_pointer import pointer

    path = pointer("/models", name)
    try:
        compile_wildcard(str(name))
    except InvalidInput as error:
        raise InvalidInput(f"the name of a model {error.message}", code=error.code, path=path) from None
    if not isinstance(settings, Mapping) or not settings or set(settings) - set(_KEYS):
        raise InvalidInput(f"the settings of model {safe_repr(name)} must be an object with some of the keys {', '.join(_KEYS)}, "
                           f"not {safe_repr(settings)}", code="wrong_type", path=path)  # fmt: skip
    limits = [check_rate_limit(settings.get(key), f"{path}/{key}") for key in ("requests", "tokens")]
    if any(limits) and len(str(name).encode()) > _PATTERN_BYTES_MAX:
        raise InvalidInput(f"the name of a model with limits must have at most {_PATTERN_BYTES_MAX} bytes, not {safe_repr(name)}",
                           code="too_long", path=path)  # fmt: skip
    return ModelSettings(str(name), retry_policy(settings.get("retry"), f"{path}/retry"),
                         check_circuit_breaker(settings.get("circuit_breaker"), f"{path}/circuit_breaker"), *limits)  # fmt: skip


def _matching(models: Sequence[ModelSettings], model: str) -> Sequence[ModelSettings]:
    if not models:
        return ()
    from heliograph.control.wildcard import compile_wildcard  # slow to import; most applications have no such settings

    return [each for each in models if compile_wildcard(each.pattern).matches(model)]
