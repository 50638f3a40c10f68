"""Heliograph: a durable, signal-driven runtime for AI agents, on PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliograph.app import Heliograph
    from heliograph.client import Client, Command, StopResult
    from heliograph.errors import (
        AgentFailed,
        DelegationFailed,
        HarnessError,
        HeliographError,
        InvalidInput,
        KernelRefused,
        NotFound,
        Refused,
        SetupError,
        StepInDoubt,
        StoreUnavailable,
        ToolFailed,
        ToolTimedOut,
        TurnTimedOut,
    )
    from heliograph.harness.scripted import ScriptedModel
    from heliograph.ports import Harness, ModelReply, ModelRequest, TextDelta, ThinkingDelta
    from heliograph.reactive.agent import AgentSpec, define_agent
    from heliograph.records import Card
    from heliograph.runtime import RunResult, Runtime, open_runtime
    from heliograph.signals.model import Signal, Source
    from heliograph.signals.pattern import compile_pattern
    from heliograph.turn.calls import Call, CallResult, Delegation
    from heliograph.turn.interruptions import Defer
    from heliograph.worker.context import Context

# Loaded when first used: `helio --help` and a program that only defines agents load no driver and no model library.
_HOMES = {
    "heliograph.app": ("Heliograph",),
    "heliograph.client": ("Client", "Command", "StopResult"),
    "heliograph.errors": (
        "AgentFailed", "DelegationFailed", "HarnessError", "HeliographError", "InvalidInput", "KernelRefused", "NotFound",
        "Refused", "SetupError", "StepInDoubt", "StoreUnavailable", "ToolFailed", "ToolTimedOut", "TurnTimedOut",
    ),
    "heliograph.harness.scripted": ("ScriptedModel",),
    "heliograph.ports": ("Harness", "ModelReply", "ModelRequest", "TextDelta", "ThinkingDelta"),
    "heliograph.reactive.agent": ("AgentSpec", "define_agent"),
    "heliograph.records": ("Card",),
    "heliograph.runtime": ("RunResult", "Runtime", "open_runtime"),
    "heliograph.signals.model": ("Signal", "Source"),
    "heliograph.signals.pattern": ("compile_pattern",),
    "heliograph.turn.calls": ("Call", "CallResult", "Delegation"),
    "heliograph.turn.interruptions": ("Defer",),
    "heliograph.worker.context": ("Context",),
}  # fmt: skip
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AgentFailed", "AgentSpec", "Call", "CallResult", "Card", "Client", "Command", "Context", "Defer", "Delegation",
    "DelegationFailed", "Harness", "HarnessError", "Heliograph", "HeliographError", "InvalidInput", "KernelRefused",
    "ModelReply", "ModelRequest", "NotFound", "Refused", "RunResult", "Runtime", "ScriptedModel", "SetupError", "Signal",
    "Source", "StepInDoubt", "StopResult", "StoreUnavailable", "TextDelta", "ThinkingDelta", "ToolFailed", "ToolTimedOut",
    "TurnTimedOut", "compile_pattern", "define_agent", "open_runtime",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'heliograph' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)
