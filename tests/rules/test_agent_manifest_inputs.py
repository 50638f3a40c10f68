"""Inputs of an agent's manifest are carried out, rejected or warned about by name; none is dropped silently."""

from __future__ import annotations

import time
from typing import Any

import pytest

from heliograph.definitions.schema_references import reference_cycle
from heliograph.manifest.ossa import validate_ossa
from heliograph.manifest.problems import ManifestRejected
from tests.rules.agent_manifest_kit import HEAD, HEAD_5, agent, parsed, problems, warned


def rejected(spec: str, more: str = "") -> list[tuple[str, str]]:
    with pytest.raises(ManifestRejected) as caught:
        agent(spec, HEAD_5, more)
    return [(each.code, each.pointer) for each in caught.value.problems if not each.is_warning]


@pytest.mark.parametrize(
    "key", ["endpoint: https://x.example", "auth: {type: bearer}", "timeout: 5", "resources: [a]", "transport: sse", "risk_level: high", "id: other",
            "config: {retries: 3}", "handler: {runtime: node}", "enabled: false"],
)  # fmt: skip
def test_key_of_a_tool_without_effect_gets_a_warning_of_its_own(key: str) -> None:
    (pointer,) = warned(agent(f"role: R\ntools: [{{type: function, name: send, {key}}}]", HEAD_5))
    assert pointer.startswith(f"/spec/tools/0/{key.partition(':')[0]}")


def test_key_of_a_server_without_effect_gets_a_warning_of_its_own() -> None:
    made = agent("role: R", HEAD_5, """
        extensions:
          mcp:
            servers:
              - {name: files, transport: stdio, command: npx, args: [a, 1, true], url: "https://x.example", headers: {A: b}, cwd: /x}
              - {name: docs, transport: sse, url: "https://x.example", env: {A: b}, auth: {type: oauth}}
              - {name: good, transport: http, url: "https://x.example", headers: {A: b}}
        """)  # fmt: skip
    place = "/extensions/mcp/servers"
    assert warned(made) == [
        f"{place}/0/url", f"{place}/0/headers", f"{place}/0/cwd", f"{place}/1/transport", f"{place}/1/env", f"{place}/1/auth",
    ]  # fmt: skip
    assert made.servers[0].command == ("npx", "a", "1", "true")


@pytest.mark.parametrize(
    ("given", "seconds"), [("5m", 300), ("300s", 300), ("1h", 3600), ("90", 90), ("1.5", 1.5), ("250ms", 0.25)]
)
def test_durations_of_a_turn_become_its_timeout(given: str, seconds: float) -> None:
    assert agent(f"role: R\nlifecycle: {{turn_timeout: {given}}}", HEAD_5).options["timeout_seconds"] == seconds


def test_times_may_be_durations_and_variables() -> None:
    spec = "role: R\nconstraints: {performance: {timeoutSeconds: 2m}}\nlifecycle: {turn_timeout: '${T:-90s}'}"
    assert agent(spec, HEAD_5).options["timeout_seconds"] == 90
    assert agent(spec, HEAD_5, environment={"T": "5m"}).options["timeout_seconds"] == 120


def test_limit_of_no_tool_calls_holds() -> None:
    made = agent("role: R\nsafety: {guardrails: {max_tool_calls: 0}}", HEAD_5)
    assert made.options["budget"] == {"tool_calls": 0}


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ("{path: {type: string}, title: {type: string, required: true}}",
         {"type": "object", "properties": {"path": {"type": "string"}, "title": {"type": "string"}}, "required": ["title"]}),
        ("{type: {type: string}}", {"type": "object", "properties": {"type": {"type": "string"}}}),
        ("{type: object, required: [a], properties: {a: {type: string, required: true}, b: {type: number, required: true}}}",
         {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}, "b": {"type": "number"}}}),
        ("{properties: {l: {type: array, items: {type: object, properties: {p: {required: true}}}}}}",
         {"properties": {"l": {"type": "array", "items": {"type": "object", "properties": {"p": {}}, "required": ["p"]}}}}),
        ("{type: object, properties: {required: {type: boolean}}, additionalProperties: false}",
         {"type": "object", "properties": {"required": {"type": "boolean"}}, "additionalProperties": False}),
        ("{oneOf: [{required: [a]}], $defs: {a: {}}}", {"oneOf": [{"required": ["a"]}], "$defs": {"a": {}}}),
        ("{}", {}),
    ],
)  # fmt: skip
def test_parameters_of_other_forms_become_a_json_schema(given: str, schema: dict[str, Any]) -> None:
    (found,) = agent(f"role: R\ntools: [{{name: f, parameters: {given}}}]", HEAD_5).tools
    assert found.parameters == schema


