"""State events: their rate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.execution.state_events import PER_SECOND_MAX, StateEvents


class Wire:
    """The part of the world that state events use, with a clock that the test moves."""

    is_observed = True

    def __init__(self) -> None:
        self.time = 0.0
        self.bodies: list[tuple[str, dict[str, Any]]] = []

    def monotonic(self) -> float:
        return self.time

    def publish_event(self, subject: str, body: dict[str, Any]) -> None:
        self.bodies.append((subject, body))


def claimed(agent_id: str) -> Any:
    return SimpleNamespace(agent_id=agent_id, turn_id="turn_1", epoch=2)


@pytest.mark.proves("L0-113")
def test_state_events_are_limited_to_ten_a_second_per_agent() -> None:
    wire: Any = Wire()
    events = StateEvents()
    for n in range(200):
        wire.time = n / 100
        events.emit(wire, claimed("run/busy"), "thinking")
    busy = len(wire.bodies)
    assert busy == 2 * PER_SECOND_MAX
    events.emit(wire, claimed("run/other"), "executing_tool", "search")
    assert wire.bodies[-1] == ("evt.agent.run/other.state", {
        "agent_turn_id": "turn_1", "turn_epoch": 2, "status": "running",
        "metadata": {"activity": "executing_tool", "current_tool": "search", "waiting_tool_count": 0},
    })  # fmt: skip
