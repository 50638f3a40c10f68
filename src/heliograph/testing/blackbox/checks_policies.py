"""Checks of retries and circuit breakers, by the turns of the delegates that they repeat or protect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, Signal

_EARLY = 0.9  # a system may compute a delay from the clock of another machine


def _at(signal: Signal) -> float:
    return datetime.fromisoformat(str(signal["timestamp"]).replace("Z", "+00:00")).timestamp()


def _turns(run: Evidence, delegate: str) -> int:
    """How many turns of a delegate have ended; each one is an attempt that has reached it."""
    return len(run.ends(delegate))


def _pauses(run: Evidence, delegate: str) -> list[float]:
    """The seconds from the end of each turn of a delegate to the beginning of the next one."""
    ends, begins = run.ends(delegate), run.named("ready", delegate)
    return [_at(begin) - _at(end) for end, begin in zip(ends, begins[1:], strict=False)]


def _has_strategies(run: Evidence) -> bool:
    constant, linear, exponential = (_pauses(run, name)[2] for name in ("constant", "linear", "exponential"))
    return constant < min(linear, exponential) and linear >= 3 * _EARLY and exponential >= 4 * _EARLY


def _is_capped(run: Evidence) -> bool:
    capped = _pauses(run, "capped")
    return len(capped) == 3 and capped[2] < _pauses(run, "exponential")[2]


def _trials_after(run: Evidence, seconds: float) -> bool:
    """Whether the first turn after the breaker opened began this time later."""
    return _pauses(run, "moody")[1] >= seconds * _EARLY


def _outcomes(run: Evidence, delegate: str) -> list[str]:
    return ["well" if each["name"] == "agent:completed" else "busy" for each in run.ends(delegate)]


def _retry(identifier: str, text: str, holds: Callable[[Evidence], bool]) -> Check:
    return Check(identifier, "retry", text, holds)


def _breaker(identifier: str, text: str, holds: Callable[[Evidence], bool]) -> Check:
    return Check(identifier, "breaker", text, holds)


POLICIES = (
    _retry("RET-01", "enabled: false allows one attempt", lambda run: _turns(run, "off") == 1 < _turns(run, "default")),
    _retry("RET-02", "the pauses of constant, linear and exponential differ as specified", _has_strategies),
    _retry("RET-03", "by default there are 3 attempts, and 4 with max_attempts 4", lambda run: (_turns(run, "default"), _turns(run, "constant")) == (3, 4)),
    _retry("RET-04", "by default the first pause lasts 1000 ms", lambda run: _pauses(run, "default")[0] >= _EARLY),
    _retry("RET-05", "max_delay_ms caps a pause", _is_capped),
    _retry("RET-07", "a code that retryable_errors does not list is not retried", lambda run: _turns(run, "other-code") == 1),
    _retry("RET-08", "a policy of tool calls does not retry a delegation", lambda run: _turns(run, "other-type") == 1 < _turns(run, "default")),
    _breaker("CB-01", "enabled: false admits a call after failures", lambda run: _outcomes(run, "unguarded") == ["busy", "well"]),
    _breaker("CB-02", "failure_threshold failures open the breaker", lambda run: _outcomes(run, "moody")[:2] == ["busy", "busy"] and _turns(run, "moody") == 6),
    _breaker("CB-03", "after timeout_seconds the breaker admits trials", lambda run: _trials_after(run, 2) and _outcomes(run, "moody")[2] == "well"),
    _breaker("CB-04", "after half_open_max_calls failed trials no further call is admitted", lambda run: _outcomes(run, "stubborn") == ["busy", "busy"]),
    _breaker("CB-05", "success_threshold successes close the breaker", lambda run: _outcomes(run, "moody")[2:] == ["well", "well", "busy", "well"]),
    _breaker("CB-06", "a call while the breaker is open does not reach its target", lambda run: _turns(run, "stubborn") == 2 and _turns(run, "moody") == 6),
    _breaker("CB-07", "a breaker of tool calls admits a delegation", lambda run: _outcomes(run, "tool-guarded") == ["busy", "well"]),
)  # fmt: skip
