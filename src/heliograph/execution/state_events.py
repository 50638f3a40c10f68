"""State events: the current activity of an agent, for observers on the wire (`evt.agent.<id>.state`).

Best effort, without a commit. An agent emits at most ten a second; the rest are dropped. Views always have the current values.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Literal

from heliograph.records import Claimed
from heliograph.world.seam import World

Activity = Literal["thinking", "executing_tool", "awaiting_tool_result"]
PER_SECOND_MAX = 10
_AGENTS_MAX = 1000  # the agents whose recent events are remembered


class StateEvents:
    """Publishes the state events of one worker's turns, and limits their rate."""

    def __init__(self) -> None:
        self._recent: OrderedDict[str, deque[float]] = OrderedDict()

    def emit(
        self, world: World, claimed: Claimed, activity: Activity, tool: str | None = None, waiting_tool_count: int = 0
    ) -> None:
        """Publish one. tool: the running tool, or the tool that the turn waits for. waiting_tool_count: the calls without a result."""
        if not world.is_observed or not self._has_room(claimed.agent_id, world.monotonic()):
            return
        world.publish_event(f"evt.agent.{claimed.agent_id}.state", {
            "agent_turn_id": claimed.turn_id, "turn_epoch": claimed.epoch,
            "status": "suspended" if activity == "awaiting_tool_result" else "running",
            "metadata": {"activity": activity, "current_tool": tool, "waiting_tool_count": waiting_tool_count},
        })  # fmt: skip

    def _has_room(self, agent_id: str, now: float) -> bool:
        """Whether this agent may have another event; counts it if so."""
        times = self._recent.setdefault(agent_id, deque(maxlen=PER_SECOND_MAX))
        self._recent.move_to_end(agent_id)
        if len(self._recent) > _AGENTS_MAX:
            self._recent.popitem(last=False)
        if len(times) == PER_SECOND_MAX and now - times[0] < 1:
            return False
        times.append(now)
        return True
