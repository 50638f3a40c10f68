"""Check that the tools, agents and models of a plan exist, before any of its steps is executed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from heliograph.agent_loop.model_call import HarnessOf
from heliograph.codes import PLAN_FAILED
from heliograph.definitions.plan import DelegationStep, Plan, ToolStep
from heliograph.definitions.tool import ASK_HUMAN, DELEGATE
from heliograph.error_text import format_exception, safe_repr, with_hint
from heliograph.errors import AgentFailed, HeliographError
from heliograph.execution.owned_turn import OwnedTurn


def check_plan(owned: OwnedTurn, plan: Plan, *, harness_of: HarnessOf) -> None:
    """Raise AgentFailed (`PLAN_FAILED`) for a step whose tool, agent or model does not exist, with the nearest name.

    Also raises the error of listing the tools of a server, if that failed.
    """
    spec, tools = owned.spec, _tools(owned)
    for place, step in enumerate(plan.steps, 1):
        match step:
            case ToolStep():
                if step.tool not in tools:
                    raise _unknown(
                        place, f"calls the tool {safe_repr(step.tool)}", step.tool, tools, spec.name, "tools"
                    )
            case DelegationStep():
                if step.agent not in spec.agents:
                    raise _unknown(place, f"delegates to the agent {safe_repr(step.agent)}", step.agent, spec.agents, spec.name,
                                   "agents")  # fmt: skip
            case _:
                _check_model(owned, place, harness_of)


def _tools(owned: OwnedTurn) -> list[str]:
    """The names of the tools that a step may call."""
    spec, resources = owned.spec, owned.resources
    if resources.tools_error is not None:
        raise resources.tools_error
    bound = [bound.tool.name for place in range(len(spec.tools)) for bound in resources.tools[place]]
    return [*bound, *(f"{DELEGATE}{agent}" for agent in spec.agents), *([ASK_HUMAN] if spec.asks_human else [])]


def _unknown(place: int, does: str, name: str, known: Sequence[str], agent: str, option: str) -> AgentFailed:
    near = get_close_matches(name, known, 1)
    has = f"it has {', '.join(known)}" if known else f"it has none: list them in its option {option}"
    hint = f"did you mean {near[0]}?" if near else has
    return AgentFailed(f"step {place} of the plan {does}, which agent {agent} does not have; {hint}", code=PLAN_FAILED)


def _check_model(owned: OwnedTurn, place: int, harness_of: HarnessOf) -> None:
    """Raise AgentFailed if none of the agent's models exists."""
    problems = []
    for model in owned.spec.models:
        try:
            harness_of(model)
        except Exception as error:
            problems.append(with_hint(error) if isinstance(error, HeliographError) else format_exception(error))
        else:
            return
    raise AgentFailed(f"step {place} of the plan is a model step, and agent {owned.spec.name} has no model that exists: "
                      f"{safe_repr('; '.join(problems), 2000)}", code=PLAN_FAILED)  # fmt: skip
