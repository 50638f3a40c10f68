"""The bells that wake subscribers: a commit rings for the names of its signals, and only where a subscriber's pattern matches them.

A subscriber announces its patterns every ANNOUNCE_SECONDS. A process that has not received the announcement of a pattern for PRESENCE_SECONDS
does not ring for it any more. A process that has just started cannot know of the subscribers yet, so for UNKNOWN_SECONDS it rings for all
names. A ring has the name of the signal and an announcement has the pattern, both masked (`bell_tokens.py`): so each subscriber is woken by
the signals that its patterns match, and by no others. Nothing of this is stored: without a ring, subscribers find signals by polling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.errors import InvalidInput
from heliograph.requests import WITH_CLAIM
from heliograph.signals.pattern_table import PatternTable
from heliograph.world.bell_tokens import Tokens
from heliograph.world.seam import ANNOUNCE_SECONDS, SIGNALS, BellKey
from heliograph.world.subscriptions import Subscriptions

PRESENCE_SECONDS = 3 * ANNOUNCE_SECONDS
UNKNOWN_SECONDS = ANNOUNCE_SECONDS + 1  # after which a process knows all present subscribers
PATTERNS_MAX = 10_000  # of subscribers in other processes that a process remembers

# The names of the signals that the kernel itself logs, apart from those that its callers send.
RESULTS = frozenset(("tool:result", "delegation_response"))
ENDS = frozenset(("agent:failed", "halt", "workflow:terminating"))
KERNEL_NAMES = RESULTS | ENDS
# The kernel functions that log signals of their callers, and the names that they always may add.
_ADDED: dict[str, frozenset[str]] = {
    "start_runs": frozenset(), "append": frozenset(), "record_call": frozenset(), "finish": frozenset(), "react": frozenset(),
    "finish_and_claim": frozenset(), "start_and_claim": frozenset(), "report_and_claim": RESULTS,
    "begin_call": frozenset(), "suspend": RESULTS, "report": RESULTS, "enqueue": frozenset(("agent:activated",)), "defer": frozenset(),
    "release": frozenset(), "stop": ENDS, "stop_runs": ENDS, "fail_unclaimable": ENDS,
}  # fmt: skip
# The functions that also claim: the key of the answers about their items.
_ANSWERS = dict(WITH_CLAIM.values())
# The outcomes of an item after which the kernel has logged more, and its names.
_OF_OUTCOME = {"stopped": ENDS, "exhausted": ENDS, "in_doubt": RESULTS}
# The lists of moved turns in the answers of sweeps, and the names of the signals about them.
_MOVED = {"resolved": RESULTS, "resumed": RESULTS, "ended": ENDS, "failed": ENDS, "stopped": ENDS, "stopping": ENDS}
_SWEEPS = frozenset(f"sweep_{name}" for name in ("leases", "expired", "queued", "waits", "reports", "stuck", "stops"))
WRITERS = _SWEEPS | _ADDED.keys()


class SignalBells:
    """The subscribers to the signals of one project: those of this process, and those of others as far as it knows."""

    def __init__(self, project: str, subscriptions: Subscriptions, tokens: Tokens, clock: Callable[[], float]):
        self._project = project
        self._tokens = tokens
        self._clock = clock
        self._here = subscriptions.of_signals(project)
        self._until: dict[
            str, float
        ] = {}  # by masked pattern: the time of the event loop after which it counts as absent
        self._table = PatternTable[str]()  # of the masked patterns
        self._purge_at = 100
        self._is_known_at = clock() + UNKNOWN_SECONDS
        self._last_until = 0.0  # the latest time in `_until`
        subscriptions.observe(project, self)

    def ring(self) -> None:
        """Count all patterns as present for a while, since announcements may have been missed."""
        self._is_known_at = self._clock() + PRESENCE_SECONDS

    def announced(self, masked: str) -> None:
        """Remember the masked pattern of a subscriber. A forged one only leads to rings in vain."""
        if masked not in self._until:
            if len(self._until) >= self._purge_at:
                self._purge()
            if len(self._until) >= PATTERNS_MAX:
                return self.ring()
            try:
                self._table.add(masked, masked)
            except InvalidInput:
                return None
        self._last_until = self._until[masked] = self._clock() + PRESENCE_SECONDS
        return None

    def after(self, function: str, arguments: tuple[Any, ...], answer: Any) -> list[BellKey]:
        """Ring in this process after a call of one of WRITERS; return the bells to ring in others."""
        now = self._clock()
        is_unknown = now < self._is_known_at
        if not (is_unknown or now < self._last_until or self._here):
            return []
        keys = []
        for name in sorted(names_of(function, arguments, answer)):
            self._here.ring(name)
            key = BellKey(self._project, f"{SIGNALS}{name}")
            if is_unknown or (now < self._last_until and self._is_present(key, now)):
                keys.append(key)
        return keys

    def _is_present(self, key: BellKey, now: float) -> bool:
        masked = self._tokens.of(key).partition(":")[2]
        return any(self._until[pattern] > now for pattern in self._table.match(masked))

    def _purge(self) -> None:
        now = self._clock()
        self._until = {pattern: until for pattern, until in self._until.items() if until > now}
        self._table = PatternTable((pattern, pattern) for pattern in self._until)
        self._purge_at = min(PATTERNS_MAX, 2 * len(self._until) + 100)


def names_of(function: str, arguments: tuple[Any, ...], answer: Any) -> set[str]:
    """The names of the signals that a call may have logged."""
    names: set[str] = set(_ADDED.get(function, ()))
    if function in _SWEEPS:
        return names.union(*(_MOVED[key] for key, turns in answer.items() if turns and key in _MOVED))
    if function == "fail_unclaimable":
        return names if answer else set()
    for item in arguments[1]:
        if function == "enqueue":
            names.add(item["name"])
        for draft in item.get("signals") or ():
            names.add(draft["name"])
        if item.get("failure") or (item.get("reaction") or {}).get("stops"):
            names |= ENDS
    for row in answer[_ANSWERS[function]] if function in _ANSWERS else answer:
        if row["outcome"] in _OF_OUTCOME:
            names |= _OF_OUTCOME[row["outcome"]]
    return names
