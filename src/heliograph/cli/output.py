"""What a command prints: lines and tables for people, one JSON object per line for programs.

Everything goes through `line`, so that a closed pipe (`| head`) is one exception
with one meaning: whoever read has read enough; and a full disk is another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TextIO

from heliograph.errors import HeliographError

GAP = "  "


class OutputClosed(Exception):
    """Nobody reads our output any more."""


class OutputFailed(HeliographError):
    """What was to be printed cannot be written: a full disk, most of all."""

    default_code = "output_failed"

    def __init__(self, error: OSError):
        super().__init__(f"the output could not be written: {error.strerror or error}")


def line(text: str = "", file: TextIO | None = None) -> None:
    """Print one line, at once: whoever follows through a pipe sees it now. Raises OutputClosed, OutputFailed."""
    file = file or sys.stdout
    with _writing(file):
        file.write(f"{text}\n")  # by one write: what agents print meanwhile cannot come into the middle of it
        file.flush()


def note(text: str) -> None:
    """Tell people something that is no part of the answer; where stderr takes nothing, nobody is told."""
    with suppress(OutputClosed, OutputFailed):
        line(text, sys.stderr)


def flush() -> None:
    """Write what others have left in the buffer of stdout. Raises OutputClosed, OutputFailed."""
    with _writing(sys.stdout):
        sys.stdout.flush()


@contextmanager
def _writing(file: TextIO) -> Iterator[None]:
    """What can happen to a write, in our own words."""
    try:
        yield
    except BrokenPipeError:
        abandon(file)
        raise OutputClosed from None
    except OSError as error:
        abandon(file)
        raise OutputFailed(error) from None


def abandon(file: TextIO) -> None:
    """Let what is still buffered go nowhere, and all that follows: the interpreter would complain about it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


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
    flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    own = os.fdopen(os.dup(kept), "w", encoding="utf-8")
    try:
        yield own
    finally:
        with suppress(OutputClosed, OutputFailed), _writing(own):  # what failed has been told: each line is flushed
            own.flush()
        own.close()
        with suppress(OutputClosed, OutputFailed):  # what agents printed went to stderr, and must not come out here
            flush()
        os.dup2(kept, 1)
        os.close(kept)


def open_closed_streams() -> None:
    """Give a standard stream that is closed (`>&-`) the null device.

    Python has None in its place, and the next file or socket opened would get its number: what is printed by others
    would end in there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115  as long as we live


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
