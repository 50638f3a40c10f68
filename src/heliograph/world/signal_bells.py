"""The bells that wake subscribers: a commit rings for the names of its signals, and only where somebody listens for them.

A subscriber listens to a bell for each of its patterns: of one name, of all names that begin or end with a segment, or of all names
(`signal_bell`). It announces these bells every ANNOUNCE_SECONDS, between its searches. A process that has not received the announcement of a
bell for PRESENCE_SECONDS does not ring it any more. A process that has just started cannot know of the subscribers yet, so it rings UNNAMED,
to which all of them listen. For the same time, UNKNOWN_SECONDS, it rings all bells of a name that is new to it. Nothing of this is stored:
without a ring, subscribers find signals by polling.

A login that may only subscribe has two tokens, for all bells and for all announcements. So SUBSCRIBERS announces such a login, and while
it is present, each commit with signals also rings SIGNALS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.world.seam import ANNOUNCE_SECONDS, SIGNALS, SUBSCRIBERS, UNNAMED, BellKey
from heliograph.world.subscriptions import Subscriptions

PRESENCE_SECONDS = 3 * ANNOUNCE_SECONDS
UNKNOWN_SECONDS = ANNOUNCE_SECONDS + 1  # after which a process knows all present subscribers
NAMES_MAX = 10_000  # that a process remembers

# The names of the signals that the kernel itself logs, apart from those that its callers send.
RESULTS = frozenset(("tool:result", "delegation_response"))
ENDS = frozenset(("agent:failed", "halt", "workflow:terminating"))
KERNEL_NAMES = RESULTS | ENDS
# The kernel functions that log signals of their callers, and the names that they always may add.
_ADDED: dict[str, frozenset[str]] = {
    "start_runs": frozenset(), "append": frozenset(), "record_call": frozenset(), "finish": frozenset(), "react": frozenset(),
    "begin_call": frozenset(), "suspend": RESULTS, "report": RESULTS, "enqueue": frozenset(("agent:activated",)), "defer": frozenset(),
    "release": frozenset(), "stop": ENDS, "stop_runs": ENDS, "fail_unclaimable": ENDS,
}  # fmt: skip
# The outcomes of an item after which the kernel has logged more, and its names.
_OF_OUTCOME = {"stopped": ENDS, "exhausted": ENDS, "in_doubt": RESULTS}
# The lists of moved turns in the answers of sweeps, and the names of the signals about them.
_MOVED = {"resolved": RESULTS, "resumed": RESULTS, "ended": ENDS, "failed": ENDS, "stopped": ENDS, "stopping": ENDS}
_SWEEPS = frozenset(f"sweep_{name}" for name in ("leases", "expired", "queued", "waits", "reports", "stuck", "stops"))
WRITERS = _SWEEPS | _ADDED.keys()


class Presence:
    """Whether a bell was announced recently, or may have been before this process listened. Receives the rings of its announcement.

    until: the time of the event loop after which it counts as absent.
    """

    def __init__(self, project: str, announcement: str, clock: Callable[[], float]):
        self.keys: tuple[BellKey, ...] = (BellKey(project, announcement),)
        self.until = clock() + UNKNOWN_SECONDS
        self._clock = clock

    def ring(self) -> None:
        self.until = self._clock() + PRESENCE_SECONDS

    def ring_from_wire(self) -> None:
        """Does the same: a forged ring only makes the payloads of later rings longer, so it needs no limit."""
        self.ring()


class SignalBells:
    """The subscribers of one project, as far as this process knows."""

    def __init__(self, project: str, subscriptions: Subscriptions, clock: Callable[[], float]):
        self._project = project
        self._subscriptions = subscriptions
        self._clock = clock
        self._restricted = self._listen(SUBSCRIBERS)
        self._named = self._listen(f"{SUBSCRIBERS}{UNNAMED}")
        self._new_until = clock() + UNKNOWN_SECONDS
        self._all = [BellKey(project, f"{SIGNALS}{UNNAMED}"), BellKey(project, SIGNALS)]
        self._presences: dict[str, Presence] = {}  # by the part of its key after SIGNALS
        self._of_name: dict[str, list[tuple[BellKey, Presence]]] = {}

    def after(self, function: str, arguments: tuple[Any, ...], answer: Any) -> list[BellKey]:
        """The bells to ring after a call of one of WRITERS."""
        now = self._clock()
        if now < self._new_until and function not in _SWEEPS:
            return self._all
        is_named, is_restricted = now < self._named.until, now < self._restricted.until
        if not is_named and not is_restricted:
            return []
        names = names_of(function, arguments, answer)
        keys = self._all[1:] if is_restricted and names else []
        if is_named:
            if len(self._of_name) > NAMES_MAX:
                self._forget()
            for name in names:
                for key, presence in self._of_name.get(name) or self._bells_of(name):
                    if now < presence.until and key not in keys:
                        keys.append(key)
        return keys

    def _bells_of(self, name: str) -> list[tuple[BellKey, Presence]]:
        bells = [name, f"{name.partition(':')[0]}:*", f"*:{name.rpartition(':')[2]}", "*"]
        for bell in bells:
            if bell not in self._presences:
                self._presences[bell] = self._listen(f"{SUBSCRIBERS}{bell}")
        found = self._of_name[name] = [(BellKey(self._project, f"{SIGNALS}{b}"), self._presences[b]) for b in bells]
        return found

    def _listen(self, announcement: str) -> Presence:
        presence = Presence(self._project, announcement, self._clock)
        self._subscriptions.add(presence)
        return presence

    def _forget(self) -> None:
        for presence in self._presences.values():
            self._subscriptions.forget(presence)
        self._presences.clear()
        self._of_name.clear()


def signal_bell(pattern: str) -> str:
    """The bell that rings for all names that a pattern matches: the pattern without a wildcard, `first:*`, `*:last`, or `*`."""
    if "*" not in pattern:
        return pattern
    first, last = pattern.partition(":")[0], pattern.rpartition(":")[2]
    if "*" not in first:
        return f"{first}:*"
    return "*" if "*" in last else f"*:{last}"


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
        names.update(draft["name"] for draft in item.get("signals") or ())
        if item.get("failure") or (item.get("reaction") or {}).get("stops"):
            names |= ENDS
    return names.union(*(_OF_OUTCOME.get(row["outcome"], ()) for row in answer))
