"""The tables of speed: every target has a verdict from the kept run, and no figure is typed by hand."""

from __future__ import annotations

import pytest

from tools.speed_tables import Kept, Target, render_rates, render_targets


@pytest.mark.parametrize(
    ("target", "is_met"),
    [
        (Target("rate", "A", 1.2, least=1.2), True),
        (Target("rate", "A", 1.19, least=1.2), False),
        (Target("rate", "A", 1.199, least=1.2), False),  # printed as 1.20
        (Target("log", "A", 6500, most=6500), True),
        (Target("log", "A", 6500.4, most=6500), False),
        (Target("p50", "A", 0.99, below=1), True),
        (Target("p50", "A", 1.0, below=1), False),
    ],
)
def test_verdict_is_that_of_the_figure_before_it_is_rounded(target: Target, is_met: bool) -> None:
    assert target.is_met == is_met
    assert target.line().endswith("| met |\n" if is_met else "| **missed** |\n")


@pytest.mark.parametrize(
    ("value", "printed"), [(0.0484, "0.048"), (0.598, "0.60"), (3.53, "3.53"), (13.4, "13"), (6356.2, "6,356")]
)
def test_figure_is_printed_with_the_digits_that_its_size_needs(value: float, printed: str) -> None:
    assert Target("rate", "A", value, least=1).line().startswith(f"| rate | A | {printed} |")


def test_rates_and_targets_have_the_figures_of_the_kept_run() -> None:
    kept = Kept()
    ours = f"{kept.figure('A', 'heliograph', '16 callers', 'items/s'):,.0f}"
    [row] = [line for line in render_rates().splitlines() if line.startswith("| A, 16: Heliograph |")]
    assert row.split(" | ")[1].startswith(f"{ours} (")
    log = f"{kept.figure('B', 'heliograph', '16 callers', 'WAL B'):,.0f} B"
    assert f"| log of an item | B, 16 callers | {log} | at most 13,000 B |" in render_targets()
