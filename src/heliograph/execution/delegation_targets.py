"""Find the agent that a delegation names: by its name, or by its id in the run."""

from __future__ import annotations

from typing import Any, NamedTuple

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.reactive.workflow import Workflow, hint_of_agents


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
