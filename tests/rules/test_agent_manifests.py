"""Manifests of kind Agent: the verdict of their schema, what they mean for an agent, and the warnings for everything else."""

from __future__ import annotations

import jsonschema_rs
import pytest

from heliograph.manifest.ossa import schema_name
from heliograph.manifest.problems import ManifestRejected
from heliograph.manifest.schemas import schema_of_kind
from tests.rules.agent_manifest_kit import HEAD, HEAD_5, agent, problems, warned

# ── Versions and schemas ──


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("ossa/v0.4", "Agent"), ("ossa/v0.4.6", "Agent"), ("ossa/v0.4.7", "Agent-v0.5"), ("ossa/v0.4.10", "Agent-v0.5"), ("ossa/v0.5", "Agent-v0.5"),
        ("ossa/v0.5.1", "Agent-v0.5"), ("ossa/v0.4." + "9" * 5000, "Agent"), ("ossa/v0.3.6", "Agent"), ("ossa/v1", "Agent"), (None, "Agent"),
    ],
)  # fmt: skip
def test_version_selects_the_schema(version: str | None, name: str) -> None:
    assert schema_name(version) == name


@pytest.mark.parametrize("version", ["ossa/v0.6", "ossa/v2.0", "v0.4", "ossa/v0.1.9", "ossa/v0.4 "])
def test_unknown_version_is_rejected_at_its_place(version: str) -> None:
    (found,) = problems(HEAD.replace("ossa/v0.4.6", f'"{version}"') + "spec: {role: Read.}\n")
    assert (found.code, found.line, found.column) == ("unsupported_version", 1, 13)
    assert "ossa/v0.5" in found.hint


@pytest.mark.parametrize("name", ["Agent", "Agent-v0.5"])
def test_schemas_are_themselves_valid_and_describe_what_editors_offer_first(name: str) -> None:
    schema = schema_of_kind(name)
    assert jsonschema_rs.meta.is_valid(schema)
    assert schema["title"] == name
    parts = [
        schema,
        schema["definitions"]["Metadata"],
        schema["definitions"].get("AgentSpec") or schema["properties"]["spec"],
    ]
    assert all(each["description"] for part in parts for each in part["properties"].values())


