"""The edge where errors become text and an exit code. Nobody sees a traceback who did not ask for one."""

from __future__ import annotations

import json
import os
import traceback
from contextlib import suppress
from pathlib import Path

from heliograph.cli.output import OutputClosed, OutputFailed, line, note
from heliograph.errors import HeliographError, safe_repr
from heliograph.redaction import redacted, redacted_text


class NothingYet(HeliographError):
    """There is no database to list from: an answer, and no error, as an empty list is none."""

    exit_code = 0


def report(error: Exception, *, as_json: bool) -> int:
    """Tell of `error`: people read it on stderr, with `as_json` programs read the envelope on stdout.

    Answers the exit code. HELIOGRAPH_DEBUG=1 adds the traceback.
    """
    if os.environ.get("HELIOGRAPH_DEBUG", "") not in ("", "0"):
        note(redacted_text("".join(traceback.format_exception(error))).rstrip())
    known = error if isinstance(error, HeliographError) else _unexpected(error)
    note(redacted_text(f"error: {known.message}"))
    if known.hint is not None:
        note(redacted_text(f"hint: {known.hint}"))
    if as_json:
        with suppress(OutputClosed, OutputFailed):
            line(json.dumps(redacted(known.envelope()), ensure_ascii=False))
    return known.exit_code


def place_of(error: BaseException) -> str | None:
    """`FILE.py:12`: the innermost line of the user's own code, which is neither ours nor an installed library's."""
    foreign = (str(Path(__file__).resolve().parent.parent), str(Path(os.__file__).parent), "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(foreign) and "site-packages" not in frame.filename:
            path = Path(frame.filename)
            return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{frame.lineno}"
    return None


def _unexpected(error: Exception) -> HeliographError:
    return HeliographError(
        f"this should not have happened: {type(error).__name__}: {safe_repr(str(error), 300)}",
        code="internal_error",
        hint="HELIOGRAPH_DEBUG=1 shows where; please report it",
    )
