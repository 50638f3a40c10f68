"""The oracle of circuit breakers: it counts trials and failures from the calls and results alone.

It sees whether a call succeeded or timed out, but not whether an error counts. So it demands less than the rules, and
never more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from heliograph.testing.kernel.tables import microseconds
from heliograph.testing.oracles.records import Books, WaitBook

_Key: TypeAlias = tuple[str, str, int]  # type, target and generation of a breaker
_Call: TypeAlias = tuple[str, str]  # turn and call


@dataclass(slots=True)
class CircuitOracle:
    """The oracle of circuit breakers: which calls they may admit.

    admitted: the calls that each generation of a breaker admitted. open_until: by type and target.
    """

    books: Books
    count: Callable[[str], None]
    blame: Callable[[str, str], None]
    admitted: dict[_Key, dict[_Call, bool]] = field(default_factory=dict)
    open_until: dict[tuple[str, str], int] = field(default_factory=dict)

    def check(self, function: str, items: Any, answer: Any, now: int) -> None:
        """Check the answers of begin_call and suspend, before their calls are recorded."""
        for item, row in zip(items, answer, strict=True):
            if function == "begin_call" and row["outcome"] == "rejected":
                self._release((item["turn_id"], item["call_id"]))
            if row.get("code") == "CIRCUIT_OPEN":
                self._check_rejected(row["circuit"], now)
            elif function == "begin_call" and "circuit" in row:
                self._check_admitted((item["turn_id"], item["call_id"]), item["circuit_breaker"], row["circuit"], now)
            elif function == "suspend":
                settings = {call["call_id"]: call.get("circuit_breaker") for call in item["calls"]}
                for call_id, mark in row.get("circuits", {}).items():
                    self._check_admitted((item["turn_id"], call_id), settings[call_id], mark, now)

    def _check_rejected(self, circuit: Any, now: int) -> None:
        self.count(f"circuit {circuit['state']}")
        until = None if circuit["until"] is None else microseconds(datetime.fromisoformat(circuit["until"]))
        if until is None or until <= now:
            self.blame("trial_kept", f"{circuit} rejects a call at {now}, although no trial is under way any more")
        elif circuit["state"] == "open":
            self.open_until[circuit["type"], circuit["target"]] = until

    def _check_admitted(self, call: _Call, settings: Any, mark: Any, now: int) -> None:
        key = (mark["type"], mark["target"], mark["generation"])
        self.count("circuit trial" if mark["is_trial"] else "circuit closed")
        if now < self.open_until.get(key[:2], now):
            self.blame("open_admits", f"{call} at {now}: {key} is open until {self.open_until[key[:2]]}")
        known = self.admitted.setdefault(key, {})
        if mark["is_trial"]:
            busy = [other for other in known if other != call and self._occupies(other)]
            if len(busy) >= settings["half_open_max_calls"]:
                self.blame("too_many_trials", f"{call} is one more trial of {key} than {busy}")
        elif (failures := self._failures_in_a_row(known)) >= settings["failure_threshold"]:
            self.blame("breaker_kept_closed", f"{call}: {key} is closed after {failures} failures in a row")
        known[call] = mark["is_trial"]

    def _release(self, call: _Call) -> None:
        """Record that a breaker no longer counts a rejected call, which remains open if it began earlier."""
        for calls in self.admitted.values():
            calls.pop(call, None)

    def _wait(self, call: _Call) -> WaitBook | None:
        return self.books.turns[call[0]].waits.get(call[1])

    def _occupies(self, call: _Call) -> bool:
        """Whether a trial certainly counts: it is under way, or its result does."""
        wait = self._wait(call)
        if wait is None or wait.state == "open":
            return self.books.turns[call[0]].ended_by is None
        return wait.status in ("success", "timeout", "unknown")

    def _failures_in_a_row(self, calls: dict[_Call, bool]) -> int:
        """The timeouts since the last success."""
        ended = [wait for call in calls if (wait := self._wait(call)) is not None and wait.state == "resolved"]
        succeeded_at = max((wait.resolved_at for wait in ended if wait.status == "success"), default=-1)
        return sum(wait.status == "timeout" and wait.resolved_at > succeeded_at for wait in ended)
