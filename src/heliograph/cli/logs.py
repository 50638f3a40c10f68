"""Format the runtime's log as lines of text or JSON. An exception takes one line, with its place in the user's code.

HELIOGRAPH_LOG sets levels by the names of loggers, and HELIOGRAPH_LOG_FORMAT=json chooses JSON.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

from heliograph.cli.errors import place_of
from heliograph.cli.output import abandon
from heliograph.error_text import exception_text, printable, printable_json, printable_lines
from heliograph.key_patterns import text_without_secrets, without_secrets
from heliograph.telemetry.logs import FORMATS, ROOT, fields_of, read_format, read_levels

_PLACES_MAX = 1000  # turns whose places a process keeps


class _Lines(logging.Formatter):
    """Time, level above INFO, message, id of the signal. HELIOGRAPH_DEBUG=1 adds tracebacks."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        text = f"{self.formatTime(record)}  {level}{record.getMessage()}"
        signal_id = getattr(record, "signal_id", None)
        text = f"{text}{'' if signal_id is None else f'  {signal_id}'}{self._cause(record)}"
        return "".join(
            (printable(text_without_secrets(text)), printable_lines(text_without_secrets(self._traceback(record))))
        )

    def _cause(self, record: logging.LogRecord) -> str:
        if not record.exc_info or record.exc_info[1] is None:
            return f": {_last_line(record.exc_text)}" if record.exc_text else ""
        return "" if self._traceback(record) else f": {_named(record.exc_info[1])}"

    def _traceback(self, record: logging.LogRecord) -> str:
        if not record.exc_info or os.environ.get("HELIOGRAPH_DEBUG", "") in ("", "0"):
            return ""
        return f"\n{self.formatException(record.exc_info)}"


class _JsonLines(logging.Formatter):
    """One object per line: at, level, logger, message, then run, turn, agent, phase, signal, name, trace, span, payload and error, where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(), **fields_of(record),
        }  # fmt: skip
        if (payload := getattr(record, "payload", None)) is not None:
            entry["payload"] = payload
        if record.exc_info and record.exc_info[1] is not None:
            entry["error"] = _named(record.exc_info[1])
        elif record.exc_text:
            entry["error"] = _last_line(record.exc_text)
        return printable_json(json.dumps(without_secrets(entry), ensure_ascii=False))


Places = dict[str, str]  # of failed turns: the innermost line of the user's own code, FILE.py:12


class _Handler(logging.StreamHandler[TextIO]):
    """Drops a line that cannot be written, so that a full disk stops no worker and prints no tracebacks.

    places: of the exceptions of turns that this process has logged.
    """

    def __init__(self, stream: TextIO):
        super().__init__(stream)
        self.places: Places = {}

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        turn = fields_of(record).get("turn") if error is not None and len(self.places) < _PLACES_MAX else None
        if error is not None and turn is not None and (place := place_of(error)) is not None:
            self.places[turn] = place
        super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if isinstance(sys.exception(), OSError):
            abandon(self.stream)
        else:
            super().handleError(record)


def show_logs(level: int, json_to: TextIO | None = None) -> Places:
    """Send Heliograph's log as JSON to a file, or to stderr as text, or as HELIOGRAPH_LOG_FORMAT says.

    level: of all loggers for which HELIOGRAPH_LOG has none. Raises InvalidInput for other values of these variables.
    Returns the places of failed turns, which grow with the log.
    """
    levels = {ROOT: level, **read_levels(os.environ.get("HELIOGRAPH_LOG", ""))}
    is_text = json_to is None and read_format(os.environ.get("HELIOGRAPH_LOG_FORMAT", "")) == FORMATS[0]
    handler = _Handler(json_to or sys.stderr)
    handler.setFormatter(_Lines() if is_text else _JsonLines())
    ours = logging.getLogger(ROOT)
    ours.handlers, ours.propagate = [handler], False
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)
    driver = logging.getLogger("asyncpg")  # it logs outages with tracebacks; our log has one line for them
    driver.handlers, driver.propagate = [handler], False
    driver.setLevel(logging.CRITICAL)
    return handler.places


def _last_line(trace: str) -> str:
    """The last line of a traceback that exists only as redacted text."""
    return trace.rpartition("\n")[2]


def _named(error: BaseException) -> str:
    place = place_of(error)
    return f"{type(error).__name__}: {exception_text(error)}{f' ({place})' if place else ''}"
