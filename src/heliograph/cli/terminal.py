"""Check that a screen has a terminal and its library, before it starts."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from heliograph.errors import InvalidInput, SetupError


def check_terminal(command: str, instead: str) -> None:
    """Raise InvalidInput (`no_terminal`) without a terminal, SetupError (`no_tui`) without the terminal library.

    instead: the command that needs neither.
    """
    if not has_terminal():
        raise InvalidInput(
            f"{command} needs a terminal", code="no_terminal", hint=f"{instead}; add --json for programs"
        )
    if find_spec("textual") is None:
        raise SetupError(f"{command} needs a terminal library: pip install 'heliograph[tui]'", code="no_tui",
                         hint=f"{instead} without one")  # fmt: skip


def has_terminal() -> bool:
    """Whether the standard streams are a terminal: the terminal library writes to stderr."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(stream.isatty() for stream in streams) and os.environ.get("TERM", "dumb") != "dumb"
