"""A simulator that finds no broken rule has shown nothing when it finds no failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.database import TestServer
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.mutants.catalog import MUTANTS, hunt
from heliograph.testing.simulator.simulate import Result, simulate
from tests.simulator.kept import read_kept

SEEDS = range(300)
SEEN = {kept.mutant: kept.case for kept in read_kept() if kept.mutant is not None}


@pytest.fixture(scope="session")
def url(postgres: TestServer) -> Iterator[str]:
    """A database for one mutant after another: each replaces the kernel's functions."""
    made = asyncio.run(postgres.create())
    yield made
    asyncio.run(postgres.drop(made))


def test_a_seed_is_kept_for_every_mutant() -> None:
    assert SEEN.keys() == MUTANTS.keys()


@pytest.mark.more
@pytest.mark.parametrize("name", MUTANTS)
def test_rule_removed_from_either_kernel_is_noticed_at_the_same_call(url: str, name: str) -> None:
    mutant = MUTANTS[name]
    kept = simulate(SEEN[name], mutant.in_memory())
    # where the runtime has changed since it was kept: keep.py finds a shorter way again
    expected = kept if kept.violations else hunt(mutant, mutant.in_memory(), SEEDS)
    assert expected is not None, f"{name} ({mutant.rules}) went unseen in {len(SEEDS)} seeds"
    if not mutant.has_sql:
        return
    backend = PostgresBackend(url, mutant.kernel())
    try:
        result = simulate(expected.case, backend)
    finally:
        backend.close()
    assert (result.kind, result.trace_hash) == (expected.kind, expected.trace_hash)


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_taken_out_is_noticed_within_three_hundred_seeds(name: str) -> None:
    mutant = MUTANTS[name]
    found: Result | None = hunt(mutant, mutant.in_memory(), SEEDS)
    assert found is not None, f"{mutant.name} ({mutant.rules}) went unseen in {len(SEEDS)} seeds"
