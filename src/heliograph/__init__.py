"""Heliograph: a durable, signal-driven runtime for AI agents, on PostgreSQL."""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume True; importing `typing` would slow down each start of `helio`

if TYPE_CHECKING:
    from typing import Any

    from heliograph.adapters.json_lines import JsonLines
    from heliograph.adapters.logs import Logs
    from heliograph.adapters.metrics import Metrics
    from heliograph.adapters.terminal import Terminal
    from heliograph.adapters.webhook import Webhook
    from heliograph.app import Heliograph
    from heliograph.client.budgets import Budget
    from heliograph.client.client import Client
    from heliograph.client.human_tasks import HumanTask
    from heliograph.client.replies import Command, StopResult
    from heliograph.definitions.agent import AgentSpec, define_agent
    from heliograph.definitions.circuit_breakers import CircuitBreaker
    from heliograph.definitions.hooks import Agent
    from heliograph.definitions.lifecycle import Lifecycle
    from heliograph.definitions.lifecycle_options import lifecycle_options
    from heliograph.definitions.plan import DelegationStep, GoalAchieved, IterationNeeded, ModelStep, Plan, ToolStep
    from heliograph.definitions.signal_definition import SignalDefinition, define_signal
    from heliograph.definitions.tool import Tool, external_tool, tool
    from heliograph.definitions.tool_agent import tool_agent
    from heliograph.errors import (
        AgentFailed,
        BudgetExceeded,
        CircuitOpen,
        Conflict,
        DelegationFailed,
        Denied,
        HarnessError,
        HeliographError,
        InvalidInput,
        KernelRejected,
        NotFound,
        RateLimited,
        RecoverableError,
        Rejected,
        SetupError,
        StepInDoubt,
        StoreUnavailable,
        ToolFailed,
        ToolTimedOut,
        TurnTimedOut,
        UnrecoverableError,
    )
    from heliograph.execution.context import Context
    from heliograph.execution.phase_context import PhaseContext
    from heliograph.gateway.gateway import Gateway
    from heliograph.harness.function import FunctionHarness
    from heliograph.harness.pydantic_agent import AgentHarness
    from heliograph.harness.scripted import ScriptedModel
    from heliograph.playback.player import Player
    from heliograph.playback.snapshot import Snapshot
    from heliograph.policy.retry import RetryPolicy
    from heliograph.policy.webhook_signature import verify_webhook
    from heliograph.ports import (
        AssistantMessage,
        Harness,
        Memory,
        MemoryHit,
        ModelReply,
        ModelRequest,
        TextDelta,
        ThinkingDelta,
        ToolCall,
        ToolMessage,
        ToolSpec,
        UserMessage,
    )
    from heliograph.recording.api import replay
    from heliograph.recording.file import read_recording, write_recording
    from heliograph.recording.modes import ReplayDiverged
    from heliograph.recording.options import RecordingOptions
    from heliograph.recording.recording import Recording
    from heliograph.recording.replay import ReplayResult
    from heliograph.records import Card
    from heliograph.run_result import RunResult
    from heliograph.runtime import Runtime, open_runtime
    from heliograph.secrets import Secret
    from heliograph.signal_handlers import (
        DelegationHandler,
        FallbackHandler,
        SignalHandler,
        SignalHandlers,
        ToolCallHandler,
    )
    from heliograph.signals.model import Signal, Source
    from heliograph.signals.pattern import compile_pattern
    from heliograph.tools.code_tool import code_tool
    from heliograph.tools.context import ToolContext
    from heliograph.tools.mcp import MCPServer
    from heliograph.tools.sandbox import SandboxLimits
    from heliograph.tools.secrets import secret
    from heliograph.turn.calls import Call, CallResult, Delegation
    from heliograph.turn.human_tasks import Grant
    from heliograph.turn.interruptions import Defer
    from heliograph.turn.step_options import Step
    from heliograph.turn.untrusted import untrusted
    from heliograph.types import NOT_GIVEN

