"""Simulate a range of seeds of one application, on a backend or by the command, and check that each keeps every rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from heliograph.testing.kernel.backend import Backend
from heliograph.testing.simulator.cli import main
from heliograph.testing.simulator.simulate import Case, simulate


def check_seeds(backend: Backend, seeds: Iterable[int], **options: Any) -> Counter[str]:
    """Assert that no seed violates a rule; return how often they reached each situation. options: of `Case`."""
    reached: Counter[str] = Counter()
    for seed in seeds:
        result = simulate(Case(seed, **options), backend)
        assert result.violations == [], result.line()
        reached += result.counters
    return reached


def check_command(capsys: pytest.CaptureFixture[str], option: str) -> None:
    """Assert that `helio sim run` and `helio sim replay` take an option."""
    assert main(["run", option, "--seeds", "1", "--start", "7"]) == 0
    assert main(["replay", "7", option]) == 0
    assert "1 seed on memory: 0 failed" in capsys.readouterr().out
