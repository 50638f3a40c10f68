"""The values that hooks return: a plan with its steps, and the decision of the reflect phase."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pydantic

from heliograph.definitions.step_references import check_references
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.policy.retry import SECONDS_MAX, RetryPolicy
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A step that calls one of the agent's tools. `{"$step": 1, "path": "/a"}` in an argument is a part of an earlier output.

    timeout_seconds, retry: of this call, in place of the settings of the tool.
    """

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: Literal["tool_call"] = "tool_call"
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class DelegationStep:
    """A step that delegates a task to one of the agent's `agents`. The task may refer to earlier outputs, as in ToolStep.

    timeout_seconds, retry: of this delegation, in place of the settings of the agents.
    """

    agent: str
    task: Any = None
    kind: Literal["delegation"] = "delegation"
    timeout_seconds: float | None = None
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class ModelStep:
    """A step that is one model call. The model also receives the results of the earlier steps."""

    prompt: str
    kind: Literal["model"] = "model"


PlanStep: TypeAlias = ToolStep | DelegationStep | ModelStep


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of the act phase, in order. For an agent without an act hook, the runtime executes them."""

    steps: list[PlanStep] = field(default_factory=list)
    summary: str = ""


@dataclass(frozen=True, slots=True)
class GoalAchieved:
    """The reflect phase decided that the goal is achieved. confidence: from 0 to 1.

    output: replaces the output of the act phase; None keeps it. learnings: stored in the agent's long-term memory, with the decision.
    """

    confidence: float = 1.0
    output: Any = None
    learnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class IterationNeeded:
    """The reflect phase decided that another round is needed, which begins at `resume_at`. reason: what is missing."""

    reason: str
    resume_at: Literal["plan", "act"] = "plan"
    learnings: list[str] = field(default_factory=list)


_LIMITS = ("timeout_seconds", "retry")
_PLAN = pydantic.TypeAdapter(Plan)


def plan_json(given: Any) -> JsonObject | None:
    """The plan that a hook returned, as JSON; None for no plan. Raises InvalidInput for any other value."""
    if given is None:
        return None
    try:
        plan = given if isinstance(given, Plan) else _PLAN.validate_python(given)
        for step in plan.steps:
            if not isinstance(step, ToolStep | DelegationStep | ModelStep):
                raise TypeError(f"a step must be a ToolStep, a DelegationStep or a ModelStep, not {safe_repr(step)}")
            _check_limits(step)
        found = _without_defaults(to_json(plan))
        _PLAN.validate_python(
            found
        )  # the fields of a Plan are not checked when it is made, and later phases read this form
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidInput(f"the plan hook must return a Plan or None, for example Plan([ToolStep('search', {{'query': 'x'}})]): "
                           f"{safe_repr(_problems(error), 500)}", code="wrong_type") from None  # fmt: skip
    assert isinstance(found, dict)
    made: Any = found["steps"]
    for place, each in enumerate(made, 1):
        check_references(each.get("arguments") or each.get("task"), place)
    return found


def _check_limits(step: PlanStep) -> None:
    """Raise TypeError for limits of a call that no call can have."""
    if isinstance(step, ModelStep):
        return
    seconds: Any = step.timeout_seconds
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= SECONDS_MAX
    if seconds is not None and not is_number:
        raise TypeError(f"timeout_seconds of a step must be a number above 0, not {safe_repr(repr_of(seconds))}")
    if step.retry is not None and not isinstance(step.retry, RetryPolicy):
        raise TypeError(f"retry of a step must be a RetryPolicy, not {safe_repr(repr_of(step.retry))}")


def _without_defaults(plan: Any) -> Json:
    """Return a plan as JSON, without the limits of calls that a step does not have."""
    steps = [
        {key: value for key, value in step.items() if value is not None or key not in _LIMITS} for step in plan["steps"]
    ]
    return {**plan, "steps": steps}


def _problems(error: pydantic.ValidationError | TypeError) -> str:
    if isinstance(error, TypeError):
        return str(error)
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'plan'}: {each['msg']}" for each in error.errors())


def plan_of(recorded: JsonObject | None) -> Plan | None:
    """The plan of its recorded form."""
    return None if recorded is None else _PLAN.validate_python(recorded)


def tools_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of the tools in a recorded plan; a delegation is `delegate_to_<agent>`."""
    steps = plan.get("steps")
    tools = []
    for step in steps if isinstance(steps, list) else []:
        kind = step.get("kind") if isinstance(step, dict) else None
        if kind in ("tool_call", "delegation"):
            tools.append(str(step.get("tool")) if kind == "tool_call" else f"delegate_to_{step.get('agent')}")
    return tools


def decision_json(given: Any) -> JsonObject:
    """The decision that a reflect hook returned, as the signal `reflection_complete` has it. Raises InvalidInput.

    The keys `output` and `learnings` are beside those of the signal.
    """
    if isinstance(given, GoalAchieved):
        confidence: Any = given.confidence
        if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
            raise InvalidInput(
                f"the confidence of GoalAchieved must be a number from 0 to 1, not {safe_repr(confidence)}",
                code="out_of_range",
            )
        decision: JsonObject = {"decision": "goal_achieved", "confidence": confidence, "output": to_json(given.output)}
    elif isinstance(given, IterationNeeded):
        if not isinstance(given.reason, str):
            raise InvalidInput(
                f"the reason of IterationNeeded must be a text, not {safe_repr(repr_of(given.reason))}",
                code="wrong_type",
            )
        if given.resume_at not in ("plan", "act"):
            raise InvalidInput(f"resume_at must be plan or act, not {safe_repr(given.resume_at)}", code="invalid_enum")
        decision = {"decision": "iteration_needed", "reason": given.reason, "resume_at": given.resume_at}
    else:
        raise InvalidInput(
            f"the reflect hook must return GoalAchieved or IterationNeeded, not {safe_repr(given)}", code="wrong_type"
        )
    return {**decision, "learnings": _learnings(given.learnings)}


def _learnings(given: Any) -> list[Json]:
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise InvalidInput(f"learnings must be a list of texts, not {safe_repr(repr_of(given))}", code="wrong_type")
    return list(given)
