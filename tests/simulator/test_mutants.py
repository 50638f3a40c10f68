from __future__ import annotations

import asyncio

import pytest

from heliograph.testing.backend import PostgresBackend
from heliograph.testing.database import TestServer
from heliograph.testing.mutants import MUTANTS, Mutant, hunt
from heliograph.testing.simulate import Result, simulate

SEEDS = range(300)


def found_in_the_twin(mutant: Mutant) -> Result:
    found = hunt(mutant, mutant.twin(), SEEDS)
    assert found is not None, f"{mutant.name} ({mutant.rules}) went unseen in {len(SEEDS)} seeds"
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_taken_out_is_noticed(name: str) -> None:
    found_in_the_twin(MUTANTS[name])


@pytest.mark.parametrize("name", [m.name for m in MUTANTS.values() if m.has_sql])
def test_the_same_rule_taken_out_of_the_sql_is_noticed_at_the_same_seed(postgres: TestServer, name: str) -> None:
    mutant = MUTANTS[name]
    expected = found_in_the_twin(mutant)
    url = asyncio.run(postgres.create())
    backend = PostgresBackend(url, mutant.kernel())
    try:
        result = simulate(expected.case, backend)
    finally:
        backend.close()
        asyncio.run(postgres.drop(url))
    assert (result.kind, result.trace_hash) == (expected.kind, expected.trace_hash)
