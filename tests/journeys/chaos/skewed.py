"""`helio`, in a process whose wall clock is wrong: `python -m tests.journeys.chaos.skewed worker ...`.

CHAOS_SKEW_SECONDS says by how much. The clock is set wrong at the product's own seam, `World.now`, which is where the
runtime reads the time; a program that read it anywhere else would not be off, and the floors' tests refuse it.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

from heliograph.cli.main import main
from heliograph.world.real import RealWorld


def skew_clock() -> None:
    """From now on every world of this process tells the wrong time."""
    skew = timedelta(seconds=float(os.environ["CHAOS_SKEW_SECONDS"]))

    RealWorld.now = lambda _world: datetime.now(UTC) + skew  # type: ignore[assignment]  # mypy counts self twice


if __name__ == "__main__":
    skew_clock()
    sys.exit(main())
