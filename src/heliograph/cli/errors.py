"""Turn errors into text and an exit code. Tracebacks appear only with HELIOGRAPH_DEBUG=1."""

from __future__ import annotations

import json
import os
import traceback
from contextlib import suppress
from pathlib import Path

from heliograph.cli import output
from heliograph.cli.output import OutputClosed, OutputFailed
from heliograph.error_text import printable_json, safe_repr
from heliograph.errors import HeliographError
from heliograph.key_patterns import text_without_secrets, without_secrets


class NothingYet(HeliographError):
    """There is no database to list from. Like an empty list, this is not an error."""

    exit_code = 0


def report(error: Exception, *, as_json: bool) -> int:
    """Print `error` to stderr and, with `as_json`, its envelope to stdout. Return the exit code.

    HELIOGRAPH_DEBUG=1 adds the traceback.
    """
    if os.environ.get("HELIOGRAPH_DEBUG", "") not in ("", "0"):
        output.error(text_without_secrets("".join(traceback.format_exception(error))))
    known = error if isinstance(error, HeliographError) else _unexpected(error)
    output.error(text_without_secrets(f"error: {known.message}"))
    if known.hint is not None:
        output.error(text_without_secrets(f"hint: {known.hint}"))
    if as_json:
        with suppress(OutputClosed, OutputFailed):
            output.block(printable_json(_json(without_secrets({"type": "error", **known.envelope()}))))
    return known.exit_code


def _json(value: object) -> str:
    """JSON in the form of all other lines, also of text with lone surrogates, which arguments may have."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def place_of(error: BaseException) -> str | None:
    """`FILE.py:12`: the innermost line of the user's own code, outside Heliograph and installed libraries."""
    foreign = (str(Path(__file__).resolve().parent.parent), str(Path(os.__file__).parent), "<")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(foreign) and "site-packages" not in frame.filename:
            path = Path(frame.filename)
            return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{frame.lineno}"
    return None


def _unexpected(error: Exception) -> HeliographError:
    return HeliographError(
        f"unexpected error: {type(error).__name__}: {safe_repr(str(error), 300)}",
        code="internal_error",
        hint="HELIOGRAPH_DEBUG=1 shows the traceback; please report it",
    )
