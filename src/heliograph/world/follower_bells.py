"""The bells that wake followers of a log: a commit rings on a wire only where some process follows a run of the project.

A process that follows logs announces this at once and every ANNOUNCE_SECONDS, as subscribers do (`signal_bells.py`). Processes that have not
received an announcement for PRESENCE_SECONDS ring for followers of their own process only. One that has just started cannot know of the
others yet, so it rings for UNKNOWN_SECONDS. Without a ring, followers look by themselves twice a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from heliograph.world.seam import BellKey
from heliograph.world.signal_bells import PRESENCE_SECONDS, UNKNOWN_SECONDS
from heliograph.world.subscriptions import Subscriptions

LOG = "log:"  # the first part of the names of these bells
ANNOUNCEMENT = "followers:?"
ARRIVALS = "followers:wires"  # rings only when a lost wire is back, or the project's key is there: earlier announcements were not sent
SETTLED_SECONDS = 0.05  # after the first announcement: commits before its arrival have not rung


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


class FollowerBells:
    """The followers of all projects, as far as this process knows."""

    def __init__(self, subscriptions: Subscriptions, clock: Callable[[], float]):
        self._subscriptions = subscriptions
        self._clock = clock
        self._presences: dict[str, Presence] = {}  # by project

    def to_send(self, keys: Iterable[BellKey]) -> list[BellKey]:
        """Return these bells without those that only followers would hear, where there are none in other processes."""
        return [key for key in keys if not key.name.startswith(LOG) or self._is_present(key.project)]

    def own(self, project: str) -> list[BellKey]:
        """Return the bells of the logs that this process follows."""
        return [key for key in self._subscriptions.keys_of(project) if key.name.startswith(LOG)]

    def _is_present(self, project: str) -> bool:
        presence = self._presences.get(project)
        if presence is None:
            presence = self._presences[project] = Presence(project, ANNOUNCEMENT, self._clock)
            self._subscriptions.add(presence)
        return self._clock() < presence.until


def followed(keys: Sequence[BellKey]) -> set[str]:
    """Return the projects of the logs among these bells."""
    return {key.project for key in keys if key.name.startswith(LOG)}
