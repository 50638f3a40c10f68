"""Retries: which failures are repeated, how often, and after which delay. Pure.

Nothing else in Python computes delays that grow. The SQL has one formula, for the redelivery of commands (`_redelivery_at`), and the
in-memory kernel compares it with a policy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from heliograph.codes import CIRCUIT_OPEN, DELEGATION_TIMEOUT, MODEL_TIMEOUT, NETWORK_ERROR, RATE_LIMITED, TOOL_TIMEOUT
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.types import first_given

if TYPE_CHECKING:
    from heliograph.control.settings import RetrySettings

Strategy: TypeAlias = Literal["constant", "linear", "exponential"]
Retryable: TypeAlias = tuple[str | type[Exception], ...] | Literal["recoverable", "any"]

RETRYABLE_ERRORS = (TOOL_TIMEOUT, NETWORK_ERROR, RATE_LIMITED, DELEGATION_TIMEOUT, MODEL_TIMEOUT)
ATTEMPTS_MAX = 1001
SECONDS_MAX = 31_622_400.0

# The keys of the specification that set a field which can be out of range.
_WIRE_KEYS = {
    "max_attempts": ("max_attempts", "max_retries"),
    "initial_delay_seconds": ("initial_delay_ms", "backoff_ms"),
    "max_delay_seconds": ("max_delay_ms",),
    "factor": ("backoff_multiplier",),
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a failed call is repeated, and how long it waits before each repetition.

    max_attempts: includes the first attempt. enabled: False allows only the first attempt.
    strategy: the delay before retry n is d (constant), d * n (linear) or d * factor^(n - 1) (exponential), where d is
        `initial_delay_seconds`.
    jitter: multiply each delay by a number between `jitter_least` and 1. It depends only on the call and the attempt, so a replay
        waits as long as the original run. max_delay_seconds: the longest delay, after jitter.
    retryable_errors: the codes after which a call is repeated; "recoverable" for every error whose `recoverable` is not false,
        "any" for all errors. A call with CIRCUIT_OPEN is repeated only if the codes contain it. The policy of an agent may also
        contain classes of exceptions that its function raises. None: TOOL_TIMEOUT, NETWORK_ERROR, RATE_LIMITED,
        DELEGATION_TIMEOUT and MODEL_TIMEOUT, and for a model call every recoverable error.
    Raises InvalidInput with the JSON pointer of the field.
    """

    max_attempts: int = 3
    strategy: Strategy = "exponential"
    initial_delay_seconds: float = 1.0
    max_delay_seconds: float = 30.0
    factor: float = 2.0
    jitter: bool = True
    jitter_least: float = 0.0
    retryable_errors: Retryable | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        attempts = self.max_attempts
        is_count = isinstance(attempts, int) and not isinstance(attempts, bool) and 1 <= attempts <= ATTEMPTS_MAX
        _check("max_attempts", is_count, f"must be a whole number from 1 to {ATTEMPTS_MAX}", attempts)
        for field in ("initial_delay_seconds", "max_delay_seconds"):
            value = getattr(self, field)
            _check(field, _is_number(value, 0.001, SECONDS_MAX), f"must be from 0.001 to {SECONDS_MAX:.0f}", value)
        _check("factor", _is_number(self.factor, 0.001, 1000), "must be from 0.001 to 1000", self.factor)
        _check("jitter_least", _is_number(self.jitter_least, 0, 1), "must be from 0 to 1", self.jitter_least)
        for field in ("jitter", "enabled"):
            value = getattr(self, field)
            _check(field, isinstance(value, bool), "must be true or false", value)
        strategies = get_args(Strategy)
        _check("strategy", self.strategy in strategies, f"must be one of {', '.join(strategies)}", self.strategy)
        codes = self.retryable_errors
        is_list = isinstance(codes, tuple) and all(isinstance(code, str) or _is_exception(code) for code in codes)
        _check("retryable_errors", is_list or codes in (None, "recoverable", "any"),
               "must be a tuple of codes and classes of exceptions, 'recoverable' or 'any'", codes)  # fmt: skip

    @property
    def retries(self) -> int:
        """The largest number of attempts after the first one."""
        return self.max_attempts - 1 if self.enabled else 0

    @property
    def for_model_calls(self) -> RetryPolicy:
        """The policy for model calls: if it names no codes, they are repeated after every recoverable error, as without a policy."""
        return replace(self, retryable_errors="recoverable") if self.retryable_errors is None else self

    def at_most(self, retries: int) -> RetryPolicy:
        """Return the policy with at most this number of retries: of two limits, the smaller one counts."""
        return replace(self, max_attempts=min(self.max_attempts, retries + 1))

    @property
    def exceptions(self) -> tuple[type[Exception], ...]:
        """The classes of exceptions among `retryable_errors`."""
        codes = self.retryable_errors
        return tuple(each for each in codes if not isinstance(each, str)) if isinstance(codes, tuple) else ()

    def allows(self, code: str | None, *, is_recoverable: bool = True, error: BaseException | None = None) -> bool:
        """Whether an error with this code is retryable. CIRCUIT_OPEN is so only where a tuple lists it: such a call fails at once.

        error: the exception itself, where it is at hand.
        """
        codes = RETRYABLE_ERRORS if self.retryable_errors is None else self.retryable_errors
        if isinstance(codes, tuple):
            return code in codes or isinstance(error, self.exceptions)
        return code != CIRCUIT_OPEN and (is_recoverable or codes == "any")

    def delay_seconds(self, retry: int, key: str, retry_after_seconds: float = 0.0) -> float:
        """Return the seconds before retry number `retry`, counted from 1.

        key: the call or the turn. retry_after_seconds: the delay that the other side requires; it replaces a shorter one, up to
        366 days.
        """
        share = self.jitter_least + (1 - self.jitter_least) * jitter_of(key, retry) if self.jitter else 1.0
        return max(self._capped(retry, share), min(retry_after_seconds, SECONDS_MAX))

    @property
    def total_seconds_max(self) -> float:
        """The sum of all delays without jitter."""
        return sum(self._capped(retry, 1.0) for retry in range(1, self.retries + 1))

    def _capped(self, retry: int, share: float) -> float:
        return min(self._full_delay(retry) * share, self.max_delay_seconds)

    def _full_delay(self, retry: int) -> float:
        if self.strategy == "constant":
            return self.initial_delay_seconds
        if self.strategy == "linear":
            return self.initial_delay_seconds * retry
        try:
            return min(self.initial_delay_seconds * self.factor ** (retry - 1), sys.float_info.max)
        except OverflowError:
            return sys.float_info.max


