"""The tables of speed: every target has a verdict from the kept run, and no figure is typed by hand."""

from __future__ import annotations

import pytest

from tools.speed_tables import Kept, Target, render_rates, render_targets


@pytest.mark.parametrize(
    ("target", "is_met"),
    [
        (Target("rate", "A", 1.2, least=1.2), True),
        (Target("rate", "A", 1.19, least=1.2), False),
        (Target("log", "A", 6500.4, most=6500), True),  # as printed
        (Target("log", "A", 6501, most=6500), False),
        (Target("p50", "A", 0.99, below=1), True),
        (Target("p50", "A", 1.0, below=1), False),
    ],
)
def test_verdict_is_that_of_the_printed_figure(target: Target, is_met: bool) -> None:
    assert target.is_met == is_met
    assert target.line().endswith("| met |\n" if is_met else "| **missed** |\n")


def test_rates_and_targets_have_the_figures_of_the_kept_run() -> None:
    kept = Kept()
    ours = f"{kept.figure('A', 'heliograph', '16 callers', 'items/s'):,.0f}"
    [row] = [line for line in render_rates().splitlines() if line.startswith("| A, 16: Heliograph |")]
    assert row.split(" | ")[1].startswith(f"{ours} (")
    log = f"{kept.figure('B', 'heliograph', '16 callers', 'WAL B'):,.0f} B"
    assert f"| log of an item | B, 16 callers | {log} | at most 13,000 B |" in render_targets()
