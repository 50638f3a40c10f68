"""The bells that wake subscribers: a commit rings for the names of its signals, and only where somebody listens for them.

A subscriber listens to a bell for each of its patterns (`signal_bell`): of one name, of all names that begin with a segment or contain one, of
all names with a number of segments, or of all names. It announces these bells every ANNOUNCE_SECONDS. A process that has not received the announcement of a bell for PRESENCE_SECONDS
does not ring it any more. A process that has just started cannot know of the subscribers yet, so for UNKNOWN_SECONDS it rings all bells of its
names; later it does so for each name that is new to it. Nothing of this is stored: without a ring, subscribers find signals by polling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heliograph.world.seam import ANNOUNCE_SECONDS, ANY, SIGNALS, SUBSCRIBERS, BellKey
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
        self._any = self._listen(f"{SUBSCRIBERS}{ANY}")
        self._presences: dict[str, Presence] = {}  # by the part of its key after SIGNALS
        self._of_name: dict[str, list[tuple[BellKey, Presence]]] = {}

    def after(self, function: str, arguments: tuple[Any, ...], answer: Any) -> list[BellKey]:
        """The bells to ring after a call of one of WRITERS."""
        now = self._clock()
        if now >= self._any.until:
            return []
        if len(self._of_name) > NAMES_MAX:
            self._forget()
        keys: dict[BellKey, None] = {}
        for name in sorted(names_of(function, arguments, answer)):
            for key, presence in self._of_name.get(name) or self._bells_of(name):
                if now < presence.until:
                    keys[key] = None
        return list(keys)

    def _bells_of(self, name: str) -> list[tuple[BellKey, Presence]]:
        bells = bells_of(name)
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
    """The bell that rings for all names that a pattern matches.

    The pattern itself, if it has no wildcard or consists of `*`; `segment:*`, if its first segment is no wildcard; `*:segment` of its last
    segment that is none; or `**`.
    """
    segments = pattern.split(":")
    if "*" not in pattern or set(segments) == {"*"}:
        return pattern
    if "*" not in segments[0]:
        return f"{segments[0]}:*"
    return next((f"*:{segment}" for segment in reversed(segments) if "*" not in segment), "**")


def bells_of(name: str) -> list[str]:
    """The bells of all patterns that may match a name."""
    segments = name.split(":")
    of_length = ":".join("*" for _ in segments)
    return [name, f"{segments[0]}:*", *(f"*:{segment}" for segment in dict.fromkeys(segments)), of_length, "**"]


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
    for row in answer:
        if row["outcome"] in _OF_OUTCOME:
            names |= _OF_OUTCOME[row["outcome"]]
    return names
