"""Find the agent that a delegation names: by its name, or by its id in the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.hooks import MethodHook
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.execution.typed_results import result_type_of
from heliograph.reactive.workflow import Workflow, hint_of_agents


def name_of_agent(given: Any, workflow: Workflow) -> Any:
    """The name of an agent that is given as its AgentSpec, its function or its class; other values are returned unchanged.

    Raises InvalidInput (`unknown_agent`).
    """
    if isinstance(given, AgentSpec):
        return given.name
    if isinstance(given, str) or not callable(given):
        return given
    names = [spec.name for spec in workflow.agents.values() if _is_made_of(spec, given)]
    if len(names) == 1:
        return names[0]
    why = (
        f"is registered as {', '.join(names)}; give the name of one"
        if names
        else "is no agent of it; register it with @app.agent"
    )
    raise InvalidInput(
        f"application {workflow.name}: {safe_repr(repr_of(given))} {why}", code="unknown_agent", path="/agent"
    )


def output_type_of(given: Any, workflow: Workflow) -> Any:
    """The type of an agent's output; Any for one that is given by its name or its class, and for text of a model."""
    if isinstance(given, AgentSpec) and given.run is None:
        return Any if given.output is None or isinstance(given.output, Mapping) else given.output
    function = given.run if isinstance(given, AgentSpec) else given
    if isinstance(given, str | type) or not callable(function):
        return Any
    return result_type_of(function, f"agent {name_of_agent(given, workflow)}")


def _is_made_of(spec: AgentSpec, given: Any) -> bool:
    parts = (spec.run, *spec.hooks.values())
    return spec.run is given or any(isinstance(part, MethodHook) and part.kind is given for part in parts)


class Target(NamedTuple):
    """The agent of a delegation. instance: None for the agent itself, which has no instance; it counts only if `is_by_id`."""

    agent: str
    instance: str | None = None
    is_by_id: bool = False


def target_of(given: Any, workflow: Workflow, run_id: str) -> Target:
    """The agent named by `<name>`, `<run id>/<name>` or `<run id>/<name>/<instance>`.

    Raises InvalidInput: `wrong_type`, `unknown_agent`.
    """
    if not isinstance(given, str):
        raise InvalidInput(f"the agent of a delegation must be a name or an id, not {safe_repr(given)}", code="wrong_type",
                           path="/agent")  # fmt: skip
    run, slash, rest = given.partition("/")
    if slash and run != run_id:
        raise InvalidInput(f"agent {safe_repr(given)} belongs to another run; this is run {run_id}", code="unknown_agent",
                           path="/agent")  # fmt: skip
    name, _, instance = rest.partition("/") if slash else (given, "", "")
    return Target(check_agent(name, workflow), instance or None, bool(slash))


def check_agent(name: str, workflow: Workflow) -> str:
    """Check that the application has an agent, and return its name. Raises InvalidInput (`unknown_agent`)."""
    if name not in workflow.agents:
        raise InvalidInput(f"application {workflow.name} has no agent {safe_repr(name)}; {hint_of_agents(name, workflow.agents)}",
                           code="unknown_agent")  # fmt: skip
    return name
