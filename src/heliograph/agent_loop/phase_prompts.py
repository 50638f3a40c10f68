"""The messages with which a model plans, executes a step, and reflects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.ports import MemoryHit, ToolSpec
from heliograph.turn.untrusted import UNTRUSTED, untrusted
from heliograph.types import Json

PLAN = (
    "Make a plan for this task. Its steps are executed in order: a tool_call step calls one of the tools with arguments, a "
    "delegation step gives a task to one of the agents, and a model step asks you a question that you answer with the "
    'results of the earlier steps. In arguments and tasks, {"$step": 1, "path": "/a/b"} stands for a part of the output of step 1 '
    "(a JSON pointer; without path, for all of it). Use only the tools and agents that are listed. The output of the last step is the answer."
)
OWN_PLAN = "Make a plan for this task, in the given form."
REFLECT = (
    "Evaluate these results against the task and its success criteria. goal_achieved: whether the task is done. confidence: "
    "from 0 to 1. reason: what is missing, if it is not done. learnings: what to remember for later tasks."
)


def tools_text(specs: Sequence[ToolSpec]) -> list[str]:
    """The tools and agents that a plan may use; none gives no message."""
    if not specs:
        return []
    lines = [f"- {spec.name}: {spec.description} Arguments: {_text(spec.parameters)}" for spec in specs]
    return ["You may use these tools (delegate_to_<agent> is a delegation step for that agent):\n" + "\n".join(lines)]


def memories_text(hits: Sequence[MemoryHit]) -> list[str]:
    if not hits:
        return []
    found = [untrusted(hit.text, "memory") if hit.trust == UNTRUSTED else hit.text for hit in hits]
    return ["From your memory:\n" + "\n".join(f"- {text}" for text in found)]


def reflection_text(decision: Mapping[str, Any] | None) -> list[str]:
    """The reason for another round."""
    return [] if decision is None else [f"An earlier attempt did not reach the goal: {decision.get('reason')}"]


def results_text(results: Sequence[Mapping[str, Json]], *, is_untrusted: bool) -> list[str]:
    if not results:
        return []
    text = "\n".join(f"{n}. {_text(result)}" for n, result in enumerate(results, 1))
    return ["The results of the earlier steps:\n" + (untrusted(text, "steps") if is_untrusted else text)]


def criteria_text(task: Any) -> list[str]:
    """The success criteria of the task, if it has some."""
    criteria = task.get("success_criteria") if isinstance(task, dict) else None
    return [] if criteria is None else [f"Success criteria: {_text(criteria)}"]


def plan_text(plan: Json) -> list[str]:
    return [] if plan is None else [f"Follow this plan: {_text(plan)}"]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