@pytest.mark.parametrize(
    ("spec", "code", "pointer"),
    [
        ("lifecycle: {turn_timeout: 5 minutes}", "invalid_format", "/spec/lifecycle/turn_timeout"),
        ("lifecycle: {turn_timeout: PT5M}", "invalid_format", "/spec/lifecycle/turn_timeout"),
        ("lifecycle: {turn_timeout: true}", "invalid_format", "/spec/lifecycle/turn_timeout"),
        ("lifecycle: {turn_timeout: [5]}", "invalid_format", "/spec/lifecycle/turn_timeout"),
        ("lifecycle: {turn_timeout: 0s}", "out_of_range", "/spec/lifecycle/turn_timeout"),
        ("lifecycle: {turn_timeout: -3}", "out_of_range", "/spec/lifecycle/turn_timeout"),
        ("execution: {timeout: 99999999h}", "out_of_range", "/spec/execution/timeout"),
        ("llm: {provider: openai, model: m, retry_config: {backoff_strategy: jitter}}", "invalid_enum", "/spec/llm/retry_config/backoff_strategy"),
        ("autonomy: {approval_required: send}", "wrong_type", "/spec/autonomy/approval_required"),
        ("autonomy: {approval_required: [send, 1]}", "wrong_type", "/spec/autonomy/approval_required"),
        ("autonomy: {blocked_actions: send}", "wrong_type", "/spec/autonomy/blocked_actions"),
        ("autonomy: {allowed_actions: {send: true}}", "wrong_type", "/spec/autonomy/allowed_actions"),
        ("tools: [{name: send, requires_approval: 'yes'}]", "wrong_type", "/spec/tools/0/requires_approval"),
        ("functions: [{name: f, description: d, parameters: {$ref: '#'}}]", "invalid_schema", "/spec/functions/0/parameters"),
    ],
)  # fmt: skip
def test_limit_or_permission_in_another_form_is_rejected_at_its_place(spec: str, code: str, pointer: str) -> None:
    assert rejected(f"role: R\n{spec}") == [(code, pointer)]


def test_fallback_of_an_unknown_provider_gets_a_warning() -> None:
    made = agent("llm: {provider: openai, model: gpt-5, fallback_models: [{provider: custom, model: ours}]}", HEAD_5)
    assert [each.pointer for each in made.warnings if each.code == "no_effect"] == ["/spec/llm/fallback_models/0"]


def test_provider_without_a_model_gets_a_warning() -> None:
    assert "/spec/llm/provider" in warned(agent("role: R\nllm: {provider: openai}", HEAD_5))


@pytest.mark.proves("S12")
@pytest.mark.parametrize(
    ("own", "budget"),
    [
        ("{tool_calls: 9, usd: 1}", {"tool_calls": 3, "usd": 1}),
        ("{tool_calls: 2, tokens: 900}", {"tool_calls": 2, "tokens": 900}),
    ],
)
def test_stricter_of_guardrails_and_own_budget_holds(own: str, budget: dict[str, Any]) -> None:
    made = agent("role: R\nsafety: {guardrails: {max_tool_calls: 3}}", HEAD_5,
                 f"extensions: {{heliograph: {{budget: {own}}}}}\n")  # fmt: skip
    assert made.options["budget"] == budget


@pytest.mark.proves("S12")
def test_tokens_of_a_request_limit_each_reply_of_the_model() -> None:
    limits = "role: R\nllm: {{provider: openai, model: m{}}}\nconstraints: {{cost: {{maxTokensPerRequest: {}}}}}"
    for own, request, most in (
        (", maxTokens: 900", 500, 500),
        (", maxTokens: 400", 500, 400),
        ("", 500, 500),
        ("", 10**11, None),
    ):
        options = agent(limits.format(own, request), HEAD_5).options
        assert options.get("max_output_tokens") == most
        assert "budget" not in options


def test_names_that_no_tool_has_get_a_warning_unless_a_server_may_have_them() -> None:
    rules = "autonomy: {approval_required: [pay], blocked_actions: [drop], allowed_actions: [send, read]}"
    made = agent(f"role: R\ntools: [{{name: send}}]\n{rules}", HEAD_5)
    assert [each.message.split(",")[0] for each in made.warnings] == [
        "approval_required names pay", "blocked_actions names drop", "allowed_actions names read",
    ]  # fmt: skip
    assert warned(agent(f"role: R\ntools: [{{name: send}}, {{name: git, type: mcp}}]\n{rules}", HEAD_5)) == []


