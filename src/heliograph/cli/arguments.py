"""Argument types: numbers in a range, ids, ages, times. Each error states the accepted values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from heliograph.config import PRUNE_SECONDS_MAX, read_span
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput

ID_LENGTH_MAX = 200

LAST = "@last"  # the newest run or turn

_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]+")


def integer(option: str, low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high` (`out_of_range`)."""

    def read(text: str) -> int:
        is_number = re.fullmatch(r"[+-]?[0-9]{1,18}", text) is not None
        if not is_number or not low <= int(text) <= high:
            raise InvalidInput(f"{option} must be a whole number from {low} to {high}, not {safe_repr(text)}",
                               code="out_of_range", path=option)  # fmt: skip
        return int(text)

    return read


def seconds(option: str, low: float, high: float) -> Callable[[str], float]:
    """A parser of seconds from `low` to `high` (`out_of_range`)."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise InvalidInput(f"{option} must be a number of seconds from {low:g} to {high:g}, not {safe_repr(text)}",
                               code="out_of_range", path=option)  # fmt: skip
        return value

    return read


def identifier(option: str) -> Callable[[str], str]:
    """A parser of ids and names (`too_long`, `invalid_id`). No malformed id reaches the database."""

    def read(text: str) -> str:
        if len(text) > ID_LENGTH_MAX:
            raise InvalidInput(f"{option} must have at most {ID_LENGTH_MAX} characters, not {len(text)}: {safe_repr(text, 40)}",
                               code="too_long", path=option)  # fmt: skip
        if not _IDENTIFIER.fullmatch(text):
            raise InvalidInput(f"{option} takes ASCII letters, digits, '_' and '-', not '{safe_repr(text)}'",
                               code="invalid_id", path=option)  # fmt: skip
        return text

    return read


def reference(option: str) -> Callable[[str], str]:
    """A parser of the id of a run or a turn, of a unique beginning of one, or of `@last`; see cli/references.py."""
    read_id = identifier(option)
    return lambda text: text if text == LAST else read_id(text)


def run_or_file(option: str) -> Callable[[str], str]:
    """A parser of the id of a run, or of the path of a file: an id has no dot and no slash. It adds `./` to the name of a file that cannot be an id."""
    read_id = reference(option)

    def read(text: str) -> str:
        if is_file_name(text):
            return text
        try:
            return read_id(text)
        except InvalidInput:
            if not is_file(text):
                raise
            return os.path.join(os.curdir, text)

    return read


def is_file(text: str) -> bool:
    """Whether there is a file of this name."""
    return os.path.isfile(text)


def is_file_name(text: str) -> bool:
    """Whether a text is the path of a file, where an id may stand too."""
    return "." in text or "/" in text


def run_id(text: str) -> str:
    """Parse the id of a new run by the runtime's rule (`invalid_id`)."""
    from heliograph.run_options import check_run_id  # late: `helio --help` does not need it

    return check_run_id(text)


def login_name() -> str:
    """The login name of this process, the default for `--by`."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process without a login
        return "helio"


def age(option: str) -> Callable[[str], float]:
    """A parser of an age in seconds: `30d`, `12h`, `90m` (`out_of_range`)."""

    def read(text: str) -> float:
        seconds = read_span(text)
        if not seconds or seconds > PRUNE_SECONDS_MAX:
            raise InvalidInput(f"{option} must be an age like 30d, 12h or 90m, not {safe_repr(text)}", code="out_of_range",
                               path=option)  # fmt: skip
        return seconds

    return read


def since(text: str) -> datetime:
    """Parse a time: `10m`, `2h`, `1d` ago, or an ISO time, in UTC unless it has a zone (`invalid_time`)."""
    try:
        if (ago := read_span(text)) is not None:
            return datetime.now(UTC) - timedelta(seconds=ago)
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            "--since takes 30s, 10m, 2h or 1d, or a time like "
            f"2026-01-31T09:30:00Z or 2026-01-31, not '{safe_repr(text)}'",
            code="invalid_time",
            path="--since",
        ) from None
