"""Name the code that runs in a simulation, for messages: a tool, an agent or the test."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from heliograph.telemetry.logs import current_turn

_tool: ContextVar[str | None] = ContextVar("simulated_tool", default=None)


def enter_tool(name: str) -> None:
    """Attribute the rest of the current task, and the tasks that it starts, to this tool."""
    _tool.set(name)


def caller() -> str:
    """The code that runs in the current task."""
    tool, turn = _tool.get(), current_turn()
    if turn is None:
        return "the test"
    return f"agent {turn.agent}" if tool is None else f"tool {tool} of agent {turn.agent}"


def stub_to_write() -> str:
    """The next step for the author of the test: what takes the place of this code."""
    tool = _tool.get()
    if tool is None:
        return "replace the function that does it, for example with monkeypatch, or make it a tool"
    return f'pass tools={{"{tool}": a stub}} to sim.serve'


def place_of(address: Any) -> str:
    """The address of a socket as people write it."""
    return ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