# Loaded when first used: `helio --help` and a program that only defines agents load no driver and no model library.
_HOMES = {
    "heliograph.adapters.json_lines": ("JsonLines",),
    "heliograph.adapters.logs": ("Logs",),
    "heliograph.adapters.metrics": ("Metrics",),
    "heliograph.adapters.terminal": ("Terminal",),
    "heliograph.adapters.webhook": ("Webhook",),
    "heliograph.app": ("Heliograph",),
    "heliograph.client.budgets": ("Budget",),
    "heliograph.client.client": ("Client",),
    "heliograph.client.human_tasks": ("HumanTask",),
    "heliograph.client.replies": ("Command", "StopResult"),
    "heliograph.errors": (
        "AgentFailed", "BudgetExceeded", "CircuitOpen", "Conflict", "DelegationFailed", "Denied", "HarnessError", "HeliographError", "InvalidInput", "KernelRejected",
        "NotFound", "RateLimited", "RecoverableError", "Rejected", "SetupError", "StepInDoubt", "StoreUnavailable", "ToolFailed", "ToolTimedOut", "TurnTimedOut",
        "UnrecoverableError",
    ),
    "heliograph.harness.pydantic_agent": ("AgentHarness",),
    "heliograph.harness.function": ("FunctionHarness",),
    "heliograph.harness.scripted": ("ScriptedModel",),
    "heliograph.ports": (
        "AssistantMessage", "Harness", "Memory", "ModelReply", "ModelRequest", "MemoryHit", "TextDelta",
        "ThinkingDelta", "ToolCall", "ToolMessage", "ToolSpec", "UserMessage",
    ),
    "heliograph.definitions.agent": ("AgentSpec", "define_agent"),
    "heliograph.definitions.hooks": ("Agent",),
    "heliograph.definitions.lifecycle": ("Lifecycle",),
    "heliograph.definitions.lifecycle_options": ("lifecycle_options",),
    "heliograph.definitions.plan": ("DelegationStep", "GoalAchieved", "IterationNeeded", "ModelStep", "Plan", "ToolStep"),
    "heliograph.definitions.circuit_breakers": ("CircuitBreaker",),
    "heliograph.definitions.signal_definition": ("SignalDefinition", "define_signal"),
    "heliograph.definitions.tool": ("Tool", "external_tool", "tool"),
    "heliograph.definitions.tool_agent": ("tool_agent",),
    "heliograph.gateway.gateway": ("Gateway",),
    "heliograph.playback.player": ("Player",),
    "heliograph.playback.snapshot": ("Snapshot",),
    "heliograph.recording.api": ("replay",),
    "heliograph.recording.file": ("read_recording", "write_recording"),
    "heliograph.recording.modes": ("ReplayDiverged",),
    "heliograph.recording.options": ("RecordingOptions",),
    "heliograph.recording.recording": ("Recording",),
    "heliograph.recording.replay": ("ReplayResult",),
    "heliograph.records": ("Card",),
    "heliograph.policy.retry": ("RetryPolicy",),
    "heliograph.policy.webhook_signature": ("verify_webhook",),
    "heliograph.run_result": ("RunResult",),
    "heliograph.runtime": ("Runtime", "open_runtime"),
    "heliograph.secrets": ("Secret",),
    "heliograph.signal_handlers": (
        "DelegationHandler", "FallbackHandler", "SignalHandler", "SignalHandlers", "ToolCallHandler",
    ),
    "heliograph.signals.model": ("Signal", "Source"),
    "heliograph.signals.pattern": ("compile_pattern",),
    "heliograph.tools.context": ("ToolContext",),
    "heliograph.tools.code_tool": ("code_tool",),
    "heliograph.tools.mcp": ("MCPServer",),
    "heliograph.tools.sandbox": ("SandboxLimits",),
    "heliograph.tools.secrets": ("secret",),
    "heliograph.turn.calls": ("Call", "CallResult", "Delegation"),
    "heliograph.types": ("NOT_GIVEN",),
    "heliograph.turn.interruptions": ("Defer",),
    "heliograph.turn.step_options": ("Step",),
    "heliograph.turn.human_tasks": ("Grant",),
    "heliograph.turn.untrusted": ("untrusted",),
    "heliograph.execution.context": ("Context",),
    "heliograph.execution.phase_context": ("PhaseContext",),
}  # fmt: skip
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NOT_GIVEN",
    "Agent",
    "AgentFailed",
    "AgentHarness",
    "AgentSpec",
    "AssistantMessage",
    "Budget",
    "BudgetExceeded",
    "Call",
    "CallResult",
    "Card",
    "CircuitBreaker",
    "CircuitOpen",
    "Client",
    "Command",
    "Conflict",
    "Context",
    "Defer",
    "Delegation",
    "DelegationFailed",
    "DelegationHandler",
    "DelegationStep",
    "Denied",
    "FallbackHandler",
    "FunctionHarness",
    "Gateway",
    "GoalAchieved",
    "Grant",
    "Harness",
    "HarnessError",
    "Heliograph",
    "HeliographError",
    "HumanTask",
    "InvalidInput",
    "IterationNeeded",
    "JsonLines",
    "KernelRejected",
    "Lifecycle",
    "Logs",
    "MCPServer",
    "Memory",
    "MemoryHit",
    "Metrics",
    "ModelReply",
    "ModelRequest",
    "ModelStep",
    "NotFound",
    "PhaseContext",
    "Plan",
    "Player",
    "RateLimited",
    "Recording",
    "RecordingOptions",
    "RecoverableError",
    "Rejected",
    "ReplayDiverged",
    "ReplayResult",
    "RetryPolicy",
    "RunResult",
    "Runtime",
    "SandboxLimits",
    "ScriptedModel",
    "Secret",
    "SetupError",
    "Signal",
    "SignalDefinition",
    "SignalHandler",
    "SignalHandlers",
    "Snapshot",
    "Source",
    "Step",
    "StepInDoubt",
    "StopResult",
    "StoreUnavailable",
    "Terminal",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolCallHandler",
    "ToolContext",
    "ToolFailed",
    "ToolMessage",
    "ToolSpec",
    "ToolStep",
    "ToolTimedOut",
    "TurnTimedOut",
    "UnrecoverableError",
    "UserMessage",
    "Webhook",
    "code_tool",
    "compile_pattern",
    "define_agent",
    "define_signal",
    "external_tool",
    "lifecycle_options",
    "open_runtime",
    "read_recording",
    "replay",
    "secret",
    "tool",
    "tool_agent",
    "untrusted",
    "verify_webhook",
    "write_recording",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'heliograph' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
