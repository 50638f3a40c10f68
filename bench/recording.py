"""`python -m bench.recording`: compare runs that are recorded with the same runs that are not.

Prints for each load the median over the rounds of items/s and of CPU time per item (server and Python processes), and the ratio to
runs that are not recorded: its median, and the quartiles between which half of the rounds lie. See `bench.sides`. Needs Linux (/proc).
"""

from __future__ import annotations

from functools import partial

from bench.sides import OFF, OFF_AGAIN, compare_sides
from bench.works import SIXTEEN


def environment_of(*, is_recorded: bool) -> dict[str, str]:
    return {"HELIOGRAPH_OTEL": "0", "BENCH_RECORDING": "1" if is_recorded else "0"}


def main() -> None:
    sides = {OFF: False, OFF_AGAIN: False, "recorded": True}
    environments = {name: partial(environment_of, is_recorded=is_recorded) for name, is_recorded in sides.items()}
    compare_sides("python -m bench.recording", __doc__, environments, [SIXTEEN])


if __name__ == "__main__":
    main()
