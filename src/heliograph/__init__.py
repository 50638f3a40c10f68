"""Heliograph: a durable, signal-driven runtime for AI agents, on PostgreSQL."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.app import Heliograph
    from heliograph.client.client import Client
    from heliograph.client.session import Reply, Session, SessionMessage
    from heliograph.definitions.circuit_breakers import CircuitBreaker
    from heliograph.definitions.signal_definition import SignalDefinition, define_signal
    from heliograph.definitions.tool import Tool, external_tool, tool
    from heliograph.execution.context import Context
    from heliograph.policy.retry import RetryPolicy
    from heliograph.run_result import RunResult
    from heliograph.runtime import Runtime, open_runtime
    from heliograph.secrets import Secret
    from heliograph.signals.model import Signal
    from heliograph.tools.context import ToolContext
    from heliograph.tools.secrets import secret
    from heliograph.turn.calls import CallResult
    from heliograph.turn.described_calls import Call, Delegation
    from heliograph.turn.human_tasks import Grant
    from heliograph.turn.interruptions import Defer
    from heliograph.turn.step_options import Step
    from heliograph.turn.untrusted import untrusted

__all__ = [
    "Call",
    "CallResult",
    "CircuitBreaker",
    "Client",
    "Context",
    "Defer",
    "Delegation",
    "Grant",
    "Heliograph",
    "Reply",
    "RetryPolicy",
    "RunResult",
    "Runtime",
    "Secret",
    "Session",
    "SessionMessage",
    "Signal",
    "SignalDefinition",
    "Step",
    "Tool",
    "ToolContext",
    "define_signal",
    "external_tool",
    "open_runtime",
    "secret",
    "tool",
    "untrusted",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.app": ("Heliograph",),
            "heliograph.client.client": ("Client",),
            "heliograph.client.session": ("Reply", "Session", "SessionMessage"),
            "heliograph.definitions.circuit_breakers": ("CircuitBreaker",),
            "heliograph.definitions.signal_definition": ("SignalDefinition", "define_signal"),
            "heliograph.definitions.tool": ("Tool", "external_tool", "tool"),
            "heliograph.execution.context": ("Context",),
            "heliograph.policy.retry": ("RetryPolicy",),
            "heliograph.run_result": ("RunResult",),
            "heliograph.runtime": ("Runtime", "open_runtime"),
            "heliograph.secrets": ("Secret",),
            "heliograph.signals.model": ("Signal",),
            "heliograph.tools.context": ("ToolContext",),
            "heliograph.tools.secrets": ("secret",),
            "heliograph.turn.calls": ("CallResult",),
            "heliograph.turn.described_calls": ("Call", "Delegation"),
            "heliograph.turn.human_tasks": ("Grant",),
            "heliograph.turn.interruptions": ("Defer",),
            "heliograph.turn.step_options": ("Step",),
            "heliograph.turn.untrusted": ("untrusted",),
        },
        others=(
            "models", "errors", "agents", "phases", "types", "tools", "memory", "client", "adapters", "signals", "signal_handlers",
            "recording", "playback", "webhooks", "gateway", "testing", "config", "control", "manifest", "trace_context",
        ),
    )  # fmt: skip
