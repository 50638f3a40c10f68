"""Both kernels keep the same token buckets, and no window has more tokens than a bucket allows."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from tests.simulator.compare import answers_of_both, stored
from tests.simulator.test_in_memory_circuits import START, Walk

LIMITS = {"a": (2, 1), "b": (3, 2), "c": (20, 5)}
# the limits of bucket d, of which no window is checked
CHANGING = [(20, 5), (1, 3600), (30, 60), (20, 5)]


class RateWalk(Walk):
    """The walk of the circuit breakers, in which calls take tokens too, and results correct their estimates."""

    def _begin(self) -> tuple[str, tuple[Any, ...]]:
        function, (items,) = super()._begin()
        return function, ([self._with_rates(item) for item in items],)

    def _record(self) -> tuple[str, tuple[Any, ...]]:
        function, (items,) = super()._record()
        return function, ([{**item, "rate_tokens": self.dice.choice([None, 0, 3])} for item in items],)

    def _suspend(self) -> tuple[str, tuple[Any, ...]]:
        function, ([item],) = super()._suspend()
        return function, ([{**item, "calls": [self._with_rates(call) for call in item["calls"]]}],)

    def _settings(self) -> dict[str, Any] | None:
        return super()._settings() if self.dice.random() < 0.3 else None

    def _with_rates(self, item: dict[str, Any]) -> dict[str, Any]:
        names = self.dice.sample("abcd", self.dice.choice([0, 1, 1, 2, 3]))
        return {**item, "rates": [self._rate(name) for name in names] or (None if self.dice.random() < 0.5 else [])}

    def _rate(self, name: str) -> dict[str, Any]:
        count, seconds = self.dice.choice(CHANGING) if name == "d" else LIMITS[name]
        amount = (
            self.dice.choice([3, 9, 15, 20, 21]) if name == "c" else self.dice.randint(1, count) if name == "d" else 1
        )
        return {
            "kind": "model_tokens" if name in "cd" else "tool",
            "name": name,
            "count": count,
            "seconds": seconds,
            "amount": amount,
        }


class Ledger:
    """The tokens that each bucket has given, from the calls and answers alone. A result corrects what its call has taken."""

    def __init__(self) -> None:
        self.taken = defaultdict[str, list[list[float]]](list)  # by bucket: [start, tokens]
        self._estimates: dict[tuple[str, str], list[float]] = {}
        self._known = set[Any]()

    def read(self, function: str, items: Any, answer: Any, rows: list[dict[str, Any]]) -> None:
        if function == "begin_call":
            seen = set[Any]()
            for item, row in zip(items, answer, strict=True):
                key = (row["turn_id"], row["call_id"])
                if (
                    "rate" in row
                    and row["outcome"] != "rejected"
                    and (row["outcome"] == "again" or key not in self._known | seen)
                ):
                    self._take(key, row["rate"]["starts_at"], item["rates"])
                seen.add(key)
        elif function == "suspend" and answer[0]["outcome"] in ("suspended", "resolved"):
            waits = {(row["agent_turn_id"], row["tool_call_id"]): row for row in rows}
            for call in items[0]["calls"]:
                key = (items[0]["turn_id"], call["call_id"])
                if call["rates"] and key not in self._known:
                    self._take(key, waits[key]["rate"]["starts_at"], call["rates"])
        elif function == "record_call":
            for item, row in zip(items, answer, strict=True):
                entry = self._estimates.get((item["turn_id"], item["call_id"]))
                if row["outcome"] == "ok" and entry is not None and item["rate_tokens"] is not None:
                    entry[1] = item["rate_tokens"]
            begun = [each for row in answer for each in row.get("begun", ())]
            intents = [
                each for item, row in zip(items, answer, strict=True) if "begun" in row for each in item["intents"]
            ]
            self.read("begin_call", intents, begun, rows)
        self._known = {(row["agent_turn_id"], row["tool_call_id"]) for row in rows}

    def _take(self, key: tuple[str, str], starts_at: Any, rates: list[dict[str, Any]]) -> None:
        at = (datetime.fromisoformat(starts_at) - START).total_seconds()
        self._estimates.pop(key, None)
        for rate in (rate for rate in rates if rate["name"] in LIMITS):
            entry = [at, float(rate["amount"])]
            self.taken[rate["name"]].append(entry)
            if rate["kind"] == "model_tokens":
                self._estimates[key] = entry

    def excess(self) -> list[Any]:
        found = []
        for name, (count, seconds) in LIMITS.items():
            entries = sorted(self.taken[name])
            for n, (begin, _) in enumerate(entries):
                total = 0.0
                for end, tokens in entries[n:]:
                    total += tokens
                    if total > count + (end - begin) * count / seconds + 1e-6:
                        found.append((name, begin, end, total))
        return found


@pytest.mark.proves("RTE-08", "G-24")
@pytest.mark.more
@pytest.mark.parametrize(
    "seeds", [range(4), range(4, 14), pytest.param(range(14, 100), marks=pytest.mark.long)], ids=["few", "more", "many"]
)
def test_both_kernels_give_the_same_starts_and_no_window_has_too_many(
    in_memory: InMemoryKernel, real: PostgresBackend, seeds: range
) -> None:
    seen = set[Any]()
    for seed in seeds:
        walk, ledger = RateWalk(seed), Ledger()
        for function, args, answer in answers_of_both(walk, in_memory, real, 150, seed):
            if function in ("begin_call", "suspend", "record_call"):
                seen |= {(function, row.get("code", row["outcome"])) for row in answer}
                ledger.read(function, args[0], answer, stored(in_memory, "p")["turn_waiting_tools"])
        assert ledger.excess() == [], f"seed {seed}"
    assert seen >= {
        ("begin_call", "RATE_LIMITED"),
        ("begin_call", "again"),
        ("suspend", "RATE_LIMITED"),
        ("record_call", "ok"),
    }
