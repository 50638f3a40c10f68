"""Both kernels keep the same circuit breakers, in walks where calls succeed, fail, are lost, or end with their turns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from tests.kernel.kit import TARGET, ending, run_item, stopping, turn_item
from tests.kernel.waits import tool
from tests.simulator.compare import answers_of_both, stored

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE_SECONDS = 10.0
RESULTS = [
    ("success", None), ("success", None), ("failed", {"code": "E", "recoverable": True}), ("timeout", {"code": "E"}),
    ("failed", {"code": "E"}), ("failed", {"code": "E", "recoverable": False}), ("canceled", {"code": "E"}),
]  # fmt: skip


def intents_of(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Items of begin_call, as the intents of a result."""
    return [{key: item[key] for key in item.keys() - {"agent_id", "turn_id", "epoch"}} for item in items]


class Walk:
    """Turns of several runs that call two targets, and the dice."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.now = START
        self.owned: list[dict[str, Any]] = []
        self.suspended: set[tuple[str, str]] = set()
        self.turns = 0

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        for _ in range(count):
            self.now += timedelta(seconds=self.dice.choice([0, 0, 0, 0.5, 2]))
            if self.owned and self.dice.random() < 0.8:
                way = self.dice.choices(["_begin", "_record", "_suspend", "_end"], [9, 9, 3, 1])[0]
                yield getattr(self, way)()
            elif self.suspended and self.dice.random() < 0.6:
                yield self._report()
            elif self.dice.random() < 0.5:
                self.turns += 1
                turn_id = f"turn_{self.turns}"
                run = run_item(f"run_{self.turns}", ["writer"], {turn_id: "writer"}, max_attempts=3,
                               budget=self.dice.choice([None, {"tokens": 5}]))  # fmt: skip
                yield "start_runs", ([run],)
            elif self.dice.random() < 0.3:
                self.now += timedelta(seconds=LEASE_SECONDS)
                yield self.dice.choice([("sweep_leases", (None,)), ("sweep_waits", (None,))])
            else:
                yield "claim", ([{"target": TARGET}], "worker", 3, LEASE_SECONDS)

    def apply(self, function: str, answer: Any) -> None:
        if function == "claim":
            ids = {row["turn_id"] for row in answer}
            # the process of a lost owner may still run
            self.owned = [*(t for t in self.owned if t["turn_id"] not in ids or self.dice.random() < 0.3), *answer]
        elif isinstance(answer, list):
            gone = {row["turn_id"] for row in answer if row["outcome"] in ("stale", "suspended", "stopped", "ok")
                    and function != "record_call"}  # fmt: skip
            self.owned = [turn for turn in self.owned if turn["turn_id"] not in gone]

    def _begin(self) -> tuple[str, tuple[Any, ...]]:
        return "begin_call", ([
            turn_item(self.dice.choice(self.owned), call_id=f"c{self.dice.randrange(6)}", tool="x",
                   effect=self.dice.choice(["pure", "once"]), timeout_seconds=self.dice.choice([None, 1.0, 6.0]),
                   circuit_breaker=self._settings(), reserve=self.dice.choice([None, None, {"tokens": 1}]))
            for _ in range(self.dice.choice([1, 1, 4]))
        ],)  # fmt: skip

    def _record(self) -> tuple[str, tuple[Any, ...]]:
        items = []
        for _ in range(self.dice.choice([1, 1, 3])):
            status, error = self.dice.choice(RESULTS)
            items.append(turn_item(self.dice.choice(self.owned), call_id=f"c{self.dice.randrange(6)}", status=status,
                                result=1, error=error))  # fmt: skip
            if self.dice.random() < 0.3:
                items[-1]["intents"] = intents_of(self._begin()[1][0])
        return "record_call", (items,)

    def _suspend(self) -> tuple[str, tuple[Any, ...]]:
        turn = self.dice.choice(self.owned)
        calls = [
            tool(f"x{n}", self.dice.choice([None, 3.0, 8.0]), circuit_breaker=self._settings())
            for n in self.dice.sample(range(8), self.dice.choice([1, 2, 3]))
        ]
        self.suspended |= {(turn["turn_id"], call["call_id"]) for call in calls}
        return "suspend", ([turn_item(turn, calls=calls)],)

    def _report(self) -> tuple[str, tuple[Any, ...]]:
        turn_id, call_id = self.dice.choice(sorted(self.suspended))
        status, error = self.dice.choice([result for result in RESULTS if result[0] in ("success", "failed")])
        return "report", ([{"turn_id": turn_id, "call_id": call_id, "status": status, "result": 1, "error": error}],)

    def _end(self) -> tuple[str, tuple[Any, ...]]:
        turn = self.dice.choice(self.owned)
        if self.dice.random() < 0.5:
            return "stop", ([stopping(turn["turn_id"])],)
        return "finish", ([ending(turn, outcome="failed", ends="failed")],)

    def _settings(self) -> dict[str, Any] | None:
        if self.dice.random() < 0.1:
            return None
        needed = self.dice.choice([1, 2])
        return {"type": "tool_call", "target": self.dice.choice("ab"), "failure_threshold": self.dice.choice([1, 2, 3]),
                "success_threshold": needed, "half_open_max_calls": needed + self.dice.choice([0, 1]),
                "timeout_seconds": self.dice.choice([0.5, 3, 5])}  # fmt: skip


@pytest.mark.proves("CB-04", "G-27")
@pytest.mark.more
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 60), marks=pytest.mark.long)], ids=["few", "many"])
def test_both_kernels_move_breakers_alike_and_the_doctor_agrees(
    in_memory: InMemoryKernel, real: PostgresBackend, seeds: range
) -> None:
    seen = set[Any]()
    for seed in seeds:
        walk = Walk(seed)
        for function, _, answer in answers_of_both(walk, in_memory, real, 150, seed):
            if function in ("begin_call", "suspend"):
                seen |= {(function, row.get("code", row["outcome"]), row.get("circuit", {}).get("state"))
                         for row in answer}  # fmt: skip
            seen |= {row["state"] for row in stored(in_memory, "p")["circuit_breakers"]}
    assert seen >= {
        "closed", "open", "half_open", ("begin_call", "CIRCUIT_OPEN", "open"), ("begin_call", "again", None),
        ("begin_call", "CIRCUIT_OPEN", "half_open"), ("begin_call", "in_doubt", None),
        ("suspend", "CIRCUIT_OPEN", "open"),
    }  # fmt: skip