VALID = [
    "spec: {role: Read.}",
    "spec: {}",
    "spec: {role: R, anything: {of: [yours]}}",
    "spec: {llm: {provider: '${PROVIDER:-anthropic}', model: m, temperature: '${T:-0.3}', maxTokens: '${N:-10}'}}",
    "spec: {prompts: {system: Be brief.}}",
    "spec: {prompts: {system: {template: Be brief., version: '1'}, more: 1}}",
    "spec: {tools: [{type: mcp, name: github, config: {server: x}}]}",
    "spec: {autonomy: {approval_required: [deploy], level: supervised}}",
    "spec: {autonomy: {approval_required: true}}",
    "spec: {lifecycle: {max_turns: 3, turn_timeout: 5m, phases: [init, normalize, resolve, infer, execute, assemble, emit]}}",
    "spec: {role: R}\nextensions: {mine: {x: 1}, langchain: {agent_type: react, x: 1}}",
    "spec: {messaging: {subscribes: [{channel: data.created, priority: high}]}}",
    "spec: {role: R}\nruntime: {type: unified, supports: [kubernetes]}",
    "spec: {role: R}\ntoken_efficiency: {serialization_profile: compact}\ncomposition: {sequential: [{agent: a, project: [b]}]}",
    "spec: {role: R, token_efficiency: {enabled: true, token_budget: {input_limit: 100}}}",
    "spec: {role: R}\nextensions: {drupal: {ai_agent_plugin: p, content_types: [article]}}",
]
INVALID = [
    ("spec: {role: ''}", "/spec/role"),
    ("spec: {llm: {provider: anthropic}}", "/spec/llm/model"),
    ("spec: {llm: {provider: nobody, model: m}}", "/spec/llm/provider"),
    ("spec: {llm: {provider: openai, model: m, temperature: 3}}", "/spec/llm/temperature"),
    ("spec: {tools: [{name: no-type}]}", "/spec/tools/0/type"),
    ("spec: {tools: [{type: checker, name: x}]}", "/spec/tools/0/type"),
    ("spec: {lifecycle: {phases: [plan]}}", "/spec/lifecycle/phases/0"),
    ("spec: {lifecycle: {turn_timeout: 5 minutes}}", "/spec/lifecycle/turn_timeout"),
    ("spec: {observability: {logging: {level: loud}}}", "/spec/observability/logging/level"),
    ("spec: {messaging: {subscribes: [{channel: Data}]}}", "/spec/messaging/subscribes/0/channel"),
    ("spec: {functions: [{name: f, description: d}]}", "/spec/functions/0/parameters"),
    ("spec: {role: R}\nextensions: {mcp: {servers: []}}", "/extensions/mcp/servers"),
    (
        "spec: {role: R}\nextensions: {agents_md: {sections: {custom: [{x: 1}]}}}",
        "/extensions/agents_md/sections/custom/0/x",
    ),
    ("spec: {role: R}\nruntime: {type: mainframe}", "/runtime/type"),
    ("spec: {taxonomy: {domain: cooking}}", "/spec/taxonomy/domain"),
    ("spec: {team: {model: hierarchical, members: [{name: a, kind: worker, role: R}]}}", "/spec/team/members/0/kind"),
    ("spec: {subagents: [{name: a, role: R, model: {provider: p}}]}", "/spec/subagents/0/model"),
    ("spec: {role: R}\nextensions: {drupal: {module: m}}", "/extensions/drupal/module"),
    ("spec: {role: R}\ntoken_efficiency: {profile: p}", "/token_efficiency/profile"),
    ("x: 1", "/spec"),
]


@pytest.mark.parametrize("rest", VALID)
def test_valid_manifest_of_v0_4_has_no_problem(rest: str) -> None:
    assert [*map(str, problems(f"{HEAD}{rest}\n"))] == []


@pytest.mark.parametrize(("rest", "pointer"), INVALID)
def test_invalid_manifest_of_v0_4_is_rejected_at_its_place(rest: str, pointer: str) -> None:
    found = problems(f"{HEAD}{rest}\n")
    assert pointer in [each.pointer for each in found]
    assert all(each.line >= 1 and each.column >= 1 and each.hint for each in found)


def test_unknown_key_of_metadata_is_rejected_by_v0_4_and_accepted_by_v0_5() -> None:
    more = "  mascot: owl\nspec: {role: R}\n"
    assert [each.pointer for each in problems(HEAD + more)] == ["/metadata/mascot"]
    assert problems(HEAD_5 + more) == []


@pytest.mark.parametrize(
    ("rest", "pointer"),
    [
        ("security: {threat_model: [{category: ghosts}]}", "/security/threat_model/0/category"),
        ("security: {sandboxing: {type: vm}}", "/security/sandboxing/required"),
        ("protocols: {mcp: {role: client}}", "/protocols/mcp/version"),
        ("protocols: {a2a: {version: '1'}}", "/protocols/a2a/version"),
        (
            "protocols: {mcp: {version: 1.0.0, specVersion: '2026-07-28', transport: stateful}}",
            "/protocols/mcp/transport",
        ),
        ("protocols: {mcp: {version: 1.0.0, auth: {type: oauth2.1}}}", "/protocols/mcp/auth/pkce"),
        ("protocols: {mcp: {version: 1.0.0, auth: {type: oauth2.1, pkce: false}}}", "/protocols/mcp/auth/pkce"),
        ("governance: {mystery: 1}", "/governance/mystery"),
        ("cognition: {pattern: guess}", "/cognition/pattern"),
        ("extensions: {security: {cedar: {policies: []}}}", "/extensions/security/cedar/policies"),
    ],
)
def test_invalid_manifest_of_v0_5_is_rejected_at_its_place(rest: str, pointer: str) -> None:
    assert pointer in [each.pointer for each in problems(f"{HEAD_5}{rest}\n")]


