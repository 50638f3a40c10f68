from typing import Any

import pytest

from heliograph.ledger.hints import woken_by

GATE = {"agent_id": "run_1/writer", "turn_id": "turn_1", "epoch": 2}


@pytest.mark.proves("L0-105", "G-72")
@pytest.mark.parametrize(
    ("item", "agents"),
    [
        ({"run_id": "run_1", "reaction": {"activations": [{"agent": "a"}, {"agent": "b"}]}}, ["run_1/a", "run_1/b"]),
        ({"run_id": "run_1", "agent": "a", "turn_id": "turn_2"}, ["run_1/a"]),
        ({"run_id": "run_1", "agent": "a", "instance": "x"}, ["run_1/a/x"]),
        ({**GATE, "outcome": "success", "reaction": {"activations": [{"agent": "a"}]}}, ["run_1/a"]),
        ({**GATE, "outcome": "success", "reaction": None}, []),
        ({**GATE, "calls": [{"child": None}, {"child": {"agent": "a", "instance": "x"}}]}, ["run_1/a/x"]),
        ({**GATE, "delay_seconds": 0.0, "reason": "later"}, ["run_1/writer"]),
        (GATE, ["run_1/writer"]),
        ({"turn_id": "turn_1", "call_id": "c1", "result": 1}, []),
    ],
)
def test_hint_names_the_agents_that_an_item_gives_work(item: dict[str, Any], agents: list[str]) -> None:
    assert list(woken_by([item])) == agents