def jitter_of(key: str, attempt: int) -> float:
    """Return a number from 0 to 1 that depends only on the key and the attempt.

    So turns that failed together retry at different times, and a replay waits as long as the original run.
    """
    digest = blake2b(f"{key}/{attempt}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def retry_policy(
    value: RetryPolicy | Mapping[str, Any] | None, path: str, *, of_function: bool = False
) -> RetryPolicy | None:
    """Return the policy of a setting: a RetryPolicy, an object of the specification in one of its two shapes, or None.

    of_function: it repeats the function of an agent, whose exceptions are at hand. Only the recorded result decides about a call.
    Raises InvalidInput with a JSON pointer that begins with `path`.
    """
    if value is None:
        return None
    if isinstance(value, RetryPolicy):
        if value.exceptions and not of_function:
            raise InvalidInput(f"{path}: a call is repeated by the code of its recorded error, not by the class of an exception: name "
                               "codes, \"recoverable\" or \"any\" in retryable_errors; only the retry of a function agent may have classes",
                               code="wrong_type", path=f"{path}/retryable_errors")  # fmt: skip
        return value
    from heliograph.control.settings import RetrySettings  # slow to import; most applications have no such object
    from heliograph.control.wire_model import read_model

    return policy_of(read_model(RetrySettings, value, path), path)


def policy_of(settings: RetrySettings, path: str) -> RetryPolicy:
    """Return the policy of validated settings. Raises InvalidInput for values out of range."""
    try:
        return RetryPolicy(
            settings.attempts, settings.strategy, settings.first_delay_ms / 1000, settings.max_delay_ms / 1000,
            settings.factor, settings.jitter, retryable_errors=settings.retryable_errors, enabled=settings.enabled,
        )  # fmt: skip
    except InvalidInput as error:
        key = _WIRE_KEYS[(error.path or "/").removeprefix("/")]
        given = next((name for name in key if name in settings.model_fields_set), key[0])
        raise InvalidInput(f"{path}: {error.message}", code=error.code, path=f"{path}/{given}") from None


def narrowest(*policies: RetryPolicy | None) -> RetryPolicy | None:
    """Return the first policy that is given, the narrowest setting first; None if it allows no retry."""
    found = first_given(*policies)
    return found if found is not None and found.retries else None


def _check(field: str, is_right: bool, rule: str, value: object) -> None:
    if not is_right:
        raise InvalidInput(f"{field} of a retry policy {rule}, not {safe_repr(repr_of(value))}", code="out_of_range",
                           path=f"/{field}")  # fmt: skip


def _is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_number(value: Any, low: float, high: float) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high
