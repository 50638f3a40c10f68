"""`helio export ossa FILE.py:app`: write an agent of an application as a manifest of the Open Standard Agents."""

from __future__ import annotations

import io
from argparse import Namespace
from typing import Any

from heliograph.cli.agent_manifests import prompt_of
from heliograph.cli.load_application import load_app
from heliograph.cli.output import block, json_line, reserved_stdout
from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import Tool
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, NotFound
from heliograph.manifest.ossa import validate_ossa
from heliograph.manifest.ossa_export import ExportedTool, manifest_of
from heliograph.manifest.problems import accepted
from heliograph.manifest.reader import parse_manifest


def ossa(options: Namespace) -> int:
    """Print the manifest of an agent. Raises InvalidInput (`not_exportable`), and NotFound for an agent that does not exist."""
    with reserved_stdout() as own:  # the application's file may print while it is loaded
        made = _manifest(options.app, options.agent)
        if options.json:
            json_line(None, made, own, is_input=True)
        else:
            block(_yaml(made), own)
    return 0


def _manifest(reference: str, name: str | None) -> dict[str, Any]:
    agents = load_app(reference).workflow.agents
    if name is None:
        prompts = [each for each in agents.values() if each.prompt is not None]
        if not prompts:
            raise InvalidInput(f"{safe_repr(reference)} has no agent with a prompt, and a manifest describes one; add one with "
                               "app.prompt_agent", code="required_field")  # fmt: skip
        if len(prompts) != 1:
            raise InvalidInput(f"{safe_repr(reference)} has {len(prompts)} agents with a prompt, and a manifest describes one of them",
                               code="required_field", path="--agent",
                               hint=f"name one: --agent {' | '.join(each.name for each in prompts)}")  # fmt: skip
        spec = prompts[0]
    elif name in agents:
        spec = agents[name]
    else:
        raise NotFound(
            f"{safe_repr(reference)} has no agent {safe_repr(name)}; it has {', '.join(agents) or 'none'}",
            code="unknown_agent",
        )
    made = manifest_of(spec, [_tool(spec, each) for each in spec.tools], prompt_of)
    document = parse_manifest(_yaml(made).encode(), "the exported manifest")
    accepted([*document.problems, *validate_ossa(document)])
    return made


def _tool(spec: AgentSpec, tool: Any) -> ExportedTool:
    if not isinstance(tool, Tool):
        label = str(getattr(tool, "label", type(tool).__name__))
        return ExportedTool(label, "", None, getattr(tool, "approval", False) is True)
    from heliograph.tools.bound_tool import BoundTool

    described = BoundTool(tool).spec
    if callable(tool.approval):
        raise InvalidInput(f"agent {spec.name} has no manifest, because the approval of tool {tool.name} is a function",
                           code="not_exportable", path=f"/agents/{spec.name}/tools")  # fmt: skip
    return ExportedTool(tool.name, described.description, described.parameters, tool.approval)


def _yaml(made: dict[str, Any]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: readable(each) for key, each in value.items()}
        if isinstance(value, list):
            return [readable(each) for each in value]
        if not isinstance(value, str) or ("\n" not in value and value.isprintable()):
            return value
        lines = value.split("\n")
        is_block = not value[0].isspace() and all(line.isprintable() and line == line.rstrip() for line in lines)
        return LiteralScalarString(value) if is_block else DoubleQuotedScalarString(value)

    writer, out = YAML(), io.StringIO()
    writer.width, writer.allow_unicode = 4096, True
    writer.indent(mapping=2, sequence=4, offset=2)
    writer.dump(readable(made), out)
    return out.getvalue()
