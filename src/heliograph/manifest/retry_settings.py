"""The retries that a manifest of an agent, a task or a workflow describes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from heliograph.codes import CODE_NAMES
from heliograph.error_text import repr_of, safe_repr
from heliograph.json_pointer import escaped
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.policy.retry import Retryable, RetryPolicy, Strategy

_STRATEGIES = ("backoff_strategy", "backoff")
_KEYS = ("max_attempts", *_STRATEGIES, "initial_delay_ms", "max_delay_ms", "retryable_errors")
_DELAY_MIN, _DELAY_MAX = 1, 10**9  # milliseconds
_BACKOFFS: dict[Any, Strategy] = {"none": "constant", "fixed": "constant", "constant": "constant", "linear": "linear",
                                  "exponential": "exponential", None: "exponential"}  # fmt: skip


def read_retry(fields: ManifestFields, place: str) -> RetryPolicy | None:
    """Return the policy at a pointer; None if there is none. Another form is an error, and keys without an effect get warnings."""
    if not (given := fields.mapping(place)):
        if fields.value(place) is not None and not isinstance(fields.given(place), dict):
            fields.reject("wrong_type", "retries are an object", place, "write max_attempts and backoff_strategy")
        return None
    for key in sorted(given.keys() - {*_KEYS}):
        fields.drop("no_effect", f"'{safe_repr(key)}' of retries has no effect", f"{place}/{escaped(key)}", "remove it")
    attempts = fields.number(f"{place}/max_attempts", low=1, high=10, whole=True)
    initial = fields.number(f"{place}/initial_delay_ms", low=0, high=_DELAY_MAX)
    longest = fields.number(f"{place}/max_delay_ms", low=0, high=_DELAY_MAX)
    named = next((key for key in _STRATEGIES if key in given), _STRATEGIES[0])
    strategy = fields.value(f"{place}/{named}")
    if isinstance(strategy, dict | list) or strategy not in _BACKOFFS:
        fields.reject("invalid_enum", f"there is no backoff {safe_repr(repr_of(strategy))}", f"{place}/{named}",
                      f"write one of {', '.join(filter(None, _BACKOFFS))}")  # fmt: skip
        return None
    codes = _codes(fields, f"{place}/retryable_errors")
    delay = max(_DELAY_MIN, 0 if strategy == "none" else 1000 if initial is None else initial)
    longest = max(_DELAY_MIN, longest) if longest is not None else max(delay, 30_000)
    return RetryPolicy(3 if attempts is None else attempts, _BACKOFFS[strategy], min(delay, longest) / 1000, longest / 1000,
                       retryable_errors=codes)  # fmt: skip


def _codes(fields: ManifestFields, place: str) -> Retryable:
    """Return the codes after which a call is repeated, with a warning for each that is not one of Heliograph's."""
    given = fields.whole(place)
    if given is None:
        return "recoverable"
    if not isinstance(given, list):
        given = [None]
    codes = tuple(each for each in given if isinstance(each, str))
    if len(codes) < len(given):
        fields.reject(
            "wrong_type",
            "retryable_errors is a list of codes",
            place,
            "write a list, like [TOOL_TIMEOUT, NETWORK_ERROR]",
        )
    for n, message, hint in unknown_codes(codes):
        fields.warn("unknown_error_code", message, f"{place}/{n}", hint)
    return codes


def unknown_codes(codes: Iterable[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the place, the message and the hint for each code that is not one of Heliograph's."""
    for n, code in enumerate(codes):
        if code not in CODE_NAMES:
            near = get_close_matches(code.upper(), CODE_NAMES, 1)
            hint = f"did you mean {near[0]}?" if near else "write a code of Heliograph, like TOOL_TIMEOUT"
            yield (
                n,
                f"{safe_repr(code)} is no code of Heliograph, so it matches only errors to which a tool gives it",
                hint,
            )
