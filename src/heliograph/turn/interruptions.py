"""What leaves an agent's function before it returns. No errors: `except Exception` in an agent lets them pass.

Each derives from BaseException, as asyncio.CancelledError does and for the same reason: a function that handles the
errors of its work must not take the end of its run for one of them. A function that catches even these is found out
when it returns (`turn.calls.Journal`).
"""

from __future__ import annotations

from typing import Any

from heliograph.errors import InvalidInput, safe_repr

DELAY_SECONDS_MAX = 31_622_400.0


class Interruption(BaseException):
    """The agent's function ends here; the turn goes on from what is recorded, sooner or later."""


class Suspended(Interruption):
    """The turn waits for a call: nothing is held meanwhile, and its function is run again from its start."""


class Defer(Interruption):
    """`raise Defer(reason, seconds)`: put this turn off; its function is run again from its start after that time.

    How often is counted and capped; past the cap the turn ends as failed (L0-64, G-71).
    """

    def __init__(self, reason: str, seconds: float, *, at_most: int | None = None):
        """at_most: deferrals of the turn; None for the project's limit. Raises InvalidInput (`out_of_range`)."""
        super().__init__(reason)
        self.reason = safe_repr(str(reason), 500)
        self.seconds = check_seconds("a turn is put off for", seconds, least=0.0)
        self.at_most = at_most


def check_seconds(what: str, seconds: Any, *, least: float = 0.001) -> float:
    """Raises InvalidInput (`out_of_range`) for what is no number of seconds from `least` to a year."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not least <= seconds <= DELAY_SECONDS_MAX:
        raise InvalidInput(f"{what} a number of seconds from {least:g} to {DELAY_SECONDS_MAX:g}, not {safe_repr(seconds)}",
                           code="out_of_range")  # fmt: skip
    return float(seconds)
