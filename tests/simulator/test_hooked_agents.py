"""Agents with hooks under the simulator's faults: each hook takes effect once, and each signal of a phase occurs once."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from heliograph.execution import runner
from heliograph.records import Wait
from heliograph.testing.kernel.backend import PostgresBackend
from heliograph.testing.kernel.in_memory import InMemoryKernel
from heliograph.testing.simulator.simulate import Case, simulate
from heliograph.turn.decisions import first_event
from heliograph.turn.events import Hydrated
from heliograph.turn.phase_records import PhaseResults
from tests.simulator.seeds_kit import check_command, check_seeds

FEW = range(12)
MANY = range(12, 72)  # `make sim` runs hundreds


@pytest.mark.proves("LC-22", "LC-32")
@pytest.mark.parametrize("seeds", [FEW, pytest.param(MANY, marks=pytest.mark.more)], ids=["few", "many"])
def test_hooks_take_effect_once_and_their_signals_occur_once(in_memory: InMemoryKernel, seeds: range) -> None:
    reached = check_seeds(in_memory, seeds, hooks=True)
    assert all(reached[f"hooks in {rounds} rounds"] for rounds in (1, 2, 3)), reached


@pytest.mark.proves("LC-22", "LC-32", "LC-52")
@pytest.mark.more
def test_hooks_take_effect_once_on_postgres(real: PostgresBackend) -> None:
    check_seeds(real, range(300, 320), maintenance=True, hooks=True)


def test_command_simulates_hooked_agents(capsys: pytest.CaptureFixture[str]) -> None:
    check_command(capsys, "--hooks")


def test_line_of_a_failure_replays_its_application(in_memory: InMemoryKernel) -> None:
    assert "backend=memory hooks=true" in simulate(Case(7, hooks=True), in_memory).line()


@pytest.mark.more
def test_oracle_detects_a_worker_that_loses_the_records_of_earlier_hooks(
    in_memory: InMemoryKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PhaseResults.after

    def forgetful(results: PhaseResults, wait: Wait) -> PhaseResults:
        after = real(results, wait)
        return replace(after, memory={key: value for key, value in after.memory.items() if key != "ran"})

    monkeypatch.setattr(PhaseResults, "after", forgetful)
    found = {v.kind for seed in FEW for v in simulate(Case(seed, hooks=True), in_memory).violations}
    assert "hook_effect" in found


def test_oracle_detects_a_worker_that_announces_a_lost_turn_again(
    in_memory: InMemoryKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forgetful(*args: Any) -> Any:
        event = first_event(*args)
        return replace(event, has_emitted_signals=False) if isinstance(event, Hydrated) else event

    monkeypatch.setattr(runner, "first_event", forgetful)
    seeds = iter(range(100))
    assert any("phases_out_of_order" in {v.kind for v in simulate(Case(seed), in_memory).violations} for seed in seeds)
