"""The explicit-state model: small configurations hold under faults, and each rule switched off is missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from model.__main__ import check
from model.ablations import ABLATIONS, Ablation, LockAblation, found
from model.checker import FAULT, SYSTEM, TTL, WATCHDOG, Transition, explore
from model.configs import QUICK, Config
from model.locks import LockModel, heads_then_runs
from model.properties import KernelModel

BREAKING = [ablation for ablation in ABLATIONS if ablation.expect]


@pytest.mark.proves("L0-01", "L0-06", "L0-07", "L0-08", "L0-80", "L0-111")
@pytest.mark.parametrize("cfg", QUICK, ids=lambda cfg: cfg.name)
def test_all_properties_hold_in_every_reachable_state(cfg: Config) -> None:
    result = explore(KernelModel(cfg))
    assert result.holds, (result.broken, result.stuck)


def test_heads_then_runs_never_deadlocks() -> None:
    assert explore(LockModel(heads_then_runs)).holds


@pytest.mark.parametrize("ablation", BREAKING, ids=lambda a: f"{a.rule}: {a.expect}")
def test_a_rule_switched_off_is_missed(ablation: Ablation | LockAblation) -> None:
    result = ablation.run()
    assert found(ablation, result), f"broken: {sorted(result.broken)}, stuck: {sorted(result.stuck)}"


def test_a_failed_claim_fails_the_command_and_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    ablation = next(a for a in BREAKING if isinstance(a, Ablation) and a.rule == "K8+K10b")
    assert not check([ablation.ablated()])
    assert "1. client: enqueue(t0)" in capsys.readouterr().out


@dataclass(frozen=True)
class Graph:
    """A model written down as edges, to test the explorer itself: 0 is the start, 9 is good, 5 breaks `five`."""

    edges: tuple[tuple[int, str, int], ...]

    def initial(self) -> int:
        return 0

    def successors(self, state: int) -> Iterator[Transition[int]]:
        return ((f"{state}->{to}", kind, to, ()) for start, kind, to in self.edges if start == state)

    def broken(self, state: int) -> tuple[str, ...]:
        return ("five",) if state == 5 else ()

    def is_quiet(self, state: int) -> bool:
        return state == 9

    def is_abandoned(self, state: int) -> bool:
        return state == 1

    is_settled = is_quiet


def test_the_explorer_finds_the_shortest_trace() -> None:
    long_way, short_way = ((0, SYSTEM, 1), (1, SYSTEM, 2), (2, SYSTEM, 5)), ((0, FAULT, 3), (3, SYSTEM, 5))
    assert explore(Graph(long_way + short_way)).broken == {"five": ["0->3", "3->5"]}


def test_a_fault_is_never_needed_for_progress() -> None:
    result = explore(Graph(((0, SYSTEM, 2), (2, FAULT, 9))))
    assert (result.stuck["L1"].states, result.stuck["L1"].trace) == (2, [])


def test_expiry_does_not_count_as_progress_but_settles_what_is_abandoned() -> None:
    result = explore(Graph(((0, SYSTEM, 1), (0, SYSTEM, 9), (1, TTL, 9))))
    assert result.stuck.keys() == {"L1"}
    assert result.stuck["L1"].trace == ["0->1"]


def test_what_only_a_worker_could_end_is_stuck_when_all_workers_are_dead() -> None:
    assert explore(Graph(((0, SYSTEM, 1), (1, SYSTEM, 9)))).stuck.keys() == {"L2"}
    assert explore(Graph(((0, SYSTEM, 1), (1, WATCHDOG, 9)))).holds


def test_a_walk_that_was_cut_short_does_not_hold() -> None:
    result = explore(Graph(((0, SYSTEM, 1), (1, SYSTEM, 9))), states_max=2)
    assert not result.is_complete
    assert not result.holds
