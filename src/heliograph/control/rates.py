"""A rate limit: `10/s`, `600/m` or `1000/h`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from heliograph.control.model_errors import problem
from heliograph.error_text import safe_repr

COUNT_MAX = 1_000_000_000
_UNITS = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"([1-9][0-9]{0,9})/([a-z])")


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `count` calls, or tokens of a model, in `seconds`: the size of a token bucket, and the time in which it fills."""

    count: int
    seconds: int

    def __str__(self) -> str:
        return f"{self.count}/{next(unit for unit, seconds in _UNITS.items() if seconds == self.seconds)}"


def read_rate(value: Any) -> RateLimit:
    """Parse a rate. Its error follows the name of the field."""
    if isinstance(value, RateLimit):
        return value
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None or found[2] not in _UNITS or int(found[1]) > COUNT_MAX:
        raise problem(
            "invalid_rate",
            f"must be N/s, N/m or N/h with N from 1 to {COUNT_MAX}, for example 10/s, not {safe_repr(value)}",
        )
    return RateLimit(int(found[1]), _UNITS[found[2]])
