"""`helio sim ...`: everything after `sim` belongs to the simulator."""

from __future__ import annotations


def main(arguments: list[str]) -> int:
    from heliograph.testing.sim_cli import main as simulate

    return simulate(arguments)
