"""Diagrams of causes: texts of the log cannot leave their quotes."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.cli.causal_graph import draw_graph

HOSTILE = 'a"] --> x; "b\\" <script>&#34;\n[c]'


def graph() -> dict[str, Any]:
    nodes = [
        {"id": "sig_a_1", "name": "agent:activated", "run_id": "a", "seq": 1, "source": {"agent": "writer"}},
        {"id": "sig_b_2", "name": HOSTILE, "run_id": HOSTILE, "seq": 2, "source": {"parent": "sig_a_1"}},
    ]
    return {"nodes": nodes, "edges": [{"from": "sig_a_1", "to": "sig_b_2", "kind": "message"}]}


def test_message_between_runs_is_dashed_and_each_run_has_its_box() -> None:
    lines = list(draw_graph(graph(), "mermaid"))
    assert lines[:3] == ["flowchart TD", '  subgraph run1["a"]', '  n1["agent:activated<br/>writer<br/>1"]']
    assert lines[-1] == "  n1 -. message .-> n2"
    dot = list(draw_graph(graph(), "dot"))
    assert dot[:4] == [
        "digraph causes {",
        "  node [shape=box];",
        '  subgraph cluster_1 { label="a";',
        '  n1 [label="agent:activated\\nwriter\\n1"];',
    ]
    assert dot[-2:] == ['  n1 -> n2 [style=dashed, label="message"];', "}"]


@pytest.mark.parametrize("language", ["mermaid", "dot"])
def test_hostile_names_end_no_label(language: str) -> None:
    [label] = [line for line in draw_graph(graph(), language) if line.startswith("  n2")]
    assert label.count('"') == 2
    assert not set("#&") & set(label)
    inner = label.split('"')[1].replace("<br/>", "").replace("\\n", "")
    assert not set('<>[]\\\n"') & set(inner)
