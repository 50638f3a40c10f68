"""Both kernels keep the same budgets, in walks where nearly every call reserves, settles, is lost, or ends a turn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from tests.kernel.kit import TARGET, ending, run_item, stopping, turn_item
from tests.kernel.waits import activated, child, tool
from tests.simulator.compare import answers_of_both, stored

START = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = ("tokens", "micros", "model_calls", "tool_calls")
LEASE_SECONDS = 10.0


class Walk:
    """A family of turns that share budgets, and the dice."""

    def __init__(self, seed: int):
        self.dice = random.Random(seed)
        self.now = START
        self.owned: list[dict[str, Any]] = []
        self.children = 0

    def calls(self, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
        run = run_item("run_a", ["writer", "critic"], {"turn_0": "writer"}, budget=self._amounts(60), max_attempts=9)
        yield "start_runs", ([run],)
        for _ in range(count):
            if self.owned and self.dice.random() < 0.85:
                yield getattr(self, self.dice.choices(["_begin", "_record", "_suspend", "_end"], [9, 9, 2, 1])[0])()
                continue
            if self.dice.random() < 0.4:
                self.now += timedelta(seconds=LEASE_SECONDS)
                yield "sweep_leases", (None,)
            yield "claim", ([{"target": TARGET}], "worker", 3, LEASE_SECONDS)

    def apply(self, function: str, answer: Any) -> None:
        if function == "claim":
            ids = {row["turn_id"] for row in answer}
            self.owned = [*(turn for turn in self.owned if turn["turn_id"] not in ids), *answer]
        elif isinstance(answer, list):
            gone = {
                row.get("turn_id")
                for row in answer
                if row["outcome"] in ("stale", "suspended", "stopped", "already_done")
            }
            self.owned = [turn for turn in self.owned if turn["turn_id"] not in gone]

    def _begin(self) -> tuple[str, tuple[Any, ...]]:
        return "begin_call", ([self._called() | {"tool": "x", "effect": self.dice.choice(["pure", "once"]),
                                                 "reserve": self._amounts(25)} for _ in range(self.dice.choice([1, 1, 3]))],)  # fmt: skip

    def _record(self) -> tuple[str, tuple[Any, ...]]:
        status = self.dice.choice(["success", "success", "canceled"])
        return "record_call", ([self._called() | {"status": status, "result": 1, "error": {"code": "E"}, "used": self._amounts(40)}
                                for _ in range(self.dice.choice([1, 1, 2]))],)  # fmt: skip

    def _suspend(self) -> tuple[str, tuple[Any, ...]]:
        calls = []
        for n in range(self.dice.choice([1, 2])):
            self.children += 1
            name = f"turn_{self.children}"
            calls.append(
                child(f"d{self.children}", "critic", name, n, instance=name, budget=self._amounts(50), max_attempts=9)
            )
        signals = activated(*["critic"] * len(calls))
        calls += [tool(f"x{self.dice.randrange(20)}", 5.0) for _ in range(self.dice.choice([0, 0, 1]))]
        return "suspend", ([turn_item(self._turn(), *signals, calls=calls)],)

    def _end(self) -> tuple[str, tuple[Any, ...]]:
        turn = self._turn()
        if turn["turn_id"] == "turn_0" or self.dice.random() < 0.5:  # its end would have to end the run
            return "stop", ([stopping(turn["turn_id"])],)
        return "finish", ([ending(turn)],)

    def _turn(self) -> dict[str, Any]:
        return self.dice.choice(self.owned)

    def _called(self) -> dict[str, Any]:
        return turn_item(self._turn(), call_id=f"c{self.dice.randrange(5)}")

    def _amounts(self, size: int) -> dict[str, int] | None:
        if self.dice.random() < 0.2:
            return None
        return {kind: self.dice.randrange(size) for kind in self.dice.sample(KINDS, self.dice.choice([1, 2, 4]))}


@pytest.mark.more
@pytest.mark.parametrize("first", [0, 20])
def test_both_kernels_count_budgets_alike_and_the_doctor_agrees(
    in_memory: InMemoryKernel, real: PostgresBackend, first: int
) -> None:
    seen = set[str]()
    for seed in range(first, first + 20):
        walk = Walk(seed)
        for function, _, answer in answers_of_both(walk, in_memory, real, 80, seed):
            seen |= {row.get("code", row["outcome"]) for row in answer if function == "begin_call"}
            seen |= {f"suspend {row.get('code')}" for row in answer if function == "suspend"}
        seen |= {
            kind for row in stored(in_memory, "p")["budgets"] for kind in ("used", "reserved", "overspent") if row[kind]
        }
    assert seen >= {
        "fresh",
        "again",
        "in_doubt",
        "done",
        "BUDGET_EXCEEDED",
        "used",
        "reserved",
        "overspent",
        "suspend BUDGET_EXCEEDED",
    }
