"""Read a manifest of kind Agent: what the agent is, which model, tools and limits it names, and what Heliograph does not carry out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.manifest.agent_models import ModelReference, read_models
from heliograph.manifest.agent_tools import ServerReference, ToolReference, read_tools
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.manifest.problems import ManifestProblem, accepted
from heliograph.policy.retry import RetryPolicy

# The options of `define_agent` that `extensions.heliograph` may have. A manifest cannot make itself trusted.
OPTIONS = (
    "activate_on", "activate_when_all", "asks_human", "budget", "context_bytes_max", "effect", "emits", "max_attempts",
    "model_timeout_seconds", "must_end_with", "price", "priority", "prompt", "retries", "ttl_seconds", "updates",
)  # fmt: skip
INFORMATION = ("/apiVersion", "/kind", "/metadata", "/spec/description", "/spec/capabilities", "/spec/taxonomy", "/spec/type",
               "/spec/lifecycle/phases")  # fmt: skip
# What the schemas allow and Heliograph does not carry out, with what to do instead. docs/reference/manifests.md has the table.
REASONS = {
    "/extensions": "it is for another runtime",
    "/security": "use the sandbox of isolated tools, and HELIOGRAPH_MCP_ALLOW",
    "/protocols": "MCP servers count only with the role client; a Gateway serves other systems",
    "/token_efficiency": "use max_steps, budgets and the settings of the model",
    "/cognition": "use hooks for the phases of a turn",
    "/governance": "policies of Cedar or OPA are not evaluated",
    "/composition": "write an application for several agents",
    "/runtime": "pools and workers of Heliograph run the agent",
    "/spec/knowledge_sources": "give the agent a tool that searches",
    "/spec/memory": "use tools for memories",
    "/spec/state": "the state of a run is durable, and lives as long as the run",
    "/spec/messaging": "use signals: activate_on and emits",
    "/spec/observability": "the settings of telemetry are those of the process",
    "/spec/identity": "credentials are variables of the environment, and secrets",
    "/spec/workflow": "write an application for several agents",
    "/spec/subAgents": "write an application for several agents",
    "/spec/delegation": "write an application for several agents",
    "/spec/safety": "of safety, only limits and approvals are carried out",
    "/spec/autonomy": "of autonomy, approval_required, allowed_actions and blocked_actions are carried out",
    "/spec/constraints": "of constraints, timeoutSeconds and maxTokensPerRequest are carried out",
    "/spec/lifecycle": "of lifecycle, max_turns and turn_timeout are carried out",
    "/spec/completion": "of completion, max_iterations and timeout_seconds are carried out",
    "/spec/llm": "of the model, provider, model, temperature, maxTokens, fallback_models and retry_config are carried out",
}

_NAME_MAX = 63  # of applications; those of agents may have one more
_STEPS_MAX = 10_000
_SECONDS_MAX = 31_622_400
_DELAY_MIN, _DELAY_MAX = 1, 10**9  # milliseconds
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}


@dataclass(frozen=True)
class AgentManifest:
    """An agent that a manifest describes.

    name: that of the agent and of its application. system: the system prompt. models: the models to try, in this order.
    tools, servers: what it names; the operator binds them. approvals: the tools whose calls require the approval of a person, or True for
    all of them. blocked: the tools that it must not use; allowed: None, or the only ones that it may use.
    options: further options of `define_agent`. phases: the phases of a turn that the manifest names, for people only.
    """

    name: str
    document: Document
    system: str | None = None
    version: str = "1"
    models: tuple[ModelReference, ...] = ()
    tools: tuple[ToolReference, ...] = ()
    servers: tuple[ServerReference, ...] = ()
    approvals: frozenset[str] | bool = False
    blocked: frozenset[str] = frozenset()
    options: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    warnings: tuple[ManifestProblem, ...] = ()

    def needs_approval(self, tool: ToolReference) -> bool:
        """Whether the manifest requires an approval for calls of this tool."""
        names = self.approvals
        return tool.needs_approval or (
            names if isinstance(names, bool) else not names.isdisjoint((tool.name, tool.bound_name))
        )


def read_agent(document: Document, environment: Mapping[str, str]) -> AgentManifest:
    """Read a valid manifest of kind Agent. environment: the variables that its texts may use.

    Raises ManifestRejected for values that no agent can have, and for variables without a value.
    """
    fields = ManifestFields(document, environment)
    name = str(fields.value("/metadata/name"))
    options = {**_limits(fields), **_own_options(fields)}
    choice = read_models(fields)
    options |= {
        key: each
        for key, each in (("temperature", choice.temperature), ("max_output_tokens", choice.max_output_tokens))
        if each is not None
    }
    tools, servers = read_tools(fields)
    approvals, blocked = _approvals(fields, tools)
    made = AgentManifest(
        name=_short(_text(fields, "/extensions/heliograph/name") or name), document=document, system=_system(fields),
        version=_text(fields, "/metadata/version") or "1", models=choice.models, tools=tools, servers=servers, approvals=approvals,
        blocked=blocked, options=options, phases=tuple(fields.texts("/spec/lifecycle/phases")),
    )  # fmt: skip
    for pointer in fields.unread(_is_information):
        fields.warn(
            "no_effect",
            f"{dotted(pointer)} has no effect; {_reason(pointer)}",
            pointer,
            f"did you mean {similar}?"
            if (similar := fields.similar_key(pointer)) is not None
            else "remove it, or ignore this warning",
        )
    return replace(made, warnings=tuple(accepted([*document.problems, *fields.problems])))


def _system(fields: ManifestFields) -> str | None:
    """Return the system prompt: role, prompts.system or instructions, or else the description."""
    places = (
        "/spec/role",
        "/spec/prompts/system/template",
        "/spec/prompts/system",
        "/spec/instructions",
        "/spec/systemPrompt",
        "/spec/prompt",
    )
    for pointer in places:
        if isinstance(fields.mapping("/spec/prompts").get("system"), dict) and pointer == "/spec/prompts/system":
            continue
        if (found := _text(fields, pointer)) is not None:
            return found
    found = _text(fields, "/metadata/description") or _text(fields, "/spec/description")
    fields.warn("no_role", "the agent has no role, so its description is the system prompt" if found else
                "the agent has neither a role nor a description, so it has no system prompt", "/spec", "write its role")  # fmt: skip
    return found


def _limits(fields: ManifestFields) -> dict[str, Any]:
    """Read the limits that Heliograph enforces: steps, times, tokens and tool calls of a turn, and the retries of its model."""
    limits: dict[str, Any] = {}
    steps = fields.number("/spec/lifecycle/max_turns", "/spec/completion/max_iterations", "/spec/execution/maxTurns",
                          low=1, high=_STEPS_MAX, whole=True)  # fmt: skip
    if steps is not None:
        limits["max_steps"] = steps
    seconds = [
        *(fields.number(each, low=0.001, high=_SECONDS_MAX) for each in (
            "/spec/constraints/performance/timeoutSeconds", "/spec/safety/guardrails/max_execution_time_seconds",
            "/spec/completion/timeout_seconds")),
        _duration(fields, "/spec/lifecycle/turn_timeout"), _duration(fields, "/spec/execution/timeout"),
    ]  # fmt: skip
    if given := [each for each in seconds if each is not None]:
        limits["timeout_seconds"] = min(given)
    tokens = fields.number("/spec/constraints/cost/maxTokensPerRequest", low=1, high=10**12, whole=True)
    calls = fields.number("/spec/safety/guardrails/max_tool_calls", low=1, high=10**9, whole=True)
    budget = {key: each for key, each in (("tokens", tokens), ("tool_calls", calls)) if each is not None}
    if budget:
        limits["budget"] = budget
    if (policy := _retry(fields)) is not None:
        limits["retry"] = policy
    return limits


def _retry(fields: ManifestFields) -> RetryPolicy | None:
    """Return the policy for calls of the model."""
    place = "/spec/llm/retry_config"
    if not fields.mapping(place):
        return None
    attempts = fields.number(f"{place}/max_attempts", low=1, high=10, whole=True)
    initial = fields.number(f"{place}/initial_delay_ms", low=0, high=_DELAY_MAX)
    longest = fields.number(f"{place}/max_delay_ms", low=0, high=_DELAY_MAX)
    strategy = fields.value(f"{place}/backoff_strategy")
    delay = max(_DELAY_MIN, 0 if strategy == "none" else 1000 if initial is None else initial)
    return RetryPolicy(
        3 if attempts is None else attempts, "linear" if strategy == "linear" else "exponential", delay / 1000,
        max(delay, 30_000 if longest is None else longest) / 1000, retryable_errors="recoverable",
    )  # fmt: skip


def _approvals(
    fields: ManifestFields, tools: tuple[ToolReference, ...]
) -> tuple[frozenset[str] | bool, frozenset[str]]:
    """Return the tools whose calls require an approval, or True for all, and those that the agent must not use."""
    required = fields.value("/spec/autonomy/approval_required")
    names = {each for tool in tools for each in (tool.name, tool.bound_name)}
    approvals = (
        frozenset(each for each in required if isinstance(each, str))
        if isinstance(required, list)
        else frozenset[str]()
    )
    for each in sorted(approvals - names):
        fields.warn("no_effect", f"approval_required names {safe_repr(each)}, which is no tool of the agent", "/spec/autonomy/approval_required",
                    "name its tools")  # fmt: skip
    permissions = "/governance/authorization/tool_permissions"
    for pointer, item in fields.items(permissions):
        if isinstance(item, dict) and item.get("requires_approval") is True and isinstance(item.get("tool"), str):
            fields.value(pointer)
            approvals |= {str(item["tool"])}
    allowed = fields.texts("/spec/autonomy/allowed_actions")
    blocked = frozenset(fields.texts("/spec/autonomy/blocked_actions")) & names
    if names & set(allowed):  # otherwise the actions are no tools
        blocked |= frozenset(tool.name for tool in tools if not {tool.name, tool.bound_name} & set(allowed))
    return (True if required is True else approvals), blocked


def _own_options(fields: ManifestFields) -> dict[str, Any]:
    """Read `extensions.heliograph`: options of `define_agent`, which checks them."""
    place = "/extensions/heliograph"
    found: dict[str, Any] = {}
    for key in fields.mapping(place):
        if key == "name":
            continue
        if key not in OPTIONS:
            fields.value(f"{place}/{key}")
            fields.reject("unknown_field", f"a manifest cannot set {safe_repr(key)} of an agent", f"{place}/{key}",
                          f"remove it; there are {', '.join(OPTIONS)}")  # fmt: skip
            continue
        found[key] = fields.value(f"{place}/{key}")
    return found


def _duration(fields: ManifestFields, pointer: str) -> float | None:
    """Return the seconds of a duration like 300s or 5m."""
    text = fields.value(pointer)
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return float(text) if isinstance(text, int | float) and not isinstance(text, bool) and text > 0 else None
    return min(float(found[1]) * _UNITS[found[2]], _SECONDS_MAX) or None


def _text(fields: ManifestFields, pointer: str) -> str | None:
    text = fields.text(pointer)
    return text if text is not None and text.strip() else None


def _is_information(pointer: str) -> bool:
    return pointer in INFORMATION


def _reason(pointer: str) -> str:
    """Return why a value has no effect, from the entry for it or for what contains it."""
    while pointer and pointer not in REASONS:
        pointer = pointer.rpartition("/")[0]
    return REASONS.get(pointer, "Heliograph does not know it")


def _short(name: str) -> str:
    """Return a name of at most `_NAME_MAX` characters; a longer one is cut, and its end replaced by a hash of the whole."""
    if len(name) <= _NAME_MAX:
        return name
    return f"{name[: _NAME_MAX - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
