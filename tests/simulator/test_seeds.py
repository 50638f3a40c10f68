from __future__ import annotations

from collections import Counter

import pytest

from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulator.coverage import SOMETIMES_MAINTAINED, unreached
from heliograph.testing.simulator.simulate import Case, simulate
from tests.simulator.kept import Kept, read_kept

# Together they reach everything; the later ones are those of the first 400 in which rare answers occur. If a change moves such an
# answer to another seed, add that one: `helio sim run --seeds 400` reaches everything too.
REACH = (*range(80), 93, 205, 210, 291, 345)
POSTGRES = range(1000, 1015)


# The simulator detects the removal of each of these rules: test_mutants.py.
@pytest.mark.proves(
    "K1", "K2", "K4", "K5", "K6", "K7", "K8", "K10", "K11", "K12", "K14", "K15", "K16", "K18", "K19", "K22"
)
@pytest.mark.proves("K24", "K25", "K26", "K27", "L0-01", "L0-02", "L0-03", "L0-06", "L0-07", "L0-34", "L0-64", "L0-84")
@pytest.mark.proves("L0-110", "L0-111", "L0-112", "G-61", "G-62", "G-68", "G-74")
@pytest.mark.more
@pytest.mark.timeout(600)  # 400 seeds
def test_seeds_keep_every_rule_and_reach_every_move_answer_and_fault(in_memory: InMemoryKernel) -> None:
    reached: Counter[str] = Counter()
    for seed in REACH:
        result = simulate(Case(seed), in_memory)
        assert result.violations == [], result.line()
        reached += result.counters
    assert unreached(reached) == []


@pytest.mark.proves("L0-01", "L0-02", "L0-03", "L0-06", "L0-07", "L0-110", "L0-111")
@pytest.mark.more
def test_seeds_on_postgres_keep_every_rule_and_reach_every_answer_of_prune_and_boxes(real: PostgresBackend) -> None:
    """The database rejects every other move of a head: heliograph.testing.kernel.transition_guard."""
    reached: Counter[str] = Counter()
    for seed in POSTGRES:
        result = simulate(Case(seed, maintenance=True), real)
        assert result.violations == [], result.line()
        reached += result.counters
    assert sorted(SOMETIMES_MAINTAINED - reached.keys()) == []


@pytest.mark.more
@pytest.mark.parametrize("kept", [kept for kept in read_kept() if not kept.case.maintenance], ids=str)
def test_every_kept_case_holds(in_memory: InMemoryKernel, kept: Kept) -> None:
    result = simulate(kept.repaired(), in_memory)
    assert result.violations == [], result.line()


@pytest.mark.more
@pytest.mark.parametrize("kept", [kept for kept in read_kept() if kept.case.maintenance], ids=str)
def test_every_kept_case_with_maintenance_holds(real: PostgresBackend, kept: Kept) -> None:
    result = simulate(kept.repaired(), real)
    assert result.violations == [], result.line()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_thousand_seeds_keep_every_rule(in_memory: InMemoryKernel) -> None:
    failed = [result.line() for seed in range(2000, 4000) if (result := simulate(Case(seed), in_memory)).violations]
    assert failed == []
