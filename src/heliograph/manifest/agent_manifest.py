"""Read a manifest of kind Agent: what the agent is, which model, tools and limits it names, and what Heliograph does not carry out."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.error_text import safe_repr
from heliograph.json_pointer import escaped
from heliograph.manifest.agent_models import OUTPUT_TOKENS_MAX, ModelChoice, ModelReference, read_models
from heliograph.manifest.agent_tools import ServerReference, ToolReference, read_tools
from heliograph.manifest.document import Document, dotted
from heliograph.manifest.manifest_fields import ManifestFields
from heliograph.manifest.problems import ManifestProblem, accepted
from heliograph.manifest.retry_settings import read_retry
from heliograph.manifest.tool_rules import ToolRules, read_rules
from heliograph.manifest.unsupported_inputs import reason_at

# The options of `define_agent` that `extensions.heliograph` may have. A manifest cannot make itself trusted.
OPTIONS = (
    "activate_on", "activate_when_all", "asks_human", "budget", "context_bytes_max", "effect", "emits", "max_attempts",
    "model_timeout_seconds", "must_end_with", "price", "priority", "prompt", "retries", "ttl_seconds", "updates",
)  # fmt: skip
INFORMATION = ("/apiVersion", "/kind", "/metadata", "/spec/description", "/spec/capabilities", "/spec/taxonomy", "/spec/type",
               "/spec/lifecycle/phases", "/protocols/mcp/version")  # fmt: skip

# The texts of a system prompt, in this order.
_PROMPTS = (
    "/spec/role", "/spec/prompts/system/template", "/spec/prompts/system", "/spec/system", "/spec/system_message", "/spec/systemPrompt",
    "/spec/system_prompt", "/spec/llm/systemPrompt", "/spec/llm/system_prompt", "/spec/instructions",
)  # fmt: skip
_TOOLS = ("/spec/tools/", "/spec/functions/")
_NAME_MAX = 63  # of applications; those of agents may have one more
_STEPS_MAX = 10_000
_SECONDS_MAX = 31_622_400
_DURATION = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}


@dataclass(frozen=True)
class AgentManifest:
    """An agent that a manifest describes.

    name: that of the agent and of its application. system: the system prompt. models: the models to try, in this order.
    tools, servers: what it names; the operator binds them. rules: which of them it may use, and which calls require an approval.
    options: further options of `define_agent`. phases: the phases of a turn that the manifest names, for people only.
    """

    name: str
    document: Document
    system: str | None = None
    version: str = "1"
    models: tuple[ModelReference, ...] = ()
    tools: tuple[ToolReference, ...] = ()
    servers: tuple[ServerReference, ...] = ()
    rules: ToolRules = field(default_factory=ToolRules)
    options: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[str, ...] = ()
    warnings: tuple[ManifestProblem, ...] = ()


def read_agent(document: Document, environment: Mapping[str, str]) -> AgentManifest:
    """Read a valid manifest of kind Agent. environment: the variables that its texts may use.

    Raises ManifestRejected for values that no agent can have, and for variables without a value.
    """
    made, found = gather_agent(document, environment)
    return replace(made, warnings=tuple(accepted(found)))


def gather_agent(document: Document, environment: Mapping[str, str]) -> tuple[AgentManifest, list[ManifestProblem]]:
    """Read a manifest of kind Agent as far as it can be read. Return the agent, and all problems and warnings."""
    fields = ManifestFields(document, environment)
    name = str(fields.value("/metadata/name"))
    options = {**_limits(fields), **_own_options(fields)}
    if (budget := stricter_budget(_guardrails(fields), options.get("budget"))) is not None:
        options["budget"] = budget
    choice = read_models(fields)
    options |= {key: each for key, each in (("temperature", choice.temperature), ("max_output_tokens", _reply_limit(fields, choice)))
                if each is not None}  # fmt: skip
    tools, servers = read_tools(fields)
    made = AgentManifest(
        name=short_name(_text(fields, "/extensions/heliograph/name") or name, _NAME_MAX + 1), document=document, system=_system(fields),
        version=_text(fields, "/metadata/version") or "1", models=choice.models, tools=tools, servers=servers,
        rules=read_rules(fields, tools, servers), options=options, phases=tuple(fields.texts("/spec/lifecycle/phases")),
    )  # fmt: skip
    for pointer in fields.unread(_is_information):
        fields.warn(
            "no_effect",
            f"{dotted(pointer)} has no effect; {reason_at(pointer)}",
            pointer,
            f"did you mean {similar}?"
            if (similar := fields.similar_key(pointer)) is not None
            else "remove it, or ignore this warning",
        )
    return made, [*document.problems, *fields.problems]


def _system(fields: ManifestFields) -> str | None:
    """Return the system prompt: the role and the instructions, each text once, or else the description."""
    is_nested = isinstance(fields.mapping("/spec/prompts").get("system"), dict)
    places = [each for each in _PROMPTS if not (is_nested and each == "/spec/prompts/system")]
    texts = list(dict.fromkeys(text for each in places if (text := _text(fields, each)) is not None))
    if texts:
        return "\n\n".join([*(each.rstrip() for each in texts[:-1]), texts[-1]])
    return _text(fields, "/spec/prompt") or _described(fields)


def _described(fields: ManifestFields) -> str | None:
    """Return the description as the system prompt, with a warning."""
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
        *(_seconds(fields, each) for each in (
            "/spec/constraints/performance/timeoutSeconds", "/spec/safety/guardrails/max_execution_time_seconds",
            "/spec/completion/timeout_seconds")),
        _duration(fields, "/spec/lifecycle/turn_timeout"), _duration(fields, "/spec/execution/timeout"),
    ]  # fmt: skip
    if given := [each for each in seconds if each is not None]:
        limits["timeout_seconds"] = min(given)
    if (policy := read_retry(fields, "/spec/llm/retry_config")) is not None:
        limits["retry"] = policy
    return limits


def _reply_limit(fields: ManifestFields, choice: ModelChoice) -> int | None:
    """Return the most tokens of one reply of the model: the smaller of `maxTokens` and the limit of a request."""
    request = fields.number("/spec/constraints/cost/maxTokensPerRequest", low=1, high=10**12, whole=True)
    return min(
        (each for each in (choice.max_output_tokens, request) if each is not None and each <= OUTPUT_TOKENS_MAX),
        default=None,
    )


def _guardrails(fields: ManifestFields) -> dict[str, int | float]:
    """Read the limits of a turn that are a budget."""
    calls = fields.number("/spec/safety/guardrails/max_tool_calls", low=0, high=10**9, whole=True)
    return {} if calls is None else {"tool_calls": calls}


def stricter_budget(guardrails: Mapping[str, int | float], own: Any) -> Any:
    """Return the budget with the smaller amount of each kind; an invalid one as it is, because `define_agent` rejects it."""
    if own is None:
        return dict(guardrails) or None
    if not isinstance(own, Mapping):
        return own
    amounts = {kind: most for kind, most in guardrails.items() if _is_smaller(most, own.get(kind))}
    return {**own, **amounts}


def _is_smaller(most: int | float, given: Any) -> bool:
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return given is None or (is_number and most < given)


def _own_options(fields: ManifestFields) -> dict[str, Any]:
    """Read `extensions.heliograph`: options of `define_agent`, which checks them."""
    place = "/extensions/heliograph"
    found: dict[str, Any] = {}
    for key in fields.mapping(place):
        pointer = f"{place}/{escaped(key)}"
        if key in OPTIONS:
            found[key] = fields.whole(pointer)
        elif key != "name":
            fields.reject("unknown_field", f"a manifest cannot set {safe_repr(key)} of an agent", pointer,
                          f"remove it; there are {', '.join(OPTIONS)}")  # fmt: skip
    return found


def _seconds(fields: ManifestFields, pointer: str) -> float | None:
    """Return a number of seconds, also of a duration like 300s or 5m."""
    value = fields.given(pointer)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is not None and found[2] is not None:
        return _duration(fields, pointer)
    seconds: float | None = fields.number(pointer, low=0.001, high=_SECONDS_MAX)
    return seconds


def _duration(fields: ManifestFields, pointer: str) -> float | None:
    """Return the seconds of a duration like 300s or 5m, or of a number of seconds. Another form is an error: a limit must hold."""
    value = fields.value(pointer)
    if isinstance(value, str):
        value = fields.expanded(pointer)
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if value is None:
        return None
    if found is not None:
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        fields.reject(
            "invalid_format",
            f"{dotted(pointer)} is no duration",
            pointer,
            "write a number with a unit, like 300s or 5m",
        )
        return None
    if not 0 < seconds <= _SECONDS_MAX:
        fields.reject(
            "out_of_range",
            f"{dotted(pointer)} must be above 0 and at most {_SECONDS_MAX} seconds",
            pointer,
            "write a time in this range",
        )
        return None
    return seconds


def _text(fields: ManifestFields, pointer: str) -> str | None:
    text = fields.text(pointer)
    return text if text is not None and text.strip() else None


def _is_information(pointer: str) -> bool:
    return pointer in INFORMATION or (pointer.endswith("/description") and pointer.startswith(_TOOLS))


def short_name(name: str, most: int = _NAME_MAX) -> str:
    """Return a name of at most `most` characters; a longer one is cut, and its end replaced by a hash of the whole."""
    if len(name) <= most:
        return name
    return f"{name[: most - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
