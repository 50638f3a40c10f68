"""The tools `delegate_to_...` of a model: a task for another agent, with its priority, deadline and context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.tool import DELEGATE
from heliograph.error_text import safe_repr
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ports import ToolCall, ToolSpec
from heliograph.reactive.workflow import Workflow
from heliograph.tools.bound_tool import BadArguments
from heliograph.types import NOT_GIVEN, Json, JsonObject, NotGiven

_SECONDS_LEAST = 1
_REMOTE_SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class DelegationRequest:
    """One delegation of a model. None stands for the default of the agent that receives the task, NOT_GIVEN for that of delegations."""

    agent: str
    task: Json
    seconds: float | NotGiven
    priority: int | None
    context_box_id: str | None


@dataclass(frozen=True, slots=True)
class _Delegate:
    """An agent to which a model may delegate. contexts: the boxes that it can read; an agent of another system can read none."""

    name: str
    priority: int
    seconds_max: float
    trusted: bool
    contexts: Mapping[str, str]


class DelegationTools:
    """The delegation tools of one turn.

    The priority may be at most the higher one of this turn's and the other agent's, so a model (or untrusted text that it has
    read) cannot overtake other work. The deadline may be at most the other agent's `ttl_seconds`; an hour for an agent that is
    known only to a gateway.
    contexts: the context boxes that the model may pass on, by the names in its prompt.
    """

    def __init__(self, owned: OwnedTurn, contexts: Mapping[str, str]):
        self._agents = {f"{DELEGATE}{name}": _delegate_of(owned.workflow, name, contexts) for name in owned.spec.agents}
        self._priority = owned.claimed.priority

    def is_trusted(self, tool: str) -> bool:
        """Whether `tool` delegates to an agent that is declared `trusted=True`."""
        return tool in self._agents and self._agents[tool].trusted

    @property
    def specs(self) -> list[ToolSpec]:
        return [self._spec(tool, agent) for tool, agent in self._agents.items()]

    def request_of(self, call: ToolCall, *, is_recorded: bool) -> DelegationRequest:
        """The request of a call. Raises BadArguments, but not for a recorded call: it was valid when it was recorded."""
        given = call.arguments if isinstance(call.arguments, dict) else {}
        agent = self._agents[call.tool]
        if "task" not in given:
            raise BadArguments(f"{call.tool} takes an object with a task")
        arguments: JsonObject = {key: value for key, value in given.items() if value is not None}
        if not is_recorded and (problem := self._problem(call.tool, agent, arguments)) is not None:
            raise BadArguments(problem)
        seconds: Any = arguments.get("deadline", NOT_GIVEN)
        priority, context = arguments.get("priority"), arguments.get("context")
        return DelegationRequest(
            agent.name, given["task"], seconds, PRIORITIES.index(str(priority)) if priority in PRIORITIES else None,
            agent.contexts.get(str(context)),
        )  # fmt: skip

    def _problem(self, tool: str, agent: _Delegate, arguments: JsonObject) -> str | None:
        known = ["task", "priority", "deadline", *(["context"] if agent.contexts else [])]
        if unknown := [key for key in arguments if key not in known]:
            return f"{tool} takes {', '.join(known)}; not {safe_repr(', '.join(unknown))}"
        for key, among in (("priority", self._priorities(agent)), ("context", tuple(agent.contexts))):
            if key in arguments and arguments[key] not in among:
                return f"the {key} of {tool} must be one of {', '.join(among)}, not {safe_repr(arguments[key])}"
        seconds = arguments.get("deadline", _SECONDS_LEAST)
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not (is_number and _SECONDS_LEAST <= seconds <= agent.seconds_max):  # type: ignore[operator]
            return (f"the deadline of {tool} must be a number of seconds from {_SECONDS_LEAST} to {agent.seconds_max:g}, "
                    f"not {safe_repr(seconds)}")  # fmt: skip
        return None

    def _priorities(self, agent: _Delegate) -> tuple[str, ...]:
        return PRIORITIES[: max(self._priority, agent.priority) + 1]

    def _spec(self, tool: str, agent: _Delegate) -> ToolSpec:
        properties: JsonObject = {
            "task": {"type": "string", "description": "everything that the agent has to know"},
            "priority": {"type": "string", "enum": list(self._priorities(agent)),
                         "description": f"higher priorities run first; {PRIORITIES[agent.priority]} by default"},
            "deadline": {"type": "number", "minimum": _SECONDS_LEAST, "maximum": agent.seconds_max,
                         "description": "seconds after which you continue without the result"},
        }  # fmt: skip
        if agent.contexts:
            properties["context"] = {"type": "string", "enum": list(agent.contexts),
                                     "description": "the context that the agent may read"}  # fmt: skip
        return ToolSpec(tool, f"Give a task to the agent {agent.name}, and wait for its result.",
                        {"type": "object", "required": ["task"], "properties": properties})  # fmt: skip


def _delegate_of(workflow: Workflow, name: str, contexts: Mapping[str, str]) -> _Delegate:
    spec, boxes = workflow.agents.get(name), {} if workflow.is_remote(name) else contexts
    if spec is None:
        return _Delegate(name, PRIORITIES.index("normal"), _REMOTE_SECONDS_MAX, trusted=False, contexts=boxes)
    return _Delegate(name, spec.priority, spec.ttl_seconds, spec.trusted, boxes)
