"""The phases of a turn: hooks, plans, and their limits."""

from __future__ import annotations

from heliograph.definitions.lifecycle import Lifecycle
from heliograph.definitions.lifecycle_options import lifecycle_options
from heliograph.definitions.plan import DelegationStep, GoalAchieved, IterationNeeded, ModelStep, Plan, ToolStep
from heliograph.execution.phase_context import PhaseContext

__all__ = [
    "DelegationStep",
    "GoalAchieved",
    "IterationNeeded",
    "Lifecycle",
    "ModelStep",
    "PhaseContext",
    "Plan",
    "ToolStep",
    "lifecycle_options",
]
