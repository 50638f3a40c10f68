"""The simulator detects every mutant, so a run without failures means something."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.testing.database import TestServer
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.mutants.catalog import MUTANTS, hunt
from heliograph.testing.mutants.install import installed
from heliograph.testing.simulator.simulate import Result, simulate
from tests.simulator.kept import read_kept

SEEDS = range(300)
SEEN = {kept.mutant: kept.case for kept in read_kept() if kept.mutant is not None}


@pytest.fixture(scope="module")
def unguarded(postgres: TestServer) -> Iterator[PostgresBackend]:
    """A backend for one mutant after another: each replaces the functions that it changes, and restores them."""
    url = asyncio.run(postgres.create())
    backend = PostgresBackend(url, is_guarded=False)
    yield backend
    backend.close()
    asyncio.run(postgres.drop(url))


def test_seeds_txt_has_a_seed_for_every_mutant() -> None:
    assert SEEN.keys() == MUTANTS.keys()


@pytest.mark.more
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.has_in_memory])
def test_kept_seed_detects_the_mutant_at_the_same_call_in_both_kernels(unguarded: PostgresBackend, name: str) -> None:
    mutant = MUTANTS[name]
    expected = simulate(SEEN[name], mutant.in_memory())
    assert expected.violations, f"{name} ({mutant.rules}): the seed is stale; run python -m tests.simulator.keep"
    if mutant.has_sql:
        with installed(mutant, unguarded) as backend:
            result = simulate(SEEN[name], backend)
        assert (result.kind, result.trace_hash) == (expected.kind, expected.trace_hash)


@pytest.mark.more
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if not mutant.has_in_memory])
def test_kept_seed_detects_the_mutant_of_functions_that_only_postgres_has(
    unguarded: PostgresBackend, name: str
) -> None:
    mutant = MUTANTS[name]
    with installed(mutant, unguarded) as backend:
        result = simulate(SEEN[name], backend)
    assert result.violations, f"{name} ({mutant.rules}): the seed is stale; run python -m tests.simulator.keep"


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, mutant in MUTANTS.items() if mutant.has_in_memory])
def test_mutant_is_detected_within_three_hundred_seeds(name: str) -> None:
    mutant = MUTANTS[name]
    found: Result | None = hunt(mutant, mutant.in_memory(), SEEDS)
    assert found is not None, f"{mutant.name} ({mutant.rules}) is not detected in {len(SEEDS)} seeds"
