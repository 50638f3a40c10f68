"""Format the runtime's log as lines of text or JSON. An exception takes one line, with its place in the user's code."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import TextIO

from heliograph.cli.errors import place_of
from heliograph.cli.output import abandon
from heliograph.error_text import exception_text


class _Lines(logging.Formatter):
    """Time, level above INFO, message. HELIOGRAPH_DEBUG=1 adds tracebacks."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        text = f"{self.formatTime(record)}  {level}{record.getMessage()}"
        return f"{text}{self._cause(record)}"

    def _cause(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[1] is None:
            return f": {_last_line(record.exc_text)}" if record.exc_text else ""
        if os.environ.get("HELIOGRAPH_DEBUG", "") not in ("", "0"):
            return f"\n{self.formatException(record.exc_info)}"
        return f": {_named(record.exc_info[1])}"


class _JsonLines(logging.Formatter):
    """One object per line: at, level, message, and error where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(), "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info and record.exc_info[1] is not None:
            entry["error"] = _named(record.exc_info[1])
        elif record.exc_text:
            entry["error"] = _last_line(record.exc_text)
        return json.dumps(entry, ensure_ascii=False)


class _Handler(logging.StreamHandler[TextIO]):
    """Drops a line that cannot be written, so that a full disk stops no worker and prints no tracebacks."""

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exception(), OSError):
            abandon(self.stream)
        else:
            super().handleError(record)


def show_logs(level: int, json_to: TextIO | None = None) -> None:
    """Send Heliograph's log as JSON to a file, or as text to stderr."""
    handler = _Handler(json_to or sys.stderr)
    handler.setFormatter(_JsonLines() if json_to is not None else _Lines())
    ours = logging.getLogger("heliograph")
    ours.handlers, ours.propagate = [handler], False
    ours.setLevel(level)
    driver = logging.getLogger("asyncpg")  # it logs outages with tracebacks; our log has one line for them
    driver.handlers, driver.propagate = [handler], False
    driver.setLevel(logging.CRITICAL)


def _last_line(trace: str) -> str:
    """The last line of a traceback that exists only as redacted text."""
    return trace.rpartition("\n")[2]


def _named(error: BaseException) -> str:
    place = place_of(error)
    return f"{type(error).__name__}: {exception_text(error)}{f' ({place})' if place else ''}"
