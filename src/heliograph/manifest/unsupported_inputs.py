"""What the schemas of manifests allow and Heliograph does not carry out. The table of docs/reference/manifests.md is made from this."""

from __future__ import annotations

from collections.abc import Mapping

# Of kind Agent: the value at a pointer, and everything below it that nothing reads, has no effect for this reason.
REASONS = {
    "/extensions": "it is for another runtime",
    "/security": "use the sandbox of isolated tools, and HELIOGRAPH_MCP_ALLOW",
    "/protocols": "MCP servers count only with the role client; a Gateway serves other systems",
    "/token_efficiency": "use max_steps, budgets and the settings of the model",
    "/cognition": "use hooks for the phases of a turn",
    "/governance": "policies of Cedar or OPA are not evaluated; of the permissions of tools, requires_approval is carried out",
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
    "/spec/subagents": "write an application for several agents",
    "/spec/team": "write an application for several agents",
    "/spec/handoffs": "write an application for several agents",
    "/spec/triggers": "other programs start runs",
    "/spec/delegation": "write an application for several agents",
    "/spec/safety": "of safety, only limits and approvals are carried out",
    "/spec/autonomy": "of autonomy, approval_required, allowed_actions and blocked_actions are carried out",
    "/spec/constraints": "of constraints, timeoutSeconds and maxTokensPerRequest are carried out",
    "/spec/lifecycle": "of lifecycle, max_turns and turn_timeout are carried out",
    "/spec/completion": "of completion, max_iterations and timeout_seconds are carried out",
    "/spec/tools": "of a tool, its name, type, description, parameters, server and approval are carried out",
    "/spec/functions": "of a function, its name, description and parameters are carried out",
    "/extensions/mcp": "of its servers, name, command, args, env, url, headers, transport and tools are carried out",
    "/spec/access": "logins and projects decide about access",
    "/spec/adapters": "a Gateway serves other systems",
    "/spec/checkpointing": "each step of a turn is recorded, and a turn continues from there",
    "/spec/code_compliance": "use tools that check code",
    "/spec/compliance": "it depends on the deployment",
    "/spec/mandatory_knowledge_sources": "give the agent a tool that searches",
    "/spec/principal": "credentials are variables of the environment, and secrets",
    "/spec/prompts": "of prompts, system is carried out",
    "/spec/separation": "logins and projects decide about access",
    "/spec/token_efficiency": "use max_steps, budgets and the settings of the model",
    "/spec/model": "of the model, provider, name, temperature, maxTokens, fallback_models and retry_config are carried out",
    "/spec/llm": "of the model, provider, model, temperature, maxTokens, fallback_models and retry_config are carried out",
}

# The same of the kinds whose manifests have steps or calls.
REASONS_OF_STEPS = {
    "Flow": {"/spec": "a flow is validated, and not run"},
    "Task": {
        "/spec/execution": "the tool is bound by its name, and only timeout_seconds is carried out",
        "/spec/batch": "a task with a batch is rejected", "/spec/preconditions": "a task with conditions is rejected",
        "/spec/postconditions": "a task with conditions is rejected", "/spec/dependencies": "a task with dependencies is rejected",
        "/spec/error_handling": "only on_error is carried out, as fail or retry",
        "/spec/observability": "the settings of telemetry are those of the process", "/spec/output": "results are not checked against it",
    },
    "Workflow": {
        "/spec/steps": "steps call tools or agents in a fixed order, and a step with another rule is rejected",
        "/spec/triggers": "other programs start runs", "/spec/outputs": "the output of the last step is the result",
        "/spec/concurrency": "each run is independent", "/spec/error_handling": "of error_handling, retry_policy is carried out",
        "/spec/context": "of the context, variables are carried out", "/spec/observability": "the settings of telemetry are those of the process",
    },
}  # fmt: skip

