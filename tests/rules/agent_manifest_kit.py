"""Read manifests of agents from texts."""

from __future__ import annotations

import textwrap

from heliograph.manifest.agent_manifest import AgentManifest, read_agent
from heliograph.manifest.document import Document
from heliograph.manifest.ossa import validate_ossa
from heliograph.manifest.problems import ManifestProblem
from heliograph.manifest.reader import parse_manifest

HEAD = "apiVersion: ossa/v0.4.6\nkind: Agent\nmetadata:\n  name: reader\n"
HEAD_5 = HEAD.replace("v0.4.6", "v0.5")


def parsed(text: str) -> Document:
    return parse_manifest(textwrap.dedent(text).encode(), "agent.yaml")


def problems(text: str) -> list[ManifestProblem]:
    document = parsed(text)
    return [each for each in (*document.problems, *validate_ossa(document)) if not each.is_warning]


def agent(spec: str = "", head: str = HEAD, more: str = "", environment: dict[str, str] | None = None) -> AgentManifest:
    """The agent of a manifest with these lines below `spec`, and these after it."""
    body = textwrap.indent(textwrap.dedent(spec).strip() or "role: Read.", "  ")
    document = parsed(f"{head}spec:\n{body}\n{textwrap.dedent(more)}")
    assert [*map(str, validate_ossa(document))] == []
    return read_agent(document, environment or {})


def warned(manifest: AgentManifest) -> list[str]:
    return [each.pointer for each in manifest.warnings]
