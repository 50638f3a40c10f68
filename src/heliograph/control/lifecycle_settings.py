"""The map `lifecycle` of a runtime specification: the limits of the phases, and the policies at a limit and for a failed tool."""

from __future__ import annotations

from typing import Any, Literal

from heliograph.control.field_types import Count, Flag, Natural, Positive
from heliograph.control.wire_model import WireModel, read_model


class InitPhase(WireModel):
    """The settings of phase init. max_retries: how often a failed init is repeated, unless retry_on_failure is false."""

    described = "the entry of phase init"
    timeout_seconds: Positive = 30
    retry_on_failure: Flag = True
    max_retries: Natural = 3


class PlanPhase(WireModel):
    described = "the entry of phase plan"
    timeout_seconds: Positive = 60


class ActPhase(WireModel):
    described = "the entry of phase act"
    timeout_seconds: Positive = 300


class ReflectPhase(WireModel):
    described = "the entry of phase reflect"
    timeout_seconds: Positive = 30


class TerminatePhase(WireModel):
    """The settings of phase terminate. force_after_seconds: the time after which the turn ends, even if its hook ignores the timeout."""

    described = "the entry of phase terminate"
    timeout_seconds: Positive = 15
    force_after_seconds: Positive = 30


class Phases(WireModel):
    described = "the phases of a lifecycle"
    init: InitPhase = InitPhase()
    plan: PlanPhase = PlanPhase()
    act: ActPhase = ActPhase()
    reflect: ReflectPhase = ReflectPhase()
    terminate: TerminatePhase = TerminatePhase()


class ErrorHandling(WireModel):
    """The policies at a limit and for failed tools. max_tool_retries applies to `on_tool_error: retry`. `deliver_best` is an extension."""

    described = "the error_handling of a lifecycle"
    on_timeout: Literal["terminate", "deliver_best"] = "terminate"
    on_resource_exhausted: Literal["terminate", "deliver_best"] = "terminate"
    on_tool_error: Literal["retry", "skip", "terminate"] = "retry"
    max_tool_retries: Natural = 3


class LifecycleSettings(WireModel):
    """The limits of an agent's phases. on_max_iterations is an extension of Heliograph."""

    described = "the map lifecycle"
    phases: Phases = Phases()
    max_iterations: Count = 10
    total_timeout_seconds: Positive = 3600
    on_max_iterations: Literal["fail", "deliver_best"] = "fail"
    error_handling: ErrorHandling = ErrorHandling()


def read_lifecycle(wire: Any, path: str = "") -> LifecycleSettings:
    """Read the map `lifecycle` from parsed JSON or YAML. Raises the errors of `read_signal`."""
    return read_model(LifecycleSettings, wire, path)
