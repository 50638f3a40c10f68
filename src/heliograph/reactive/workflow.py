"""A workflow: its agents, the type of its state, its reducers, and its goal. Checked when it is built."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.call_settings import NO_SETTINGS, CallSettings, SignalSettings, merged_settings
from heliograph.definitions.circuit_breakers import breaker_among
from heliograph.definitions.functions import check_function, naming
from heliograph.definitions.lifecycle import warn_of_codes, warn_of_lifetime, warn_of_missing_hooks
from heliograph.definitions.model_settings import ModelSettings
from heliograph.definitions.phase_handlers import PhaseHandler
from heliograph.definitions.ready_metadata import ready_payload
from heliograph.definitions.shared_limits import check_shared_limits
from heliograph.definitions.signal_definition import SignalDefinition, definitions_by_name
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.definitions.templates import SIGNAL_NAMES, check_known, placeholders
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.reactive.state import StateShape
from heliograph.secrets import Resolver
from heliograph.signals.names import check_key
from heliograph.signals.pattern_table import PatternTable
from heliograph.signals.pattern_warnings import warn_unmatchable, warn_unsubscribed
from heliograph.types import Json, JsonObject, first_given

if TYPE_CHECKING:
    from heliograph.control.observability import Observability
    from heliograph.control.routing import RouteTable  # slow to import, and most applications have no routes
    from heliograph.control.settings import HeartbeatSettings

Reducer = Callable[[Any, Any], Any]

# Signals of the runtime that can activate an agent; workflow:terminating and workflow:end come too late.
_RUNTIME_NAMES = (
    "workflow:start", "workflow:forked", "agent:activated", "agent:skipped", "agent:completed",
    "agent:failed", "agent:progress", "harness:start", "harness:end", "harness:error", "text:delta", "text:complete",
    "thinking:delta", "thinking:complete", "tool:call", "tool:result", "ready", "plan_ready", "action_complete",
    "reflection_complete", "terminated", "error", "delegation", "delegation_response", "halt",
    "heartbeat",
)  # fmt: skip


@dataclass(frozen=True)
class Workflow:
    """The definition of a workflow, immutable once `build_workflow` has checked it."""

    name: str
    agents: Mapping[str, AgentSpec]
    shape: StateShape
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    end_when: Callable[[Any], bool] | None = None
    max_activations: int = 1000
    deps: Any = None  # passed to tools unchanged
    memory: Any = None  # a heliograph.ports.Memory; None: the ledger
    secrets: Resolver | None = None
    phase_handlers: Sequence[PhaseHandler] = ()
    signal_settings: SignalSettings = NO_SETTINGS
    model_settings: Sequence[ModelSettings] = ()
    routes: RouteTable | None = None
    heartbeat: HeartbeatSettings | None = None
    grace_seconds: float | None = None  # of graceful halts through a gateway; None: not set
    observability: Observability | None = None  # from a runtime specification
    notices: Sequence[str] = ()  # warnings about its manifests
    subscribers: Sequence[SignalSubscriber] = ()

    @cached_property
    def wakes(self) -> PatternTable[tuple[str, int]]:
        """From signal names to (agent, n): n is -1 for activate_on, otherwise the index in activate_when_all."""
        table: PatternTable[tuple[str, int]] = PatternTable()
        for agent in self.agents.values():
            for pattern in agent.activate_on:
                table.add(pattern, (agent.name, -1))
            for n, pattern in enumerate(agent.activate_when_all):
                table.add(pattern, (agent.name, n))
        return table

    @cached_property
    def signals(self) -> Mapping[str, SignalDefinition[Any]]:
        """The definitions of signals, by name. Raises SetupError (`conflicting_definitions`)."""
        of_agents = (each for agent in self.agents.values() for each in agent.signals)
        of_subscribers = (each for subscriber in self.subscribers for each in subscriber.definitions.values())
        return definitions_by_name(chain(of_agents, of_subscribers))

    def loaded(self, name: str, payload: Json) -> Any:
        """A payload as the type of the signal's definition; as it is without a definition. Raises InvalidInput."""
        definition = self.signals.get(name)
        return payload if definition is None else definition.load(payload)

    def output_payload(self, name: str, output: Json) -> Json:
        """An output as the payload of a signal that has a definition. Raises InvalidInput."""
        return self.signals[name].dump(output)

    @cached_property
    def tool_calls(self) -> Mapping[str, CallSettings]:
        """For each agent, the settings of its tool calls."""
        return {
            name: merged_settings("tool_call", agent.signal_settings, self.signal_settings)
            for name, agent in self.agents.items()
        }

    @cached_property
    def delegations(self) -> Mapping[str, CallSettings]:
        """For each agent, the settings of its delegations; `delegation_settings` has those of one receiver."""
        return {
            name: merged_settings("delegation", agent.signal_settings, self.signal_settings)
            for name, agent in self.agents.items()
        }

    def delegation_settings(self, caller: str, agent: str) -> CallSettings:
        """The settings of delegations by `caller` to an agent, which may be known only to a gateway."""
        settings, receiver = self.delegations[caller], self.agents.get(agent)
        if receiver is None:
            return settings
        return replace(settings, circuit_breaker=breaker_among(receiver.circuit_breaker, settings.circuit_breaker),
                       rate_limit=first_given(receiver.rate_limit, settings.rate_limit))  # fmt: skip

    def is_remote(self, agent: str) -> bool:
        """Whether the routes lead delegations to this agent to a gateway."""
        destination = None if self.routes is None else self.routes.destination_of_call("delegation", target_agent=agent)
        return destination is not None and destination.gateway is not None

    @cached_property
    def ready(self) -> Mapping[str, JsonObject]:
        """For each agent, the payload of its signal `ready`."""
        return {name: ready_payload(agent) for name, agent in self.agents.items()}

    @cached_property
    def pools(self) -> tuple[str, ...]:
        """The pools that its turns can be in: those of its agents and of its routes."""
        routed = (
            [] if self.routes is None else [each.queue for each in self.routes.destinations if each.queue is not None]
        )
        return tuple(sorted({*(agent.pool for agent in self.agents.values()), *routed}))

    @cached_property
    def wakes_on_results(self) -> bool:
        """Whether results of calls, which the kernel records by itself, may activate an agent."""
        return bool(self.wakes.match("tool:result") or self.wakes.match("delegation_response"))

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about likely mistakes: patterns that no emitted name matches, emitted names without a pattern, settings without effect."""
        by_agent = [(agent.name, name) for agent in self.agents.values() for name in agent.emits]
        emitted = [name for _, name in by_agent]
        keys = self.shape.keys or {key for agent in self.agents.values() for key in agent.updates}
        emitted += [f"state:{key}:changed" for key in sorted(keys)]
        patterns = [pattern for agent in self.agents.values() for pattern in agent.patterns]
        # one that consists of wildcards, such as that of metrics, is no sign that somebody waits for a name
        outside = [text for each in self.subscribers for text in each.patterns if not set(text) <= {"*", ":"}]
        hooked = [agent for agent in self.agents.values() if agent.hooks]
        of_phases = [w for a in hooked if (w := warn_of_lifetime(a.name, a.lifecycle, a.hooks, a.timeout_seconds,
                                                                 a.ttl_seconds)) is not None]  # fmt: skip
        of_phases += [w for a in hooked
                      for w in warn_of_missing_hooks(a.name, a.lifecycle, a.hooks, executes_plan=a.executes_plan)]  # fmt: skip
        of_phases += [w for agent in self.agents.values() for w in warn_of_codes(agent.name, agent.lifecycle)]
        return [
            *self.notices,
            *warn_unmatchable(patterns, emitted, _RUNTIME_NAMES),
            *warn_unsubscribed(by_agent, patterns, outside),
            *of_phases,
        ]


def build_workflow(workflow: Workflow) -> Workflow:
    """Check a workflow as a whole, and return it.

    Raises InvalidInput: `no_agents`, `unknown_agent`, `conflicting_limits`, `unknown_state_key`, `template_undefined`, and the errors of
    `check_rules` and `StateShape.keys`.
    """
    if not workflow.agents:
        raise InvalidInput(f"application {workflow.name} has no agents: add one with @app.agent(...)", code="no_agents",
                           path="/agents")  # fmt: skip
    check_rules(workflow.reducers, workflow.end_when, workflow.max_activations)
    _check_delegates(workflow)
    _ = workflow.signals  # two definitions that differ are an error of the application
    check_shared_limits(workflow.agents, workflow.tool_calls, workflow.delegation_settings)
    keys = workflow.shape.keys
    if keys is not None:
        used = {(f"/agents/{a.name}/updates", key) for a in workflow.agents.values() for key in a.updates}
        used |= {("/reducers", key) for key in workflow.reducers}
        for path, key in sorted(used):
            if key not in keys:
                raise InvalidInput(f"the state has no key {key!r}; it has {', '.join(sorted(keys))}",
                                   code="unknown_state_key", path=path)  # fmt: skip
        if not workflow.shape.takes_any_key:
            for agent in workflow.agents.values():
                _check_template(agent, keys)
    return workflow


def check_rules(reducers: Any, end_when: Any, max_activations: Any) -> None:
    """Check an application's reducers, goal and limit of activations. Raises InvalidInput."""
    if not isinstance(reducers, Mapping):
        raise InvalidInput(f"reducers must be a mapping of state keys to functions (old, new), not {safe_repr(reducers)}",
                           code="wrong_type", path="/reducers")  # fmt: skip
    for key, reducer in reducers.items():
        with naming("reducers", "/reducers"):
            check_key(key)
        check_function(reducer, f"the reducer for {key}", f"/reducers/{key}", "the old value", "the new value")
    if end_when is not None:
        check_function(end_when, "end_when", "/end_when", "the state")
    if isinstance(max_activations, bool) or not isinstance(max_activations, int):
        raise InvalidInput(f"max_activations must be a whole number, not {safe_repr(repr_of(max_activations))}", code="wrong_type",
                           path="/max_activations")  # fmt: skip
    if not 1 <= max_activations <= 1_000_000:
        raise InvalidInput(f"max_activations must be between 1 and 1000000, not {max_activations}", code="out_of_range",
                           path="/max_activations")  # fmt: skip


def _check_delegates(workflow: Workflow) -> None:
    """Check that the application has each agent to which a model may delegate, or a route to a gateway for it."""
    for agent in workflow.agents.values():
        for name in agent.agents:
            if name not in workflow.agents and not workflow.is_remote(name):
                raise InvalidInput(f"agent {agent.name} delegates to {name}, which application {workflow.name} does not have: add the "
                                   f"agent, or a route to a gateway; {hint_of_agents(name, workflow.agents)}",
                                   code="unknown_agent", path=f"/agents/{agent.name}/agents")  # fmt: skip


def hint_of_agents(name: str, agents: Collection[str]) -> str:
    """Return the next step after an unknown agent: the most similar name, or all names."""
    near = get_close_matches(name, agents, 1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(agents))}"


def _check_template(agent: AgentSpec, keys: frozenset[str]) -> None:
    if isinstance(agent.prompt, str):
        known = [*SIGNAL_NAMES, *(f"state.{key}" for key in keys)]
        with naming(f"agent {agent.name}: prompt", f"/agents/{agent.name}/prompt"):
            for used in placeholders(agent.prompt):
                check_known(used, known)
