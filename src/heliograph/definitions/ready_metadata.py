"""The metadata of the signal `ready` and of a worker's registration: the runtime, the tools and the models."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.signals.payload import cleaned
from heliograph.types import Json, JsonObject

_RUNTIME = f"python {sys.version_info.major}.{sys.version_info.minor}"
_MODELS_MAX = 100  # in one report
_NAME_MAX = 200


def ready_metadata(agents: Iterable[AgentSpec], default_model: str | None = None) -> JsonObject:
    """Return {runtime, tools_loaded, models: [{provider, model}]} for these agents.

    tools_loaded: their different tools; an MCP server counts as one. default_model: the model of agents that name none.
    """
    specs = list(agents)
    tools = {id(tool) for spec in specs for tool in spec.tools}
    named = [
        default_model if model is None else model
        for spec in specs
        if spec.prompt is not None or spec.model is not None
        for model in spec.models
    ]
    models = [described for model in named if (described := _describe(model)) is not None]
    distinct: list[Json] = []
    for each in models:
        if each not in distinct and len(distinct) < _MODELS_MAX:
            distinct.append(each)
    return {"runtime": _RUNTIME, "tools_loaded": len(tools), **({"models": distinct} if distinct else {})}


def ready_payload(agent: AgentSpec) -> JsonObject:
    """Return the payload of the signal `ready`, which is the same in all turns of an agent."""
    return {"capabilities": list(agent.capabilities), "version": agent.version, "metadata": ready_metadata([agent])}


def _describe(model: Any) -> JsonObject | None:
    """Return {provider, model} for a name such as `openai:gpt-5`, a harness or a model object; None if it has no name."""
    if isinstance(model, str):
        provider, _, name = _shortened(model).rpartition(":")
        return {"provider": provider, "model": name} if provider else {"model": name}
    own_name, system = (
        getattr(model, "model_name", None) or getattr(model, "model", None),
        getattr(model, "system", None),
    )
    if not isinstance(own_name, str):
        return None
    named: JsonObject = {"model": _shortened(own_name)}
    return {"provider": _shortened(system), **named} if isinstance(system, str) else named


def _shortened(name: str) -> str:
    """Return a name that can be stored. A harness chooses its name freely, and an invalid one would prevent the worker from registering."""
    return cleaned(name[:_NAME_MAX])
