"""Compare the logs of two runs signal by signal: the first difference, and how far the signals of each agent agree.

By default, two signals are equal if name, agent and payload are. Ids and times differ between any two runs, so ids in payloads are compared
without their random part, and durations and times are left out. Deltas and heartbeats are left out too, because their number depends on
time: the complete text is compared. `is_exact` compares everything, as for a replay.

Both logs are read once, side by side. If the agents of the two runs interleave differently, the digests of the signals of the agent that
is ahead are kept until the other side arrives there, in a temporary file if there are many (`digest_queue`).
"""

from __future__ import annotations

import re
from hashlib import blake2b
from itertools import islice

import msgspec
from msgspec import Struct

from heliograph.json_differences import Difference, differences
from heliograph.playback.digest_queue import DIGEST_BYTES, ChunkFile, DigestQueue
from heliograph.signals.guard_record import without_place
from heliograph.signals.model import Signal, to_wire
from heliograph.types import Json, JsonObject

RUNTIME = "-"  # the row of signals without an agent
DIFFERENCES_MAX = 20
_TIMED_NAMES = frozenset({"text:delta", "thinking:delta", "heartbeat"})
_TIMED_KEYS = frozenset(
    {"duration_ms", "durationMs", "timestamp", "started_at", "finished_at", "deadline", "resume_at", "retry_after_ms"}
)
_ID = re.compile(r"\b([a-z]+_)[0-9a-hjkmnp-tv-z]{21}(?:[0-9a-hjkmnp-tv-z]{5})?\b")


class FirstDifference(Struct, frozen=True):
    """The first signals that differ, and at most 20 differences. A side whose log has ended has None."""

    left: Signal | None
    right: Signal | None
    differences: tuple[Difference, ...]

    def as_json(self) -> JsonObject:
        return {
            "left": None if self.left is None else to_wire(self.left),
            "right": None if self.right is None else to_wire(self.right),
            "differences": [each.as_json() for each in self.differences],
        }


class AgentComparison:
    """How the signals of one agent compare, in its own order. first: the number of its first signal that differs, from 1."""

    def __init__(self, file: ChunkFile) -> None:
        self.left = self.right = self.equal = 0
        self.first: int | None = None
        self._ahead = DigestQueue(file)
        self._is_left_ahead = True

    def add(self, digest: bytes, *, is_left: bool) -> None:
        if is_left:
            self.left += 1
        else:
            self.right += 1
        if not self._ahead or self._is_left_ahead == is_left:
            self._ahead.append(digest)
            self._is_left_ahead = is_left
        elif self._ahead.popleft() == digest:
            self.equal += 1
        elif self.first is None:
            self.first = min(self.left, self.right)

    def end(self) -> None:
        if self.left != self.right and self.first is None:
            self.first = min(self.left, self.right) + 1

    @property
    def memory_bytes(self) -> int:
        """The size of the digests that are in memory."""
        return self._ahead.memory_bytes

    def as_json(self) -> JsonObject:
        return {"left": self.left, "right": self.right, "equal": self.equal, "first_difference": self.first}


class Comparison:
    """The result of a comparison. agents: by name; signals without an agent are those of `-`. file: for digests while it compares."""

    def __init__(self, file: ChunkFile, *, is_exact: bool = False):
        self.is_exact = is_exact
        self.left_count = self.right_count = 0
        self.first: FirstDifference | None = None
        self.agents: dict[str, AgentComparison] = {}
        self._file = file

    @property
    def is_equal(self) -> bool:
        return self.first is None

    @property
    def differs_in_order_only(self) -> bool:
        """Whether each agent emitted the same signals in the same order, but agents interleave differently."""
        return self.first is not None and all(agent.first is None for agent in self.agents.values())

    def as_json(self) -> JsonObject:
        return {
            "equal": self.is_equal, "order_only": self.differs_in_order_only, "exact": self.is_exact,
            "signals": {"left": self.left_count, "right": self.right_count},
            "first": None if self.first is None else self.first.as_json(),
            "agents": {name: agent.as_json() for name, agent in self.agents.items()},
        }  # fmt: skip

    def skips(self, signal: Signal) -> bool:
        """Whether a signal is left out, because how many there are depends on time."""
        return not self.is_exact and signal.name in _TIMED_NAMES

    def add(self, left: Signal | None, right: Signal | None) -> None:
        """Compare the next signals of both sides. None: this side has ended."""
        values = [None if each is None else compared_value(each, is_exact=self.is_exact) for each in (left, right)]
        digests = [_digest(value) for value in values]
        if self.first is None and digests[0] != digests[1]:
            found = (
                ()
                if left is None or right is None
                else tuple(islice(differences(values[0], values[1]), DIFFERENCES_MAX))
            )
            self.first = FirstDifference(left, right, found)
        self.left_count += left is not None
        self.right_count += right is not None
        for signal, digest, is_left in ((left, digests[0], True), (right, digests[1], False)):
            if signal is not None:
                agent = self.agents.get(signal.agent or RUNTIME)
                if agent is None:
                    agent = self.agents[signal.agent or RUNTIME] = AgentComparison(self._file)
                agent.add(digest, is_left=is_left)

    def end(self) -> None:
        for agent in self.agents.values():
            agent.end()


def compared_value(signal: Signal, *, is_exact: bool) -> JsonObject:
    """Return the parts of a signal that are compared."""
    payload = signal.payload if is_exact else without_place(signal.payload)
    whole: JsonObject = {"name": signal.name, "agent": signal.agent, "payload": payload}
    if is_exact:
        whole = to_wire(signal) | {"turn_id": signal.turn_id}
    return {key: _comparable(each, is_exact=is_exact) for key, each in whole.items()}


def _comparable(value: Json, *, is_exact: bool) -> Json:
    """`value` without what differs between any two runs, unless `is_exact`. Equal numbers become the same one."""
    if isinstance(value, str):
        return value if is_exact else _ID.sub(r"\1…", value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each, is_exact=is_exact) for each in value]
    if isinstance(value, dict):
        return {
            key: _comparable(each, is_exact=is_exact)
            for key, each in value.items()
            if is_exact or key not in _TIMED_KEYS
        }
    return value


def _digest(value: JsonObject | None) -> bytes:
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=DIGEST_BYTES).digest()
