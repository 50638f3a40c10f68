"""`helio` in a process with a wrong wall clock: `python -m tests.journeys.chaos.skewed worker ...`.

CHAOS_SKEW_SECONDS sets the error. It applies to `World.now`, the seam through which the runtime reads the time; the
tests of the floors forbid every other clock.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

from heliograph.cli.main import main
from heliograph.world.real import RealWorld


def skew_clock() -> None:
    """Shift the clock of every world of this process."""
    skew = timedelta(seconds=float(os.environ["CHAOS_SKEW_SECONDS"]))

    RealWorld.now = lambda _world: datetime.now(UTC) + skew  # type: ignore[assignment]  # mypy counts self twice


if __name__ == "__main__":
    skew_clock()
    sys.exit(main())
