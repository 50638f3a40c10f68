"""Write an agent that code defines as a manifest of the Open Standard Agents. What a manifest cannot carry is rejected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from heliograph.definitions.agent import PRIORITIES, AgentSpec, define_agent
from heliograph.errors import InvalidInput
from heliograph.policy.retry import RetryPolicy
from heliograph.types import JsonObject

API_VERSION = "ossa/v0.4"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SEMANTIC_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")
# The providers of the specification, by the prefix of pydantic-ai.
_PROVIDERS = {"openai-chat": "openai", **{each: each for each in (
    "anthropic", "google", "azure", "ollama", "mistral", "cohere", "groq", "together", "fireworks", "deepseek")}}  # fmt: skip
_PLAIN = (
    "context_bytes_max",
    "effect",
    "max_attempts",
    "model_timeout_seconds",
    "must_end_with",
    "asks_human",
    "ttl_seconds",
)
_EXPORTED = {*_PLAIN, "name", "prompt", "system", "model", "version", "updates", "updates_one", "activate_on", "activate_when_all", "emits",
            "priority", "temperature", "max_output_tokens", "max_steps", "timeout_seconds", "budget", "price", "tools", "retry", "retries", "own_limits"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExportedTool:
    """A tool as a manifest names it. parameters: None for an MCP server, whose tools are known only when it is opened."""

    name: str
    description: str
    parameters: JsonObject | None
    needs_approval: bool = False


def manifest_of(spec: AgentSpec, tools: Sequence[ExportedTool], default_prompt: Any = None) -> JsonObject:
    """Return the manifest of an agent. default_prompt: the prompt that an agent of a manifest has unless it names another one.

    Raises InvalidInput (`not_exportable`) for an option that a manifest cannot carry.
    """
    usual = define_agent(spec.name, prompt="{state.input}", activate_on=["workflow:start"], updates="output")
    for each in fields(AgentSpec):
        if each.name not in _EXPORTED and getattr(spec, each.name) != getattr(usual, each.name):
            raise _not_exportable(spec, each.name, "a manifest cannot carry it")
    if spec.prompt is None:
        raise _not_exportable(spec, "run", "only agents with a prompt have manifests")
    if spec.retry is not None and spec.retry != RetryPolicy(spec.retry.max_attempts, retryable_errors="recoverable"):
        raise _not_exportable(spec, "retry", "a manifest carries only the number of retries")
    if "version" not in _metadata(spec) and spec.version != usual.version:
        raise _not_exportable(spec, "version", "the version of a manifest is like 1.0.0")
    made: dict[str, Any] = {
        "apiVersion": API_VERSION, "kind": "Agent", "metadata": _metadata(spec), "spec": _spec_of(spec, usual, tools),
    }  # fmt: skip
    if own := _own_options(spec, usual, default_prompt):
        made["extensions"] = {"heliograph": own}
    return made


def _metadata(spec: AgentSpec) -> JsonObject:
    name = re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-") or "agent"
    return {"name": name, **({"version": spec.version} if _SEMANTIC_VERSION.fullmatch(spec.version) else {})}


def _spec_of(spec: AgentSpec, usual: AgentSpec, tools: Sequence[ExportedTool]) -> JsonObject:
    made: dict[str, Any] = {"role": spec.system} if spec.system is not None else {}
    if (llm := _llm(spec)) is not None:
        made["llm"] = llm
    elif spec.temperature is not None or spec.max_output_tokens is not None:
        option = "temperature" if spec.temperature is not None else "max_output_tokens"
        raise _not_exportable(spec, option, "a manifest has it only beside a model, so name the model")
    if tools:
        made["tools"] = [_tool(each) for each in tools]
    if spec.max_steps != usual.max_steps:
        made["lifecycle"] = {"max_turns": spec.max_steps}
    if spec.timeout_seconds != usual.timeout_seconds or "timeout_seconds" in spec.own_limits:
        made["constraints"] = {"performance": {"timeoutSeconds": spec.timeout_seconds}}
    return made


def _llm(spec: AgentSpec) -> JsonObject | None:
    """Return the models; None without a name, for HELIOGRAPH_MODEL."""
    if all(each is None for each in spec.models):
        return None
    if not all(isinstance(each, str) for each in spec.models):
        raise _not_exportable(spec, "model", "a manifest carries only names of models, like openai-chat:gpt-5")
    if any("${" in each for each in spec.models):
        raise _not_exportable(spec, "model", "in a manifest, ${ begins a variable of the environment")
    first, *others = (_model(each) for each in spec.models)
    settings: dict[str, Any] = {
        "temperature": spec.temperature,
        "maxTokens": spec.max_output_tokens,
        "fallback_models": others or None,
    }
    return {**first, **{key: value for key, value in settings.items() if value is not None}}


def _model(name: str) -> JsonObject:
    prefix, _, rest = name.partition(":")
    return (
        {"provider": _PROVIDERS[prefix], "model": rest}
        if prefix in _PROVIDERS and rest
        else {"provider": "custom", "model": name}
    )


def _tool(tool: ExportedTool) -> JsonObject:
    made: dict[str, Any] = {"type": "mcp" if tool.parameters is None else "function", "name": tool.name}
    if tool.description:
        made["description"] = tool.description
    if tool.parameters is not None:
        made["parameters"] = tool.parameters
    return {**made, "requires_approval": True} if tool.needs_approval else made


def _own_options(spec: AgentSpec, usual: AgentSpec, default_prompt: Any) -> dict[str, Any]:
    """Return the options that only Heliograph knows, where they are not the usual ones."""
    own: dict[str, Any] = {key: getattr(spec, key) for key in _PLAIN if getattr(spec, key) != getattr(usual, key)}
    if "ttl_seconds" in spec.own_limits:
        own["ttl_seconds"] = spec.ttl_seconds
    if _NAME.fullmatch(spec.name) is None:
        own["name"] = spec.name
    if isinstance(spec.prompt, str):
        own["prompt"] = spec.prompt
    elif spec.prompt is not default_prompt:
        raise _not_exportable(spec, "prompt", "it is a function, and a manifest carries only text")
    if (spec.updates, spec.updates_one) != (usual.updates, usual.updates_one):
        own["updates"] = spec.updates[0] if spec.updates_one and spec.updates else list(spec.updates)
    for key in ("activate_on", "activate_when_all"):
        if getattr(spec, key) != getattr(usual, key):
            own[key] = [each.text for each in getattr(spec, key)]
    if spec.emits:
        own["emits"] = list(spec.emits)
    if spec.priority != usual.priority:
        own["priority"] = PRIORITIES[spec.priority]
    if spec.budget is not None:
        own["budget"] = dict(spec.budget)
    if spec.price is not None:
        own["price"] = {"input": spec.price[0], "output": spec.price[1]}
    if spec.retry is not None:
        own["retries"] = spec.retry.retries
    return own


def _not_exportable(spec: AgentSpec, option: str, why: str) -> InvalidInput:
    return InvalidInput(f"agent {spec.name} has no manifest, because of its option {option}: {why}", code="not_exportable",
                        path=f"/agents/{spec.name}/{option}")  # fmt: skip
