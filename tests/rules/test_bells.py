from typing import Any

from heliograph.ledger.bells import Bells, read_bells


def test_answer_rings_the_bells_of_all_its_rows_each_once() -> None:
    rows: list[dict[str, Any]] = [
        {"turn_id": "turn_1", "outcome": "ok", "targets": ["b", "a"], "woken": ["run_1/writer"]},
        {"turn_id": "turn_2", "outcome": "ok", "targets": ["a"]},
        {"turn_id": "turn_3", "outcome": "recorded"},
    ]
    assert read_bells(rows) == Bells(("a", "b"), ("run_1/writer",))


def test_answer_without_woken_agents_rings_no_bell() -> None:
    assert read_bells([{"turn_id": "turn_1", "outcome": "stale", "targets": []}]) == Bells()