def test_spec_of_v0_5_is_open() -> None:
    assert problems(f"{HEAD_5}spec: {{tools: [{{name: read}}], model: {{tier: fast}}, subAgents: []}}\n") == []


@pytest.mark.parametrize(
    ("kind", "spec", "is_valid"),
    [
        ("Task", "{execution: {type: idempotent}}", True), ("Task", "{}", False),
        ("Workflow", "{steps: [{id: one, kind: Agent, ref: ./a.yaml}]}", True), ("Workflow", "{steps: []}", False),
        ("Flow", "{flow_schema: {initial_state: a, states: [{name: a}]}, transitions: []}", True), ("Flow", "{}", False),
    ],
)  # fmt: skip
def test_other_kinds_have_the_verdict_of_their_schema(kind: str, spec: str, is_valid: bool) -> None:
    found = problems(HEAD.replace("kind: Agent", f"kind: {kind}") + f"spec: {spec}\n")
    assert (found == []) is is_valid


# ── What a manifest means for an agent ──


def test_role_model_and_settings_become_options() -> None:
    made = agent("""
        role: |
          Read. Braces like {this} stay.
        llm:
          provider: anthropic
          model: claude-sonnet-4-5
          temperature: 0.2
          maxTokens: 800
          fallback_models:
            - {provider: openai, model: gpt-5}
          retry_config: {max_attempts: 4, backoff_strategy: linear, initial_delay_ms: 500}
        """)
    assert made.system == "Read. Braces like {this} stay.\n"
    assert [each.name for each in made.models] == ["anthropic:claude-sonnet-4-5", "openai-chat:gpt-5"]
    assert (made.options["temperature"], made.options["max_output_tokens"]) == (0.2, 800)
    retry = made.options["retry"]
    assert (retry.max_attempts, retry.strategy, retry.initial_delay_seconds) == (4, "linear", 0.5)
    assert warned(made) == []


def test_model_of_v0_5_has_its_settings_below_parameters() -> None:
    made = agent("""
        instructions: Help.
        model: {provider: google, name: gemini-2.5-pro, parameters: {temperature: 0.8, maxTokens: 10}}
        """, HEAD_5)  # fmt: skip
    assert made.system == "Help."
    assert [each.name for each in made.models] == ["google:gemini-2.5-pro"]
    assert made.options["temperature"] == 0.8


@pytest.mark.parametrize("model", ["model: {tier: fast}", "llm: {provider: custom, model: ours}", "role: R"])
def test_model_without_a_known_provider_is_left_to_the_operator(model: str) -> None:
    assert [each.name for each in agent(model, HEAD_5).models if each.name is not None] == []


def test_variables_of_the_model_are_expanded_and_those_of_the_role_are_not() -> None:
    text = """
        role: Keep ${HOME} and {{ this }}.
        llm: {provider: "${P:-anthropic}", model: "${M}", temperature: "${T:-0.5}"}
        """
    made = agent(text, environment={"M": "claude-x", "HOME": "/root"})
    assert made.system == "Keep ${HOME} and {{ this }}."
    assert made.models[0].name == "anthropic:claude-x"
    assert made.options["temperature"] == 0.5
    without = agent(text)
    assert [each.name for each in without.models] == [None]
    assert [(each.code, each.pointer) for each in without.warnings] == [("env_missing", "/spec/llm/model")]


def test_limits_become_options() -> None:
    made = agent("""
        role: R
        lifecycle: {max_turns: 7, turn_timeout: 2m}
        constraints: {cost: {maxTokensPerRequest: 5000}, performance: {timeoutSeconds: 90}}
        safety: {guardrails: {max_tool_calls: 3}}
        """)
    assert made.options == {
        "max_steps": 7,
        "timeout_seconds": 90,
        "budget": {"tool_calls": 3},
        "max_output_tokens": 5000,
    }
    assert warned(made) == []


