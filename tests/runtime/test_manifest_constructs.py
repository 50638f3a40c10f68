"""What authors of agent manifests write: each construct is valid under its own schema, and an agent with it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph import external_tool
from heliograph.cli.bindings import Bindings
from heliograph.cli.load_target import load_manifest
from heliograph.manifest.problems import ManifestRejected
from heliograph.models import ScriptedModel
from tests.runtime.kit import Rig

OLD, NEW = "ossa/v0.4.6", "ossa/v0.5"
DID = "  identity: {namespace: acme/team, agent_id: bot, publisher: {name: Acme}, created_at: 2026-01-15T00:00:00Z}\n"
TOOLS = "spec:\n  role: R\n  tools:\n    - "
SERVER = """\
protocols:
  mcp: {version: 1.0.0, role: client, servers: [{name: ci, transport: stdio, command: ci, tools: [list, api.call]}]}
governance: {authorization: {tool_permissions: [{tool: api.call, risk_level: high, requires_approval: true}]}}
"""

# The version, and the manifest below its name. Each stands for a form that several published manifests have.
CONSTRUCTS = {
    "architecture": (OLD, "  agentType: a2a\n  agentKind: team-lead\n  agentArchitecture: {pattern: lead-teammate, coordination: {teamModel: hierarchical, "
                          "taskCoordination: dependency-wave}}\nspec: {role: R}\n"),
    "card": (OLD, "  idCard: {nickname: Scout, auditTrail: {chainType: linear, entries: [{seq: 0, action: created, timestamp: 2026-01-01T00:00:00Z, "
                  "actor: me, hash: 'sha256:ab', prevHash: null}]}}\nspec: {role: R}\n"),
    "team": (OLD, "spec: {role: R, team: {model: hierarchical, lead: a, members: [{name: a, kind: team-lead, role: Lead.}]}, "
                  "subagents: [{name: b, kind: debugger, role: D, maxTokenBudget: 5000}]}\n"),
    "identity": (NEW, f"{DID}spec: {{role: R}}\n"),
    "no spec": (NEW, ""),
    "spec without a value": (NEW, "spec:\n"),
    "system": (NEW, "spec: {system: You route., model: {provider: anthropic, name: claude-sonnet-4-5, max_tokens: 4096}}\n"),
    "prompt of the model": (NEW, "spec: {llm: {provider: anthropic, model: m, systemPrompt: You review.}}\n"),
    "tier of a model": (NEW, "spec: {description: D, model: {tier: capable}, tools: {allow: [read], deny: [write]}}\n"),
    "no model": (NEW, "spec: {role: R, llm: {provider: none}}\n"),
    "unset variables": (OLD, "spec: {role: R, llm: {provider: '${P_OF_NOBODY}', model: '${M_OF_NOBODY}', temperature: '${T:-0.2}', maxTokens: '${N:-40}'}}\n"),
    "fixed backoff": (NEW, "spec: {role: R, llm: {provider: openai, model: m, retry_config: {max_attempts: 3, backoff_strategy: fixed}}}\n"),
    "braces": (NEW, "spec: {role: 'Scale {name} {{ x }} ${DUO} ${{ y }} 100%'}\n"),
    "parameters by name": (NEW, f"{TOOLS}{{type: command, name: list, parameters: {{title: {{type: string}}, format: {{type: string}}, type: {{type: string}}}}}}\n"),
    "required by mark": (NEW, f"{TOOLS}{{name: put, parameters: {{type: object, properties: {{a: {{type: string, required: true}}}}}}}}\n"),
    "list of parameters": (NEW, f"{TOOLS}{{name: users, parameters: [{{name: page, in: query, schema: {{type: integer}}}}]}}\n"),
    "source of a tool": (NEW, f"{TOOLS}{{name: check, source: {{type: mcp, uri: 'mcp://x/check'}}, input: {{type: object, properties: {{path: {{type: string}}}}}}}}\n"),
    "tools of a server": (NEW, f"{TOOLS}{{type: mcp, server: git, toolNames: [list, read]}}\n"),
    "client": (NEW, f"{TOOLS}{{name: list}}\n    - {{name: api.call}}\n{SERVER}"),
    "stateless MCP": (NEW, "spec: {role: R}\nprotocols: {mcp: {version: 1.0.0, specVersion: '2026-07-28', transport: stateless, "
                           "endpoint: 'https://x.example/mcp', auth: {type: oauth2.1, pkce: true}, capabilities: {tasks: false}}}\n"),
    "list of guardrails": (NEW, "spec: {role: R, safety: {guardrails: [no_force_push, {type: window}]}, lifecycle: {phases: [{name: infer}]}}\n"),
    "no tool calls": (OLD, f"{TOOLS}{{type: function, name: echo}}\n  safety: {{guardrails: {{max_tool_calls: 0}}}}\n"),
    "tokens of one answer": (OLD, "spec: {role: R, llm: {provider: openai, model: m, maxTokens: 4000}, constraints: {cost: {maxTokensPerRequest: 4000}}}\n"),
    "durations": (NEW, "spec: {role: R, constraints: {performance: {timeoutSeconds: 30s}}, lifecycle: {turn_timeout: '${T:-60s}'}}\n"),
    "all calls approved": (OLD, f"{TOOLS}{{type: function, name: echo}}\n  autonomy: {{approval_required: true, allowed_actions: [echo, fly]}}\n"),
}  # fmt: skip


def load(folder: Path, construct: tuple[str, str], **permissions: Any) -> Any:
    version, text = construct
    (folder / "agent.yaml").write_text(f"apiVersion: {version}\nkind: Agent\nmetadata:\n  name: bot\n{text}")
    return load_manifest(folder / "agent.yaml", Bindings(model=ScriptedModel(["done"]), **permissions))[0]


@pytest.mark.parametrize("name", CONSTRUCTS)
async def test_agent_with_a_construct_of_published_manifests_runs(rig: Rig, tmp_path: Path, name: str) -> None:
    result = await rig.run(load(tmp_path, CONSTRUCTS[name], external=True), {"input": "Begin"})
    assert (result.outcome, result.state) == ("success", {"input": "Begin", "output": "done"})


@pytest.mark.proves("S12")
def test_server_of_which_the_application_has_every_tool_is_not_needed(tmp_path: Path) -> None:
    client = CONSTRUCTS["client"]
    both = {name: external_tool(name, "") for name in ("list", "api_call")}
    tools = load(tmp_path, client, tools=both).workflow.agents["bot"].tools
    assert {each.name: each.approval for each in tools} == {"list": False, "api_call": True}
    with pytest.raises(ManifestRejected) as caught:
        load(tmp_path, client, tools={"list": both["list"]})
    assert [each.binding for each in caught.value.problems if not each.is_warning][-1] == "ci"
    approved = client[1].replace("tools:\n", "autonomy: {approval_required: [ci]}\n  tools:\n", 1)
    tools = load(tmp_path, (NEW, approved), tools=both).workflow.agents["bot"].tools
    assert [each.approval for each in tools] == [True, True]


def test_malformed_parameters_of_a_bound_tool_have_no_effect(tmp_path: Path) -> None:
    bound = {"put": external_tool("put", "", {"type": "object", "properties": {"a": {"type": "string"}}})}
    assert load(tmp_path, CONSTRUCTS["required by mark"], tools=bound).workflow.agents["bot"].tools == (bound["put"],)
