from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from heliograph.testing.kernel.backend import PostgresBackend, have_same_rows
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulator.commands import first_difference
from heliograph.testing.simulator.simulate import PROJECT, Case, simulate


@pytest.mark.more
@pytest.mark.parametrize("seeds", [range(5), range(5, 10), range(10, 15), range(15, 20)], ids=str)
def test_equal_seeds_give_equal_traces(in_memory: InMemoryKernel, seeds: range) -> None:
    first = [simulate(Case(seed), in_memory).trace_hash for seed in seeds]
    assert [simulate(Case(seed), in_memory).trace_hash for seed in seeds] == first
    assert len(set(first)) == len(seeds)


@pytest.mark.more
def test_equal_seeds_give_equal_traces_in_another_process_with_other_hashes() -> None:
    script = (
        "from heliograph.testing.simulator.simulate import Case, simulate\n"
        "from heliograph.testing.kernel.in_memory import InMemoryKernel\n"
        "print([simulate(Case(seed), InMemoryKernel()).trace_hash for seed in range(5)])"
    )
    traces = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(traces) == 1


def test_case_that_names_all_its_faults_and_deviations_gives_the_same_trace(in_memory: InMemoryKernel) -> None:
    whole = simulate(Case(4), in_memory)
    named = replace(whole.case, faults=frozenset(whole.faults), deviations=frozenset(whole.deviations))
    assert simulate(named, in_memory).trace_hash == whole.trace_hash


def test_every_run_ends_without_faults_and_deviations(in_memory: InMemoryKernel) -> None:
    result = simulate(Case(4, faults=frozenset(), deviations=frozenset()), in_memory)
    assert (result.violations, result.faults, result.deviations) == ([], [], [])
    assert result.counters["recover: running -> dispatched"] == 0


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 6), marks=pytest.mark.more)], ids=str)
def test_in_memory_kernel_and_postgres_produce_the_same_trace_and_rows(
    in_memory: InMemoryKernel, real: PostgresBackend, seeds: range
) -> None:
    for seed in seeds:
        left, right = simulate(Case(seed), in_memory, keeps_trace=True), simulate(Case(seed), real, keeps_trace=True)
        assert first_difference(left, right) is None, f"seed {seed}"
        assert have_same_rows(in_memory, real, PROJECT), f"seed {seed}"
