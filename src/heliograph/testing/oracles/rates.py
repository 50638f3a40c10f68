"""The oracle of rate limits: it counts the tokens of each bucket from the starts of calls alone."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from heliograph.testing.kernel.tables import microseconds

_SECOND = 1_000_000


@dataclass(slots=True)
class RateOracle:
    """Counts the tokens of each bucket. starts: the starts of its calls, in microseconds. counted: the calls that are counted already, by owner."""

    count: Callable[[str], None]
    blame: Callable[[str, str], None]
    starts: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    counted: set[tuple[Any, ...]] = field(default_factory=set)

    def check(self, items: Any, answer: Any) -> None:
        """Check the answers of begin_call. An owner that repeats the commit of a call takes no second token."""
        for item, row in zip(items, answer, strict=True):
            if row.get("code") == "RATE_LIMITED":
                self.count("rate limited")
            elif "rate" in row and (call := (item["turn_id"], item["call_id"], item["epoch"])) not in self.counted:
                self.counted.add(call)
                start = microseconds(datetime.fromisoformat(row["rate"]["starts_at"]))
                self.count("rate waits" if row["rate"]["wait_seconds"] else "rate at once")
                for rate in item["rates"]:
                    self._check_start(rate, start)

    def _check_start(self, rate: Any, start: int) -> None:
        """No window that begins or ends at this start may have more tokens than a full bucket and its refill."""
        starts = self.starts.setdefault((rate["kind"], rate["name"]), [])
        insort(starts, start)
        length = rate["seconds"] * _SECOND
        for first in starts:
            last = max(first, start)
            found = sum(min(first, start) <= each <= last for each in starts)
            if (found - rate["count"]) * length > (last - min(first, start)) * rate["count"]:
                self.blame("too_many_tokens", f"{rate['name']}: {found} calls start from {min(first, start)} to {last}")
                return
