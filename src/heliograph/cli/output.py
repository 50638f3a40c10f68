"""What a command prints: lines and tables for people, one JSON object per line for programs.

Everything goes through `line`, so that a closed pipe (`| head`) is one exception
with one meaning: whoever read has read enough.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, TextIO

GAP = "  "


class OutputClosed(Exception):
    """Nobody reads our output any more."""


def line(text: str = "", file: TextIO | None = None) -> None:
    """Print one line, at once: whoever follows through a pipe sees it now. Raises OutputClosed."""
    try:
        print(text, file=file or sys.stdout, flush=True)
    except BrokenPipeError:
        raise OutputClosed from None


def note(text: str) -> None:
    """Tell people something that is no part of the answer."""
    print(text, file=sys.stderr, flush=True)


def json_line(value: Any, file: TextIO | None = None) -> None:
    """One JSON value in one line; structs and times included."""
    import msgspec  # late: `helio --help` prints no JSON

    line(msgspec.json.encode(value).decode(), file)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be; numbers in words are the caller's."""
    widths = [max(len(cell) for cell in column) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        line(GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fields(values: Mapping[str, str | None]) -> None:
    """One `name  value` per line; what is None is left out."""
    width = max(map(len, values))
    for name, value in values.items():
        if value is not None:
            line(f"{name.ljust(width)}{GAP}{value}")


@contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """The real stdout for our own lines alone; whatever else is printed meanwhile goes to stderr.

    Agents are other people's code and may print; a program that reads our lines must not see that.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as own:
            yield own
    except BrokenPipeError:  # what was left in the buffer when the reader went away
        raise OutputClosed from None
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def speak_utf8() -> None:
    """Our output is UTF-8 whatever the locale says; what cannot be written is escaped, not raised."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def clock(at: datetime) -> str:
    """The time of day here, to the millisecond."""
    return at.astimezone().strftime("%H:%M:%S.%f")[:-3]


def moment(at: datetime | None) -> str:
    """Date and time here, to the second; a dash for none."""
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def duration(span: timedelta | None) -> str:
    """`340 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`; a dash for none."""
    if span is None:
        return "-"
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min {int(seconds % 60)} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
