"""Sessions under the simulator's faults: each message is answered once, and signals of the last replies still wake agents."""

from __future__ import annotations

import pytest

from heliograph.reactive import reaction_builder
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulator.coverage import SOMETIMES_IN_SESSIONS
from heliograph.testing.simulator.simulate import Case, simulate
from tests.simulator.seeds_kit import check_command, check_seeds

FEW = range(12)
MANY = range(12, 72)  # `make sim` runs hundreds


@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.more)], ids=["few", "many"])
def test_closed_sessions_lose_and_double_nothing(in_memory: InMemoryKernel, seeds: range) -> None:
    reached = check_seeds(in_memory, seeds, sessions=True)
    if seeds is MANY:
        assert sorted(SOMETIMES_IN_SESSIONS - reached.keys()) == []


@pytest.mark.more
def test_closed_sessions_lose_and_double_nothing_on_postgres(real: PostgresBackend) -> None:
    check_seeds(real, range(300, 308), maintenance=True, sessions=True)


def test_command_simulates_sessions(capsys: pytest.CaptureFixture[str]) -> None:
    check_command(capsys, "--sessions")


def test_oracle_detects_closed_sessions_whose_last_replies_wake_no_agent(
    in_memory: InMemoryKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaction_builder, "is_active", lambda run: run.status == "running")
    results = (simulate(Case(seed, sessions=True), in_memory) for seed in FEW)
    assert any("not_woken" in {violation.kind for violation in result.violations} for result in results)
