"""Print lines and tables for people, and one JSON object per line for programs.

All output goes through `line` and `block`. They escape control characters, with which the text of a signal could write to the terminal, and
raise one exception for a closed pipe (`| head`) and one for a full disk. On a terminal, `line` and the tables fit its width; a block, which
may be a document, keeps its lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from heliograph.cli.layout import field_lines, table_lines, wrapped
from heliograph.error_text import printable, printable_json, printable_lines
from heliograph.errors import HeliographError
from heliograph.key_patterns import json_without_secrets
from heliograph.redaction import redacted_json

WHOLE = 1_000_000_000


class OutputClosed(Exception):
    """The reader of the output has closed its end of the pipe."""


class OutputFailed(HeliographError):
    """The output cannot be written, for example because the disk is full."""

    default_code = "output_failed"

    def __init__(self, error: OSError):
        super().__init__(f"the output could not be written: {error.strerror or error}")


class DirectOutput:
    """The standard output without a buffer, for a thread that prints lines.

    A line does not split text that other threads print. It shares no lock with `sys.stdout`, so it blocks no other thread while the
    output accepts nothing.
    """

    def __init__(self) -> None:
        self._descriptor = os.dup(1)

    def write(self, text: str) -> None:
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def flush(self) -> None:
        """Nothing is buffered."""

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def line(text: str = "", file: TextIO | DirectOutput | None = None) -> None:
    """Print one line; ends of lines in it are escaped, too. A terminal receives several if it is narrow. Raises OutputClosed, OutputFailed."""
    _write("\n".join(wrapped(printable(text), columns(file))), file)


def block(text: str, file: TextIO | DirectOutput | None = None) -> None:
    """Print text of several lines, like a help text or a document of JSON or YAML. Raises OutputClosed, OutputFailed."""
    _write(printable_lines(text.rstrip("\n")), file)


def piece(text: str, file: TextIO | DirectOutput | None = None) -> None:
    """Print a piece of a line, at once. Raises OutputClosed, OutputFailed."""
    file = file or sys.stdout
    with _writing(file):
        file.write(printable_lines(text))
        file.flush()


def note(text: str) -> None:
    """Print a remark of one line to stderr. A closed or full stderr is ignored."""
    with suppress(OutputClosed, OutputFailed):
        line(text, sys.stderr)


def error(text: str) -> None:
    """Print an error, which may have several lines, to stderr. A closed or full stderr is ignored."""
    with suppress(OutputClosed, OutputFailed):
        for each in text.rstrip("\n").split("\n"):
            line(each, sys.stderr)


def flush() -> None:
    """Flush stdout, which other code may have written to. Raises OutputClosed, OutputFailed."""
    with _writing(sys.stdout):
        sys.stdout.flush()


def _write(text: str, file: TextIO | DirectOutput | None) -> None:
    file = file or sys.stdout
    with _writing(file):
        file.write(f"{text}\n")  # one write, so that output of agents cannot split the line
        file.flush()  # so that a reader of a pipe sees it at once


@contextmanager
def _writing(file: TextIO | DirectOutput) -> Iterator[None]:
    """Translate the errors of a write."""
    try:
        yield
    except BrokenPipeError:
        abandon(file)
        raise OutputClosed from None
    except OSError as error:
        abandon(file)
        raise OutputFailed(error) from None


def abandon(file: TextIO | DirectOutput) -> None:
    """Send buffered and later output to the null device, so that the interpreter prints no error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file.fileno())
    os.close(nowhere)


def json_line(
    kind: str | None, value: Any, file: TextIO | None = None, *, shows_secrets: bool = False, is_input: bool = False
) -> None:
    """One JSON object in one line, with secrets redacted unless the user asked for them; structs and times included.

    kind: its `type`, the first key; None for a document of another standard, which is printed as it is.
    is_input: a program works with these values, so texts that only look like keys are kept.
    """
    import msgspec  # late: `helio --help` prints no JSON

    if kind is not None:
        value = {"type": kind, **(value if isinstance(value, dict) else msgspec.to_builtins(value))}

    encode = msgspec.json.encode if shows_secrets else redacted_json if is_input else json_without_secrets
    _write(printable_json(encode(value).decode()), file)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print the lines of `table_lines`."""
    for text in table_lines(headers, rows, columns()):
        line(text)


def fields(values: Mapping[str, str | None]) -> None:
    """Print the lines of `field_lines`."""
    for text in field_lines(values, columns()):
        line(text)


@contextmanager
def reserved_stdout() -> Iterator[TextIO]:
    """Reserve stdout for our own lines; all other output goes to stderr meanwhile.

    Agents may print, and a program that reads our lines must not see that.
    """
    flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    own = os.fdopen(os.dup(kept), "w", encoding="utf-8")
    try:
        yield own
    finally:
        with suppress(OutputClosed, OutputFailed), _writing(own):  # a failed line was reported when it was written
            own.flush()
        own.close()
        with suppress(OutputClosed, OutputFailed):  # output of agents belongs on stderr
            flush()
        os.dup2(kept, 1)
        os.close(kept)


def open_closed_streams() -> None:
    """Give a standard stream that is closed (`>&-`) the null device.

    Otherwise the next file or socket would get its number, and output of other code would end up there.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
        setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115  open until the process ends


def use_utf8() -> None:
    """Write UTF-8 in every locale, and escape characters that cannot be encoded."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]


def columns(file: TextIO | DirectOutput | None = None) -> int | None:
    """The width of the terminal that receives an output; None for a file or a pipe."""
    if not (file or sys.stdout).isatty():
        return None
    from shutil import get_terminal_size  # late: slow to import

    return get_terminal_size().columns


def width(of_terminal: int) -> int:
    """How many characters of a text a line has: at most `of_terminal` on a terminal, and all of them in a file or a pipe."""
    return WHOLE if (wide := columns()) is None else min(of_terminal, wide)


def moment(at: datetime | None) -> str:
    """The date and time in UTC, to the second; a dash for None."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def ago(at: datetime) -> str:
    """How long ago a time was, in one unit: `20 s ago`, `3 min ago`, `2 d ago`; for lists. `moment` has the exact time."""
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (unit != "d" and seconds >= size):
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def started_since(seconds: float | None) -> datetime | None:
    """The time of `--since`; None without the option."""
    return None if seconds is None else datetime.now(UTC) - timedelta(seconds=seconds)


def duration(span: timedelta | None) -> str:
    """`340 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`; a dash for None."""
    if span is None:
        return "-"
    seconds = max(0.0, span.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    if minutes < 60:
        return f"{minutes} min {int(seconds % 60)} s"
    hours = minutes // 60
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
