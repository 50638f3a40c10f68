"""Settings of control signals: the map `control_signals` of a runtime specification, with one entry per type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic_core import PydanticCustomError

from heliograph.control.envelope import Envelope
from heliograph.control.expressions import evaluate, uuid_from
from heliograph.control.field_types import Count, Flag, Natural, Object, Positive, Texts, read_flag, read_natural
from heliograph.control.model_errors import problem
from heliograph.control.rates import RateLimit, read_rate
from heliograph.control.signals import ControlSignal, control_type, payload_type
from heliograph.control.wire_model import WireModel, as_object, read_model
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.json_pointer import pointer
from heliograph.types import JsonObject

_BACKOFF_KEYS = ("backoff_ms", "backoff_multiplier")
_STRATEGY_KEYS = ("strategy", "initial_delay_ms", "max_delay_ms", "jitter")
_BACKOFF_DEFAULT_MS = 1000
_RETRY_COUNT = "retry_count"
_RECOVERABLE = "recoverable"

T = TypeVar("T")


class RetrySettings(WireModel):
    """How often and when a signal is retried, in one of the two shapes of the specification.

    `backoff_ms` and `backoff_multiplier` are a short form of an exponential strategy; `first_delay_ms` and `factor` read either shape.
    max_attempts: includes the first attempt. max_retries: does not include it; if both are given, the smaller limit counts.
    retryable_errors: the codes that are retried; None for those of `heliograph.RetryPolicy`.
    """

    described = "a retry"
    enabled: Flag = True
    max_attempts: Count = 3
    max_retries: Natural | None = None
    strategy: Literal["constant", "linear", "exponential"] = "exponential"
    initial_delay_ms: Positive = _BACKOFF_DEFAULT_MS
    max_delay_ms: Positive = 30_000
    jitter: Flag = True
    retryable_errors: Texts | None = None
    backoff_ms: Positive | None = None
    backoff_multiplier: Positive | None = None

    @property
    def attempts(self) -> int:
        """The largest number of attempts, including the first."""
        if self.max_retries is None:
            return self.max_attempts
        return min(self.max_attempts, self.max_retries + 1) if self._has_attempts else self.max_retries + 1

    @property
    def _has_attempts(self) -> bool:
        return "max_attempts" in self.model_fields_set

    @property
    def first_delay_ms(self) -> float:
        return self.initial_delay_ms if self.backoff_ms is None else self.backoff_ms

    @property
    def factor(self) -> float:
        """By how much an exponential delay grows at each attempt."""
        return 2 if self.backoff_multiplier is None else self.backoff_multiplier

    @pydantic.model_validator(mode="after")
    def _check_one_shape(self) -> Self:
        backoff, strategy = (
            [key for key in keys if key in self.model_fields_set] for keys in (_BACKOFF_KEYS, _STRATEGY_KEYS)
        )
        if backoff and strategy:
            raise problem("two_retry_shapes",
                          f"has '{backoff[0]}' and '{strategy[0]}', which belong to two ways to write a retry; use either "
                          f"{' and '.join(_BACKOFF_KEYS)}, or {', '.join(_STRATEGY_KEYS)}", f"/{strategy[0]}")  # fmt: skip
        return self

    def to_wire(self) -> JsonObject:
        hidden = _STRATEGY_KEYS if self.backoff_ms is not None or self.backoff_multiplier is not None else ()
        if self.max_retries is not None and not self._has_attempts:
            hidden = (*hidden, "max_attempts")
        return {key: value for key, value in super().to_wire().items() if key not in hidden}


class CircuitBreakerSettings(WireModel):
    """The settings of a circuit breaker: when calls of a failing target stop. timeout_seconds: the time from open to half-open."""

    described = "the circuit breaker settings"
    enabled: Flag = True
    failure_threshold: Count = 5
    success_threshold: Count = 2
    timeout_seconds: Positive = 60
    half_open_max_calls: Count = 3


class SignalSettings(WireModel):
    """Settings of one type. They override the defaults of the type, and one signal overrides them.

    rate_limit: the limit of each target of the type, for example 10/s. payload: a template of fields for each signal of the type, see
    `expressions`.
    """

    described = "the entry of a control signal"
    async_: Flag | None = pydantic.Field(default=None, validation_alias="async", serialization_alias="async")
    timeout_seconds: Positive | None = None
    retry: RetrySettings | None = None
    circuit_breaker: CircuitBreakerSettings | None = None
    rate_limit: Annotated[RateLimit, pydantic.PlainValidator(read_rate)] | None = None
    payload: Object | None = None


class ErrorSettings(SignalSettings):
    """The settings of errors. `payload` may have the policy for its `error_code`: `recoverable` and `retry_count`.

    `retry_count`, the number of repetitions, is no field of a signal.
    """

    described = "the entry error"

    @property
    def retries(self) -> dict[str, int]:
        """How often a phase that fails with a code is repeated, by the code. Raises InvalidInput for a policy without a code."""
        count = 0 if self._policy.get(_RECOVERABLE) is False else self._policy.get(_RETRY_COUNT)
        return {} if count is None else self._by_code(count)

    @property
    def recoverable(self) -> dict[str, bool]:
        """Whether a retry may help after an error, by its code. Raises InvalidInput for a policy without a code."""
        value = self._policy.get(_RECOVERABLE)
        return {} if value is None else self._by_code(value)

    @property
    def _policy(self) -> Mapping[str, Any]:
        return self.payload or {}

    def _by_code(self, value: T) -> dict[str, T]:
        code = self._policy.get("error_code")
        if not isinstance(code, str) or not code:
            raise InvalidInput(f"the policy of the entry error needs its 'error_code', for example TOOL_ERROR, not {safe_repr(repr_of(code))}",
                               code="required_field" if code is None else "wrong_type",
                               path="/control_signals/error/payload/error_code")  # fmt: skip
        return {code: value}

    @pydantic.model_validator(mode="after")
    def _check_policy(self) -> Self:
        for key, read in ((_RETRY_COUNT, read_natural), (_RECOVERABLE, read_flag)):
            if key in self._policy:
                try:
                    read(self._policy[key])
                except PydanticCustomError as error:
                    raise problem(error.type, f"has a '{key}' that {error}", f"/payload/{key}") from None
        return self


class HaltSettings(SignalSettings):
    """The settings of halts. force_after_seconds: the time after which a graceful halt ends the turn anyway."""

    described = "the entry halt"
    force_after_seconds: Positive = 10


class HeartbeatSettings(SignalSettings):
    """The settings of heartbeats. missed_threshold: the number of missed heartbeats after which an agent is unhealthy."""

    described = "the entry heartbeat"
    enabled: Flag = True
    interval_seconds: Positive | None = None
    missed_threshold: Count = 3


class ControlSettings(WireModel):
    """The settings of all types."""

    described = "the map control_signals"
    tool_call: SignalSettings = SignalSettings()
    delegation: SignalSettings = SignalSettings()
    halt: HaltSettings = HaltSettings()
    error: ErrorSettings = ErrorSettings()
    ready: SignalSettings = SignalSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()

    def compose(
        self, kind: str, payload: Mapping[str, Any], new_id: Callable[[], str], *, parent: Envelope | None = None,
        async_: bool | None = None, timeout_seconds: float | None = None,
    ) -> ControlSignal:  # fmt: skip
        """Build a signal. Its own values override these settings, and these override the defaults of its type.

        A tool call or a delegation without a correlation id gets a new one, and the correlation id of `parent` beside it.
        new_id: creates an id. parent: the request that causes this signal. Raises the errors of `read_signal` and `evaluate`.
        """
        model = control_type(kind, "/type")
        own: SignalSettings = getattr(self, kind)
        template = evaluate(own.payload or {}, new_id, parent, f"/{kind}/payload")
        assert isinstance(template, dict)
        if isinstance(own, ErrorSettings):
            template.pop(_RETRY_COUNT, None)
        body = {**{key: value for key, value in template.items() if value is not None}, **payload}
        if "parent_correlation_id" in payload_type(model).model_fields:
            if "correlation_id" not in body:
                body["correlation_id"] = uuid_from(new_id())
            if parent is not None and (above := getattr(parent.signal.payload, "correlation_id", None)) is not None:
                body.setdefault("parent_correlation_id", above)
        header = {
            "async": own.async_ if async_ is None else async_,
            "timeout_seconds": own.timeout_seconds if timeout_seconds is None else timeout_seconds,
            "interval_seconds": getattr(own, "interval_seconds", None),
        }
        given = {key: value for key, value in header.items() if value is not None}
        return read_model(model, {"type": kind, **given, "payload": body})


def read_settings(wire: Any, path: str = "") -> ControlSettings:
    """Read the map `control_signals` from parsed JSON or YAML.

    Raises InvalidInput: unknown_signal_type with the nearest name, two_retry_shapes, and the errors of `read_signal`.
    """
    fields = as_object(wire, ControlSettings.described, path)
    for name in fields:
        control_type(name, pointer(path, str(name)))
    return read_model(ControlSettings, fields, path)
