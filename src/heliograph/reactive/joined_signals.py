"""Which signal matched each pattern of `activate_when_all`, from the first match until the agent is activated or skipped. Pure.

A reaction does not know the positions of its own drafts, because other turns append to the log before it commits. So the memory of the run has
the index of a draft, and `join_base`: null, which the kernel replaces by the position before the commit. The next reaction turns both into
the id. In the payload of an activation, a signal of the same commit is `before`: the number of positions between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from heliograph.ids import signal_id
from heliograph.signals.pattern import Pattern
from heliograph.types import Json, JsonObject

Member = int | str  # the index of a draft of this reaction, or the id of a recorded signal


class JoinedSignals:
    """The matched signals of all joins of a run, during one reaction."""

    def __init__(self, memory: Mapping[str, Any], run_id: str):
        """memory: that of the run; memories of earlier versions have no signals."""
        base = memory.get("join_base")
        self._members: dict[str, dict[str, Member]] = {}
        for agent, members in dict(memory.get("join_signals", {})).items():
            for pattern, member in members.items():
                if isinstance(member, str):
                    self._members.setdefault(agent, {})[pattern] = member
                elif base is not None:
                    self._members.setdefault(agent, {})[pattern] = signal_id(run_id, base + 1 + member)

    def add(self, agent: str, patterns: Collection[int], signal: Member) -> None:
        """A signal matches patterns of an agent; an earlier match of a pattern remains."""
        members = self._members.setdefault(agent, {})
        for pattern in patterns:
            members.setdefault(str(pattern), signal)

    def take(self, agent: str, patterns: tuple[Pattern, ...], place: int) -> JsonObject:
        """End the join of an agent; return {joined} for the payload of the draft at index `place`."""
        members = self._members.pop(agent, {})
        joined: list[Json] = []
        for number, pattern in enumerate(patterns):
            member = members.get(str(number))
            if member is not None:
                where = {"signal": member} if isinstance(member, str) else {"before": place - member}
                joined.append({"pattern": pattern.text, **where})
        return {"joined": joined}

    def store(self, memory: dict[str, Any], base: int | None) -> None:
        """Write the joins that are not complete into the memory. base: the position before this reaction's commit, if it is known."""
        for key in ("join_signals", "join_base"):
            memory.pop(key, None)
        if not self._members:
            return
        memory["join_signals"] = self._members
        if any(isinstance(member, int) for members in self._members.values() for member in members.values()):
            memory["join_base"] = base


def lacks_positions(memory: Mapping[str, Any]) -> bool:
    """Whether the kernel has still to write the position of the joined signals into a memory."""
    return "join_base" in memory and memory["join_base"] is None


def placed(joined: Any, run_id: str, seq: int) -> JsonObject:
    """{joined} of the signal at `seq` for another signal: with the ids of all signals. Empty if it has none."""
    if not isinstance(joined, list):
        return {}
    found: list[Json] = []
    for each in joined:
        if isinstance(each, dict):
            before = each.get("before")
            found.append({
                "pattern": each.get("pattern"),
                "signal": signal_id(run_id, seq - before) if isinstance(before, int) else each.get("signal"),
            })  # fmt: skip
    return {"joined": found}