def test_tools_of_every_form_have_names() -> None:
    made = agent("""
        tools:
          - read
          - {name: file.edit, type: custom}
          - {type: function, function: {name: add}}
          - {type: mcp, server: github}
          - {type: api, handler: {capability: search}}
          - {type: mcp, capabilities: [{name: tell}]}
          - {type: webhook, name: hook}
          - {type: http}
          - 12
        functions:
          - {name: sum, description: Adds., parameters: {type: object}}
        """, HEAD_5)  # fmt: skip
    assert [each.name for each in made.tools] == ["read", "file.edit", "add", "github", "search", "tell", "sum"]
    assert made.tools[1].bound_name == "file_edit"
    assert made.tools[-1].parameters == {"type": "object"}
    assert {(each.code, each.pointer) for each in made.warnings if "tools" in each.pointer} == {
        ("no_effect", "/spec/tools/6"), ("missing_name", "/spec/tools/7"), ("wrong_type", "/spec/tools/8"),
    }  # fmt: skip


@pytest.mark.proves("S13")
@pytest.mark.parametrize(
    "spec", ["llm: {provider: custom, model: '${DSN}'}", "llm: {provider: openai, model: '${DSN}'}", "model: '${DSN}'"]
)
def test_variable_that_is_no_name_of_a_model_is_rejected_without_its_value(spec: str) -> None:
    with pytest.raises(ManifestRejected) as raised:
        agent(f"role: R\n{spec}", environment={"DSN": "postgresql://me:hunter22@db/x"})
    (found,) = raised.value.problems
    assert found.code == "invalid_model"
    assert "hunter22" not in str(raised.value) + str(found) + found.hint


def test_declared_servers_keep_their_texts_and_no_value_of_the_environment() -> None:
    made = agent("""
        role: R
        tools:
          - type: mcp
            name: github
            config: {server: npx -y server-github, env: {GITHUB_TOKEN: "${GITHUB_TOKEN}", MODE: fast}}
          - {type: mcp, name: docs, endpoint: "https://docs.example/mcp"}
        """, more="""
        extensions:
          mcp:
            servers: [{name: files, command: npx, args: [files, /data], tools: [read, {name: write}]}]
        """, head=HEAD_5, environment={"GITHUB_TOKEN": "ghp-secret"})  # fmt: skip
    by_name = {each.name: each for each in made.servers}
    assert by_name["github"].command == ("npx", "-y", "server-github")
    assert by_name["github"].env == {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "MODE": "fast"}
    assert by_name["docs"].url == "https://docs.example/mcp"
    assert (by_name["files"].command, by_name["files"].tools) == (("npx", "files", "/data"), ("read", "write"))


def test_servers_that_the_agent_would_offer_are_not_its_tools() -> None:
    more = """
        protocols:
          mcp: {version: 1.0.0, role: ROLE, servers: [{name: own, transport: stdio, command: node}]}
        """
    assert agent(head=HEAD_5, more=more.replace("ROLE", "server")).servers == ()
    assert [each.name for each in agent(head=HEAD_5, more=more.replace("ROLE", "client")).servers] == ["own"]


def test_autonomy_decides_about_approvals_and_tools() -> None:
    made = agent("""
        role: R
        tools: [{type: function, name: look}, {type: function, name: send}, {type: function, name: drop}]
        autonomy: {approval_required: [send, pay], blocked_actions: [drop]}
        """)
    needs = {each.name: made.rules.requires_approval(each.name) for each in made.tools}
    assert needs == {"look": False, "send": True, "drop": False}
    assert [each.name for each in made.tools if made.rules.permits(each.name)] == ["look", "send"]
    assert [each.message for each in made.warnings] == ["approval_required names pay, which is no tool of the agent"]


