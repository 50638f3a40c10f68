"""The ranges of numbers in settings."""

from __future__ import annotations

from heliograph.errors import InvalidInput
from heliograph.policy.retry import SECONDS_MAX

GRACE_SECONDS_MAX = 86_400  # of a graceful stop
_SECONDS_MIN = 0.001


def check_range(value: float, least: float, most: float, path: str) -> None:
    """Raise InvalidInput (`out_of_range`) for a setting that is too small or too large. path: a JSON pointer that ends with its name."""
    if not least <= value <= most:
        raise InvalidInput(
            f"{path.rpartition('/')[2]} must be from {least:g} to {most:.0f}, not {value:.12g}",
            code="out_of_range",
            path=path,
        )


def check_seconds(value: float, path: str) -> None:
    """Raise InvalidInput (`out_of_range`) for a time that is not between a millisecond and 366 days."""
    check_range(value, _SECONDS_MIN, SECONDS_MAX, path)