# The kind, the input, and the result, in words.
OTHERS = (
    ("RuntimeSpec", "`async` of a control signal with another value than that of its type, `timeout_seconds` of `halt` other than 5",
     "error `no_effect`"),
    ("RuntimeSpec", "`payload` of `tool_call`, `delegation`, `halt`, `ready`, `heartbeat`",
     "warning `no_effect`: the runtime writes these payloads, with ids of its own"),
    ("RuntimeSpec", "`message`, `details`, `stack_trace` in `control_signals.error.payload`", "warning `no_effect`: each error has its own"),
    ("RuntimeSpec", "a setting of `lifecycle` for a hook or plan that no agent has, or that every agent has in code",
     "warning `setting_without_effect`"),
    ("RuntimeSpec", "a metric other than the three of the specification, or a label that it does not have",
     "error `unknown_metric`, `unknown_label`"),
    ("RuntimeSpec", "a list of some of the metrics, a metric with only some of its labels",
     "warning `no_effect`: all are always published, with all labels"),
    ("RuntimeSpec", "settings of `observability.tracing` without `enabled`", "warning `no_effect`: nothing switches it on"),
    ("RuntimeSpec", "the endpoint of Jaeger for Thrift (`:14268/api/traces`)", "error `jaeger_thrift_endpoint`: export is OTLP only"),
    ("MessageRouting", "a route of another type of signal than `delegation` and `tool_call`", "warning `no_effect`"),
    ("MessageRouting", "a gateway that is neither a URL nor a name that the application has", "error `unknown_gateway`"),
    ("each", "`metadata`, except for name and version of an Agent", "read by people only"),
    ("Workflow", "what decides which steps run, or computes values: `condition`, `branches`, `loop`, `continue_on_error`, `on_error`, "
     "`parallel_with`, other kinds of steps, other expressions", "error `not_runnable` or `expression_not_allowed`"),
    ("Workflow", "`triggers` of other types than `manual`, `outputs`, `concurrency`, `observability`, secrets, `error_handling` except for its `retry_policy`, and `output` of a step; `retry`, "
     "`timeout_seconds` and `input` of a group", "warning `no_effect`"),
    ("RuntimeSpec, Workflow", "a code in `retryable_errors` that Heliograph does not have",
     "warning `unknown_error_code`: it matches only errors to which a tool gives it"),
    ("Task", "several capabilities, `preconditions`, `postconditions`, `dependencies`, `batch`, and reactions to errors other than `fail` and "
     "`retry`", "error `not_runnable`"),
    ("Task", "`runtime` and `entrypoint` of `execution`, `output`, `observability`", "warning `no_effect`: the tool is bound by its name"),
    ("Task", "`type` of `execution`", "read by people only: the effect is that of the bound tool"),
    ("Flow", "the whole", "error `not_runnable`: it is a graph whose transitions are computed; it is validated, and not run"),
    ("Agent", "tools of the types `webhook`, `schedule`, `pipeline`, `workflow`, `artifact`, `git-commit`, `ci-status`, `comment`",
     "warning `no_effect`: other programs start runs"),
    ("Agent", "a tool without a name; a second tool or MCP server of the same name; an empty list of the tools of a server, which permits "
     "none; parameters of other names than those of the bound tool, "
     "or of a tool of an MCP server",
     "warning `missing_name` or `no_effect`"),
    ("Agent", "a name in `approval_required`, `allowed_actions` or `blocked_actions` that no tool has",
     "warning `no_effect`, unless an MCP server may have it"),
    ("Agent", "a value that is not true, false or a list of names where approvals and actions are given; a duration or backoff of another form",
     "error: a limit is never dropped"),
    ("Agent", "`fallback_models` of a provider that Heliograph does not know", "warning `no_effect`"),
    ("Agent", "a setting that is given in two places, for example as `max_turns` and `max_iterations`",
     "warning `no_effect` for the second; of times and budgets the smaller holds"),
    ("Agent", "a value of the wrong type, where the schema of v0.5 leaves it open", "warning `wrong_type` or `no_effect`"),
)  # fmt: skip


def reason_at(pointer: str, reasons: Mapping[str, str] = REASONS) -> str:
    """Return why a value has no effect, from the reason for it or for what contains it."""
    while pointer and pointer not in reasons:
        pointer = pointer.rpartition("/")[0]
    return reasons.get(pointer, "Heliograph does not know it")


def rows() -> list[tuple[str, str, str]]:
    """Return the rows of the table: kind, input, result."""
    reasons = [
        ("Agent", f"`{pointer.removeprefix('/').replace('/', '.')}`", f"warning `no_effect`: {reason}")
        for pointer, reason in REASONS.items()
    ]
    return [*OTHERS, *sorted(reasons)]
