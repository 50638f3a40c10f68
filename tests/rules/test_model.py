"""The explicit-state model: small configurations hold under faults, and each rule switched off is missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from model.__main__ import check
from model.ablations import ABLATIONS, Ablation, AnyAblation, found
from model.breakers import BreakerModel
from model.buckets import BucketModel
from model.cases import QUICK
from model.checker import FAULT, SYSTEM, TTL, WATCHDOG, Explorer, Transition, explore
from model.configs import Config
from model.locks import ROWS, TURNS, LockModel, Transaction, heads_then_runs
from model.properties import KernelModel
from model.state import State, key
from tests.grids import every

LARGE = {"C3q", "R3q", "D1q", "D5q", "D7q", "P3q", "R8q"}  # seconds each


def _by_duration() -> list[Any]:
    return [pytest.param(cfg, marks=pytest.mark.more if cfg.name in LARGE else ()) for cfg in QUICK]


BREAKING = [ablation for ablation in ABLATIONS if ablation.expect]
NAMED = {f"{n} {each.rule}: {each.expect}": each for n, each in enumerate(BREAKING, 1)}


@pytest.mark.proves("L0-01", "L0-06", "L0-07", "L0-08", "L0-80", "L0-87", "L0-111", "L0-112")
@pytest.mark.parametrize("cfg", _by_duration(), ids=lambda cfg: cfg.name)
def test_all_properties_hold_in_every_reachable_state(cfg: Config) -> None:
    result = explore(KernelModel(cfg))
    assert result.holds, (result.broken, result.stuck)


class Unmerged(KernelModel):
    """Every state by itself, however high its epochs are."""

    def key(self, state: State) -> State:
        return state


@pytest.mark.more
@pytest.mark.parametrize("cfg", [cfg for cfg in QUICK if cfg.name in {"C4q", "S2q", "R1q"}], ids=lambda cfg: cfg.name)
def test_states_that_differ_in_the_height_of_epochs_alone_behave_alike(cfg: Config) -> None:
    merged, single = Explorer(KernelModel(cfg)), Explorer(Unmerged(cfg))
    for explorer in (merged, single):
        explorer.walk(states_max=100_000, stop_at=None)
        assert explorer.result.is_complete
        assert not explorer.result.broken
    assert len(single.states) > len(merged.states)
    assert {key(cfg, state) for state in single.states} == {key(cfg, state) for state in merged.states}


ANSWERS = (
    *("finish(", "-> conflict", "-> stale", "-> nothing", "react -> conflict", "renew(t0) -> stale"),
    *("-> suspended", "-> running", "epoch 2) -> a stop waits", "-> rejected, the run is being stopped"),
    *("-> fresh", "-> in doubt", "record_call(", "-> early", "-> duplicate", "timeout("),
    *("defer(t0) -> dispatched", "-> exhausted", "release(t0) -> dispatched", "release(t0) -> a stop waits"),
    *("-> busy", "ui_action(t1) -> dispatched", "-> rejected, the run is over"),
    *("-> its owner has a stop order", "the grace of", "-> a stop waits: canceled", "are used up", "-> already done"),
    *("report row of t1 -> t0, k0", "nobody waits", "stop row of t1 -> canceled", "THE RUN ENDS"),
    *("person: answers", "a turn below it waits for people -> kept", "has expired", "no worker claimed t0 in time"),
    *(
        "claim(a0) -> error",
        "fail_unclaimable(a0) -> t0",
        "fail_unclaimable(a0) -> nothing",
        "stop row of t0 -> canceled",
    ),
)
ANSWERING = {"C4q", "E1q", "I1q", "S1q", "S2q", "S3q", "U1q", "R3q", "R8q", "P1q", "P3q", "T1q", "T2q", "R10q"}


@pytest.mark.more
def test_small_configurations_reach_every_answer() -> None:
    missing = set(ANSWERS)
    for cfg in QUICK:
        if cfg.name in ANSWERING:
            explorer = Explorer(KernelModel(cfg))
            explorer.walk(states_max=100_000, stop_at=None)
            labels = {label for state in explorer.states for label, *_ in explorer.model.successors(state)}
            missing -= {answer for answer in missing for label in labels if answer in label}
    assert not missing


@pytest.mark.parametrize("transactions", [TURNS, ROWS], ids=["turns", "rows"])
def test_heads_then_runs_then_rows_never_deadlock(transactions: tuple[Transaction, ...]) -> None:
    assert explore(LockModel(heads_then_runs, transactions)).holds


@pytest.mark.proves("CB-04", "G-27")
def test_breaker_admits_no_trial_too_many_and_always_leaves_the_half_open_state() -> None:
    assert explore(BreakerModel()).holds


@pytest.mark.more
@pytest.mark.proves("RTE-08", "G-24")
def test_bucket_starts_no_call_too_many_and_each_effect_has_a_token() -> None:
    assert explore(BucketModel()).holds


@pytest.mark.parametrize("ablation", every(5, NAMED))
def test_model_detects_each_rule_that_is_switched_off(ablation: AnyAblation) -> None:
    result = ablation.run()
    assert found(ablation, result) is not None, f"broken: {sorted(result.broken)}, stuck: {sorted(result.stuck)}"


@pytest.mark.more
def test_failed_property_fails_the_command_and_prints_its_trace(capsys: pytest.CaptureFixture[str]) -> None:
    ablation = next(a for a in BREAKING if isinstance(a, Ablation) and a.rule == "K8+K10b")
    assert not check([ablation.ablated()])
    assert "1. client: enqueue(t0)" in capsys.readouterr().out


@dataclass(frozen=True)
class Graph:
    """A model written down as edges, to test the explorer itself: 0 is the start, 9 is good, 5 breaks `five`."""

    edges: tuple[tuple[int, str, int], ...]

    def initial(self) -> int:
        return 0

    def key(self, state: int) -> int:
        return state

    def successors(self, state: int) -> Iterator[Transition[int]]:
        return ((f"{state}->{to}", kind, to, ()) for start, kind, to in self.edges if start == state)

    def broken(self, state: int) -> tuple[str, ...]:
        return ("five",) if state == 5 else ()

    def is_quiet(self, state: int) -> bool:
        return state == 9

    def is_abandoned(self, state: int) -> bool:
        return state == 1

    is_settled = is_quiet


def test_explorer_finds_the_shortest_trace() -> None:
    long_way, short_way = ((0, SYSTEM, 1), (1, SYSTEM, 2), (2, SYSTEM, 5)), ((0, FAULT, 3), (3, SYSTEM, 5))
    assert explore(Graph(long_way + short_way)).broken == {"five": ["0->3", "3->5"]}


def test_progress_never_requires_a_fault() -> None:
    result = explore(Graph(((0, SYSTEM, 2), (2, FAULT, 9))))
    assert (result.stuck["L1"].states, result.stuck["L1"].trace) == (2, [])


def test_expiry_does_not_count_as_progress_but_settles_abandoned_work() -> None:
    result = explore(Graph(((0, SYSTEM, 1), (0, SYSTEM, 9), (1, TTL, 9))))
    assert result.stuck.keys() == {"L1"}
    assert result.stuck["L1"].trace == ["0->1"]


def test_turn_that_only_a_worker_can_end_is_stuck_without_workers() -> None:
    assert explore(Graph(((0, SYSTEM, 1), (1, SYSTEM, 9)))).stuck.keys() == {"L2"}
    assert explore(Graph(((0, SYSTEM, 1), (1, WATCHDOG, 9)))).holds


def test_search_that_was_cut_short_proves_nothing() -> None:
    result = explore(Graph(((0, SYSTEM, 1), (1, SYSTEM, 9))), states_max=2)
    assert not result.is_complete
    assert not result.holds
