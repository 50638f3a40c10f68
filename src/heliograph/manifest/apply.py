"""Apply a runtime specification to the agents and settings of an application.

A setting of the specification replaces that of the application. Options that code gives to an agent, a tool or a call are narrower,
and stay. An agent receives only settings of hooks that it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from heliograph.control.lifecycle_settings import LifecycleSettings
from heliograph.control.settings import ControlSettings
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.lifecycle import HOOK_OF, OF_EVERY_AGENT, OF_PLANS, Lifecycle, check_lifecycle
from heliograph.definitions.lifecycle_options import lifecycle_options
from heliograph.definitions.signal_settings import ApplicationSettings, read_application_settings
from heliograph.errors import InvalidInput
from heliograph.manifest.problems import ManifestProblem, ManifestRejected
from heliograph.manifest.runtime_spec import RuntimeSpec

_PHASES = "/lifecycle/phases"
_POLICY = "/control_signals/error/payload"
_HANDLING = "/lifecycle/error_handling"
# The place in a runtime specification of each option of an agent.
_PLACES = {
    "timeout_seconds": f"{_PHASES}/act/timeout_seconds",
    "ttl_seconds": "/lifecycle/total_timeout_seconds",
    "init_timeout_seconds": f"{_PHASES}/init/timeout_seconds",
    "init_retries": f"{_PHASES}/init/max_retries",
    "plan_timeout_seconds": f"{_PHASES}/plan/timeout_seconds",
    "reflect_timeout_seconds": f"{_PHASES}/reflect/timeout_seconds",
    "terminate_timeout_seconds": f"{_PHASES}/terminate/timeout_seconds",
    "terminate_force_seconds": f"{_PHASES}/terminate/force_after_seconds",
    "max_iterations": "/lifecycle/max_iterations",
    "on_max_iterations": "/lifecycle/on_max_iterations",
    "on_timeout": f"{_HANDLING}/on_timeout",
    "on_resource_exhausted": f"{_HANDLING}/on_resource_exhausted",
    "on_tool_error": f"{_HANDLING}/on_tool_error",
    "max_tool_retries": f"{_HANDLING}/max_tool_retries",
    "error_retries": f"{_POLICY}/retry_count",
    "error_recoverable": f"{_POLICY}/recoverable",
}
_SWITCHES = {"init_retries": f"{_PHASES}/init/retry_on_failure"}  # a second place of an option
_OF_ANY_HOOK = ("on_timeout", "on_resource_exhausted")


def configured_agents(agents: Mapping[str, AgentSpec], runtime: RuntimeSpec) -> dict[str, AgentSpec]:
    """Return the agents with the limits of a runtime specification. Raises ManifestRejected with all problems."""
    made, found = dict[str, AgentSpec](), list[ManifestProblem]()
    for name, agent in agents.items():
        made[name] = _configured(agent, runtime, found)
    if found:
        raise ManifestRejected(found)
    return made


def _configured(agent: AgentSpec, runtime: RuntimeSpec, found: list[ManifestProblem]) -> AgentSpec:
    """Return an agent with the limits of a runtime specification. Its problems are added to `found`."""
    given = runtime.lifecycle or LifecycleSettings()
    options = lifecycle_options(given, ControlSettings())
    changes: dict[str, Any] = {}
    if "timeout_seconds" in given.phases.act.model_fields_set and "timeout_seconds" not in agent.own_limits:
        changes["timeout_seconds"] = float(options["timeout_seconds"])
    if "total_timeout_seconds" in given.model_fields_set and "ttl_seconds" not in agent.own_limits:
        changes["ttl_seconds"] = float(options["ttl_seconds"])
    lifecycle = agent.lifecycle
    settings: dict[str, Any] = {}
    if "lifecycle" not in agent.own_limits:
        settings = {name: getattr(options["lifecycle"], name) for name in _PLACES if _applies(name, agent)}
        settings |= {"error_retries": runtime.error_retries, "error_recoverable": runtime.error_recoverable}
        lifecycle = Lifecycle(**settings)
    while True:
        ttl_seconds = changes.get("ttl_seconds", agent.ttl_seconds)
        try:
            return replace(agent, **changes, lifecycle=check_lifecycle(agent.name, lifecycle, ttl_seconds, agent.hooks))
        except InvalidInput as error:
            found.append(_problem_of(error, runtime))
            option = _option_of(error)
            if settings.pop(option, None) is None and changes.pop(option, None) is None:
                return agent
            lifecycle = Lifecycle(**settings)  # without the option, to find the problems of the others


def _applies(option: str, agent: AgentSpec) -> bool:
    """Whether a setting of `Lifecycle` has an effect on an agent. The policies for errors have one on every agent."""
    if option in HOOK_OF:
        return HOOK_OF[option] in agent.hooks
    if option in OF_PLANS:
        return agent.executes_plan
    return option in _OF_ANY_HOOK and bool(agent.hooks)


def _problem_of(error: InvalidInput, runtime: RuntimeSpec) -> ManifestProblem:
    """Return the problem at the place of the setting that does not suit an agent."""
    option = _option_of(error)
    pointer = _PLACES.get(option, "/lifecycle")
    if option == "ttl_seconds" and runtime.document.value_at(pointer) is None:
        pointer = _PLACES["terminate_timeout_seconds"]
    return runtime.document.problem_of(InvalidInput(error.message, code=error.code, path=pointer, hint=error.hint))


def _option_of(error: InvalidInput) -> str:
    """Return the option of an agent that an error is about."""
    return (error.path or "").rpartition("/")[2].removeprefix("lifecycle.").partition(".")[0]


def unused_settings(name: str, agents: Mapping[str, AgentSpec], runtime: RuntimeSpec) -> Iterator[ManifestProblem]:
    """Yield a warning for each limit of a runtime specification that has an effect on no agent of an application."""
    for option, pointer in (*_PLACES.items(), *_SWITCHES.items()):
        if runtime.document.value_at(pointer) is None or any(_has_effect(option, agent) for agent in agents.values()):
            continue
        reason = "its agents have this setting in code"
        if option in HOOK_OF and not any(HOOK_OF[option] in agent.hooks for agent in agents.values()):
            reason = f"no agent has the hook {HOOK_OF[option]}"
        elif option in OF_PLANS and not any(agent.executes_plan for agent in agents.values()):
            reason = "no agent has a plan that the runtime executes"
        elif option in _OF_ANY_HOOK and not any(agent.hooks for agent in agents.values()):
            reason = "no agent has hooks"
        yield runtime.document.problem("setting_without_effect", f"the setting has no effect on application {name}: {reason}", pointer,
                                       "remove it", is_warning=True)  # fmt: skip


def _has_effect(option: str, agent: AgentSpec) -> bool:
    if option in ("timeout_seconds", "ttl_seconds"):
        return option not in agent.own_limits
    return "lifecycle" not in agent.own_limits and (option in OF_EVERY_AGENT or _applies(option, agent))


def merged_signals(own: Mapping[str, Any], runtime: RuntimeSpec) -> dict[str, Any]:
    """Return the map `control_signals` of an application, with the settings of a runtime specification in place of its own."""
    kinds = dict.fromkeys((*own, *runtime.control_signals))
    return {kind: {**own.get(kind, {}), **runtime.control_signals.get(kind, {})} for kind in kinds}


def read_merged(signals: Mapping[str, Any], runtime: RuntimeSpec) -> ApplicationSettings:
    """Read the merged map. Raises ManifestRejected for a setting of the specification that contradicts one of the application."""
    try:
        return read_application_settings(signals)
    except InvalidInput as error:
        raise ManifestRejected([runtime.document.problem_of(error)]) from None
