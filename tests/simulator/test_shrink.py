from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.mutants.catalog import MUTANTS, hunt
from heliograph.testing.scenarios.building_blocks import Size
from heliograph.testing.simulator.cli import read_case
from heliograph.testing.simulator.shrink import Shrinker, minimize
from heliograph.testing.simulator.simulate import Case, simulate
from tests.grids import mostly_more


@pytest.mark.more
@pytest.mark.parametrize("name", mostly_more(["no_lease_sweep", "no_pending_reactions"], {0}))
def test_failing_seed_shrinks_to_a_small_world_with_few_faults_that_fails_alike(name: str) -> None:
    mutant = MUTANTS[name]
    found = hunt(mutant, mutant.in_memory(), range(300))
    assert found is not None
    shrinker = Shrinker(lambda case: simulate(case, mutant.in_memory()))
    small = shrinker.shrink(found.case)
    assert small.kind == found.kind
    assert len(small.faults) <= 8
    assert len(small.faults) < len(found.faults)
    assert len(small.deviations) < len(found.deviations)
    assert small.case.size != Size()
    assert simulate(small.case, mutant.in_memory()).trace_hash == small.trace_hash


def test_shrunk_case_reads_back_as_it_was_written() -> None:
    case = Case(7, faults=frozenset({"crash@w0/finish/after#3"}), deviations=frozenset({5, 2}))
    assert read_case(msgspec.json.encode(case).decode()) == case


def test_seed_that_does_not_fail_is_not_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        Shrinker(lambda case: simulate(case, InMemoryKernel())).shrink(Case(0))


def test_minimizing_removes_exactly_the_irrelevant_items() -> None:
    def fails(kept: Sequence[int]) -> bool:
        return {3, 17} <= set(kept)

    assert minimize(list(range(40)), fails) == [3, 17]


def test_minimizing_removes_every_item_if_none_is_relevant() -> None:
    assert minimize([1, 2, 3], lambda kept: True) == []
