"""`--watch`: print a list again whenever it has changed, until the command is interrupted."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout

from heliograph.cli.output import block, line

SECONDS = 2.0
_CLEAR = "\x1b[2J\x1b[H"


def watch(call: Callable[[], int], *, as_json: bool, seconds: float = SECONDS) -> int:
    """Call a command again and again. A terminal is cleared before each list; programs receive only the objects that are new or changed."""
    before: str | None = None
    while True:
        written = _Written(is_terminal=sys.stdout.isatty())
        with redirect_stdout(written):
            code = call()
        text = written.getvalue()
        if as_json:
            known = set((before or "").splitlines())
            for each in text.splitlines():
                if each not in known:
                    line(each)
        elif text != before:
            _print(text, is_first=before is None)
        before = text
        if code:
            return code
        time.sleep(seconds)


class _Written(io.StringIO):
    """The text that a command prints. It has the width of the terminal, if there is one."""

    def __init__(self, *, is_terminal: bool):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def _print(text: str, *, is_first: bool) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    elif not is_first:
        line()
    block(text)