def test_allowed_actions_that_are_tools_exclude_the_others() -> None:
    made = agent("""
        tools: [{type: function, name: look}, {type: function, name: send}]
        autonomy: {allowed_actions: [look]}
        """)
    assert [each.name for each in made.tools if made.rules.permits(each.name)] == ["look"]


def test_governance_of_v0_5_requires_approvals() -> None:
    made = agent("role: R\ntools: [{name: send}]", HEAD_5, """
        governance: {authorization: {clearance_level: 2, tool_permissions: [{tool: send, risk_level: high, requires_approval: true}]}}
        """)  # fmt: skip
    assert made.rules.requires_approval("send")
    assert warned(made) == [
        "/governance/authorization/clearance_level",
        "/governance/authorization/tool_permissions/0/risk_level",
    ]


@pytest.mark.proves("G-33")
def test_phases_of_a_manifest_are_listed_and_change_nothing() -> None:
    made = agent("role: R\nlifecycle: {phases: [init, infer, emit]}")
    assert made.phases == ("init", "infer", "emit")
    assert made.options == {}
    assert made.warnings == ()


def test_fields_without_an_effect_get_a_warning_with_their_place() -> None:
    made = agent("""
        role: R
        memory: {type: entity}
        safety: {pii_detection: {enabled: true}, guardrails: {max_tool_calls: 1, policies: []}}
        llm: {provider: openai, model: gpt-5, topP: 0.9}
        """, more="extensions: {langchain: {agent_type: react}, cursor: {x: 1}}\n")  # fmt: skip
    assert warned(made) == [
        "/spec/memory",
        "/spec/safety/pii_detection",
        "/spec/safety/guardrails/policies",
        "/spec/llm/topP",
        "/extensions/langchain",
        "/extensions/cursor",
    ]
    assert all(each.code == "no_effect" and "has no effect" in each.message and each.line > 4 for each in made.warnings)


@pytest.mark.parametrize(
    ("spec", "system"),
    [
        ("role: A\ninstructions: B", "A\n\nB"), ("instructions: B\nrole: A", "A\n\nB"), ("role: A\nsystem_message: A", "A"),
        ("system: |\n  B\n\ninstructions: |\n  C\n", "B\n\nC\n"), ("llm: {systemPrompt: B}", "B"), ("role: A\nprompt: B", "A"), ("prompt: B", "B"),
    ],
)  # fmt: skip
def test_role_and_instructions_are_one_system_prompt(spec: str, system: str) -> None:
    assert agent(spec, HEAD_5).system == system


def test_agent_without_a_role_has_its_description() -> None:
    made = agent("capabilities: [read]", HEAD + "  description: Reads files.\n")
    assert made.system == "Reads files."
    assert [each.code for each in made.warnings] == ["no_role"]


def test_long_names_are_cut_and_remain_distinct() -> None:
    names = [agent(head=HEAD.replace("reader", "a" * 200 + end)).name for end in "bc"]
    assert len(names[0]) == 64
    assert names[0] != names[1]


def test_options_of_heliograph_are_limited_to_safe_ones() -> None:
    assert (
        agent(more="extensions: {heliograph: {prompt: 'Sum up {state.text}', max_attempts: 2}}\n").options[
            "max_attempts"
        ]
        == 2
    )
    with pytest.raises(ManifestRejected) as caught:
        agent(more="extensions: {heliograph: {trusted: true}}\n")
    assert [(each.code, each.pointer) for each in caught.value.problems] == [
        ("unknown_field", "/extensions/heliograph/trusted")
    ]


@pytest.mark.parametrize(
    "spec",
    ["role: 12", "tools: {allow: [x]}", "llm: fast", "lifecycle: never", "autonomy: full", "safety: [x]", "model: [1]", "prompts: 1",
     "tools: [[x]]", "constraints: {performance: fast}", "functions: none"],
)  # fmt: skip
def test_open_spec_of_v0_5_may_hold_anything(spec: str) -> None:
    made = agent(f"description: D\n{spec}", HEAD_5)
    assert made.name == "reader"
    assert made.warnings != ()
