"""Draw causes and effects as a diagram: for Mermaid, or for Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from heliograph.error_text import safe_repr

_NAME_MAX = 80
_SAFE = str.maketrans('"\\<>#&[]', "'/()_+()")


def draw_graph(graph: Mapping[str, Any], language: str) -> Iterator[str]:
    """Yield the lines of a diagram. graph: {nodes, edges}, as `CausalReader.graph` returns it. language: `mermaid` or `dot`.

    Nodes of one run are in one box if there are several runs. An activation and a join have thick arrows, a message from another run has a dashed one.
    """
    numbers = {node["id"]: f"n{number}" for number, node in enumerate(graph["nodes"], 1)}
    runs = list(dict.fromkeys(node["run_id"] for node in graph["nodes"]))
    begin, node_of, edge_of, end = _LANGUAGES[language]
    yield from begin
    for number, run_id in enumerate(runs, 1):
        if len(runs) > 1:
            yield (
                f'  subgraph run{number}["{_escaped(run_id)}"]'
                if language == "mermaid"
                else f'  subgraph cluster_{number} {{ label="{_escaped(run_id)}";'
            )
        for node in graph["nodes"]:
            if node["run_id"] == run_id:
                yield f"  {node_of(numbers[node['id']], node)}"
        if len(runs) > 1:
            yield "  end" if language == "mermaid" else "  }"
    for edge in graph["edges"]:
        yield f"  {edge_of(numbers[edge['from']], numbers[edge['to']], edge['kind'])}"
    if end:
        yield end


def _escaped(text: str) -> str:
    """A text of the log in quotes of both languages: without quotes, backslashes, brackets of tags and control characters."""
    return safe_repr(text, _NAME_MAX).translate(_SAFE)


def _label(node: Mapping[str, Any], gap: str) -> str:
    agent = node.get("source", {}).get("agent")
    return gap.join(_escaped(part) for part in (node["name"], agent, str(node["seq"])) if part)


def _mermaid_node(number: str, node: Mapping[str, Any]) -> str:
    return f'{number}["{_label(node, "<br/>")}"]'


def _mermaid_edge(cause: str, effect: str, kind: str) -> str:
    return f"{cause} {({'activation': '==>', 'message': '-. message .->', 'join': '== join ==>'}).get(kind, '-->')} {effect}"


def _dot_node(number: str, node: Mapping[str, Any]) -> str:
    label = _label(node, r"\n")
    return f'{number} [label="{label}"];'


def _dot_edge(cause: str, effect: str, kind: str) -> str:
    style = {
        "activation": " [penwidth=2]",
        "message": ' [style=dashed, label="message"]',
        "join": ' [penwidth=2, label="join"]',
    }.get(kind, "")
    return f"{cause} -> {effect}{style};"


_LANGUAGES = {
    "mermaid": (("flowchart TD",), _mermaid_node, _mermaid_edge, ""),
    "dot": (("digraph causes {", "  node [shape=box];"), _dot_node, _dot_edge, "}"),
}
