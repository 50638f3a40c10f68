"""Agents defined apart from an application, for `Heliograph.add`."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.definitions.agent import AgentSpec, define_agent
    from heliograph.definitions.hooks import Agent
    from heliograph.definitions.tool_agent import tool_agent

__all__ = ["Agent", "AgentSpec", "define_agent", "tool_agent"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.definitions.agent": ("AgentSpec", "define_agent"),
            "heliograph.definitions.hooks": ("Agent",),
            "heliograph.definitions.tool_agent": ("tool_agent",),
        },
    )
