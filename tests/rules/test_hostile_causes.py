"""Causes of a hostile log are printed without its control characters, and damaged parts of it are left out."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.cli.causal_graph import draw_graph
from heliograph.cli.causes import chain_lines
from heliograph.reactive.why_not import explain
from heliograph.signals.model import from_wire
from heliograph.signals.trace import draw_tree

HOSTILE = "\x1b]0;x\x07\n\x9b31m\u202e"  # what jsonb accepts: no NUL, and no lone surrogate
READS = [
    {"key": HOSTILE, "value": HOSTILE},
    {"key": HOSTILE, "bytes": HOSTILE},
    {"key": HOSTILE},
    {"value": 1},
    7,
    None,
]


def wire(seq: int, name: str = "a:b", **more: Any) -> dict[str, Any]:
    return {"id": f"sig_r_{seq}", "name": name, "payload": {}, "timestamp": "2026-01-01T00:00:00.000000Z", "run_id": "r", "seq": seq,
            "turn_id": None, **more}  # fmt: skip


def guarded(guard: Any) -> dict[str, Any]:
    return wire(2, "agent:activated", payload={"agent": "a", "guard": guard})


LINKS = [
    wire(2, HOSTILE), wire(2, source={"agent": HOSTILE, "parent": "sig_r_1"}), wire(2, payload={"text": "\x1b[2J"}),
    wire(2, "agent:activated", payload={"agent": HOSTILE}), wire(2, "agent:skipped", payload={"agent": "a", "reason": HOSTILE}),
    wire(2, turn={"turn_id": HOSTILE, "agent": HOSTILE, "parent_turn_id": HOSTILE}), wire(2, run_id=HOSTILE, id=f"sig_{HOSTILE}_2"),
    guarded({"verdict": HOSTILE, "reads": READS}), guarded({"verdict": [1], "reads": 7}), guarded({"verdict": True, "reads": [7]}), guarded([]),
    wire(2, "agent:completed", changes=[{"id": "x", "key": HOSTILE, "value": HOSTILE}, {"id": "x", "key": HOSTILE, "value_bytes": 5}]),
    wire(2, "agent:activated", joined=[{"pattern": HOSTILE, "id": HOSTILE}, {"pattern": "p", "id": "x", "signal": wire(1, HOSTILE)}, {}]),
    wire(2, "agent:activated", payload=["agent"], joined=[]),
]  # fmt: skip


@pytest.mark.parametrize("link", LINKS, ids=range(len(LINKS)))
def test_no_control_character_of_a_log_is_printed(link: dict[str, Any]) -> None:
    root = wire(1, "workflow:start")
    graph = {"nodes": [root, link], "edges": [{"from": root["id"], "to": link["id"], "kind": HOSTILE}]}
    lines = [
        *chain_lines([link, root]),
        *chain_lines([wire(3), link]),
        *draw_graph(graph, "mermaid"),
        *list(draw_graph(graph, "dot"))[1:],
    ]
    lines += draw_tree([from_wire(root), from_wire(link)])
    assert [line for line in lines if not line.isprintable()] == []


@pytest.mark.parametrize("guard", [None, 7, [], {"verdict": False, "reads": READS}, {"verdict": {}, "reads": {}}])
@pytest.mark.parametrize("code", [None, "MAX_ACTIVATIONS"])
def test_findings_of_a_hostile_log_are_printable(guard: Any, code: str | None) -> None:
    skip = {"id": HOSTILE, "cause": HOSTILE, "name": HOSTILE, "reason": HOSTILE, "guard": guard}
    facts = {
        "run_id": "r", "agent": HOSTILE, "status": "terminating", "is_agent": True, "pending_reactions": 0, "stopped_by": HOSTILE, "code": code,
        "joins": [], "activations": 1, "skips": {"count": 1, "last": [skip]}, "names": [{"name": HOSTILE, "count": 1, "last": "sig_r_1"}],
        "terminating": HOSTILE,
    }  # fmt: skip
    findings = explain(facts, None)
    assert len(findings) == 3
    assert all(each["problem"].isprintable() and each["next_step"].isprintable() for each in findings)
