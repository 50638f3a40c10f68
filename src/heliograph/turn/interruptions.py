"""The exceptions that end a run of an agent's function before it returns. They are not errors.

Each derives from BaseException, like asyncio.CancelledError, so a function that handles its errors with `except Exception`
lets them propagate. The journal (`turn.journal.Journal`) detects a function that swallows one.
"""

from __future__ import annotations

from typing import Any

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

DELAY_SECONDS_MAX = 31_622_400.0


class Interruption(BaseException):
    """Ends this run of the function. If the turn continues, it continues later from its records, perhaps elsewhere."""


class Suspended(Interruption):
    """The turn waits for a call; later, its function runs again from its start."""


class TurnLost(Interruption):
    """Another epoch owns the turn, or it has ended. The worker stops running it and writes nothing more."""


class TurnAbandoned(TurnLost):
    """The store was out of reach for so long that this worker abandons a turn that it may still own."""


class Defer(Interruption):
    """`raise Defer(reason, seconds)` defers this turn: its function runs again from its start after that time.

    A turn that exceeds the maximum number of deferrals ends as failed.
    """

    def __init__(self, reason: str, seconds: float, *, at_most: int | None = None):
        """at_most: the maximum of deferrals; None for the project's limit. Raises InvalidInput (`out_of_range`)."""
        super().__init__(reason)
        self.reason = safe_repr(str(reason), 500)
        self.seconds = check_seconds("the delay of a deferral", seconds, least=0.0)
        self.at_most = at_most


def check_seconds(what: str, seconds: Any, *, least: float = 0.001) -> float:
    """`seconds` as a float. Raises InvalidInput (`out_of_range`) unless it is from `least` to about a year."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= DELAY_SECONDS_MAX:
        raise InvalidInput(f"{what} must be a number of seconds from {least:g} to {DELAY_SECONDS_MAX:g}, not {safe_repr(seconds)}",
                           code="out_of_range")  # fmt: skip
    return float(seconds)