def test_rules_apply_to_names_as_heliograph_has_them() -> None:
    made = agent(
        "role: R\ntools: [{name: file.edit}]\nautonomy: {approval_required: [file_edit], blocked_actions: [file.edit]}",
        HEAD_5,
    )
    assert made.rules.requires_approval("file.edit")
    assert not made.rules.permits("file.edit")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"x": {"$ref": "#/properties/x"}}}, {"if": {"$ref": "#"}}, {"$ref": "#x", "$defs": {"x": {"$anchor": "x", "$ref": "#x"}}},
    ],
)  # fmt: skip
def test_reference_that_leads_back_to_itself_is_found(schema: dict[str, Any]) -> None:
    assert reference_cycle(schema) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"child": {"$ref": "#"}}}, {"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
        {"$ref": "https://elsewhere.example/x"}, {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {}}}, {"$ref": "#/nowhere"},
    ],
)  # fmt: skip
def test_recursive_schema_that_steps_into_its_value_is_accepted(schema: dict[str, Any]) -> None:
    assert reference_cycle(schema) is None


def test_many_references_are_followed_in_linear_time() -> None:
    names = {f"d{n}": {"$anchor": f"x{n}", "$ref": f"#y{n}"} for n in range(5000)}
    start = time.process_time()
    assert reference_cycle({"$defs": names}) is None
    assert time.process_time() - start < 2


@pytest.mark.parametrize("value", ["[]", "{}", "null"])
def test_unknown_key_gets_a_warning_although_its_value_is_empty(value: str) -> None:
    made = agent(f"role: R\ntools: []\nautonomy: {{allowed_actionz: {value}, blocked_actions: []}}", HEAD_5)
    assert [(each.pointer, each.hint) for each in made.warnings] == [
        ("/spec/autonomy/allowed_actionz", "did you mean allowed_actions?"),
    ]  # fmt: skip


KAGENT = "extensions: {kagent: {mcpServers: {git: {url: 'https://x.example', transport: sse}}}}\n"


def test_v0_4_without_a_third_number_stands_for_each_of_its_versions() -> None:
    """The repository of the specification has such manifests: those of v0.4.7, and those that its schema rejected before."""
    for more in (
        "  identity: {agent_id: a}\nspec: {role: R}\n",
        f"spec: {{role: R}}\n{KAGENT}",
        "spec: {role: R, tools: [{name: f}]}\n",
    ):
        text = HEAD + more
        assert problems(text) != []
        document = parsed(text.replace("v0.4.6", "v0.4"))
        found = validate_ossa(document)
        assert [each.is_warning for each in found] == [True] * len(found) != []
    both = f"{HEAD}spec: {{role: ''}}\nsecurity: 7\n".replace("v0.4.6", "v0.4")
    assert [each.pointer for each in problems(both)] == ["/spec/role"]


def test_empty_list_of_tools_permits_none() -> None:
    made = agent("role: R\ntools: [{type: mcp, name: git, command: sh, tools: []}]", HEAD_5)
    assert ([each.tools for each in made.servers], warned(made)) == ([()], ["/spec/tools/0"])
    described = agent("role: R\ntools: [{type: mcp, name: git, command: sh, capabilities: []}]", HEAD_5)
    assert ([each.tools for each in described.servers], warned(described)) == ([None], [])
    with pytest.raises(ManifestRejected) as caught:
        agent("role: R\ntools: [{type: mcp, server: git, toolNames: []}]", HEAD_5)
    assert [(each.code, each.pointer) for each in caught.value.problems] == [("no_tools", "/spec/tools/0")]


def test_second_server_of_a_name_gets_a_warning() -> None:
    servers = "[{type: mcp, name: git, command: one}, {type: mcp, name: git, command: two}]"
    made = agent(f"role: R\ntools: {servers}", HEAD_5)
    assert [each.command for each in made.servers] == [("one",)]
    assert [(each.code, each.pointer) for each in made.warnings] == [("no_effect", "/spec/tools/1")]


@pytest.mark.parametrize("key", ["toolNames", "capabilities", "tools"])
def test_entry_of_an_mcp_server_lists_single_tools_of_it(key: str) -> None:
    made = agent(f"role: R\ntools: [{{type: mcp, server: git, {key}: [read, merge], requires_approval: true}}]", HEAD_5)
    assert [(each.name, each.server, each.needs_approval) for each in made.tools] == [
        ("read", "git", True),
        ("merge", "git", True),
    ]
    assert warned(made) == []
    declared = agent(f"role: R\ntools: [{{type: mcp, name: git, command: sh, {key}: [read, merge]}}]", HEAD_5)
    assert [each.tools for each in declared.servers] == [("read", "merge")]
    assert [each.name for each in declared.tools] == ["git"]
    nested = agent(
        "role: R\ntools: [{type: mcp, name: files, server: {command: npx, args: [-y, s], env: {A: b}}}]", HEAD_5
    )
    assert [(each.command, dict(each.env)) for each in nested.servers] == [(("npx", "-y", "s"), {"A": "b"})]
    assert warned(nested) == []
