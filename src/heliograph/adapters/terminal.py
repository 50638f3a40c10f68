"""Print signals as lines, as `helio signal tail` does."""

from __future__ import annotations

import io
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TextIO

from heliograph.adapters.base import PAGE, AdapterServices, Receive, TargetGone, TargetUnavailable
from heliograph.adapters.signal_lines import SignalLines
from heliograph.definitions.signal_subscribers import SignalSubscriber
from heliograph.error_text import repr_of, safe_repr
from heliograph.errors import InvalidInput
from heliograph.signals.model import Signal
from heliograph.signals.signal_text import WHOLE, WIDTH


class Terminal:
    """Prints each signal as a line: time, id, name, agent and short payload, redacted and without control characters.

    file: an open text file; None for the standard output. While it accepts no output, the signals wait in the log. A closed pipe ends the
    deliveries of the process, and so does a closed file. Characters that its encoding lacks are escaped. Raises InvalidInput (`wrong_type`).
    """

    kind = "terminal"
    page = PAGE
    target = "the terminal"

    def __init__(self, file: TextIO | None = None):
        given: object = file
        is_text = callable(getattr(file, "write", None)) and callable(getattr(file, "flush", None))
        if file is not None and (not is_text or isinstance(given, io.RawIOBase | io.BufferedIOBase)):
            raise InvalidInput(f"file of Terminal must be an open text file, not {safe_repr(repr_of(file))}", code="wrong_type",
                               path="/file")  # fmt: skip
        self._file = file

    @asynccontextmanager
    async def open(self, services: AdapterServices, subscription: SignalSubscriber) -> AsyncIterator[Receive]:
        async def receive(signals: Sequence[Signal]) -> None:
            lines: list[str] = []
            view = SignalLines(lines.append, has_ids=True, width=self._width())
            for signal in signals:
                view.show(signal)
            try:
                await services.run_sync(self._print, "".join(f"{line}\n" for line in lines))
            except BrokenPipeError:
                raise TargetGone("the reader of the output has closed its end of the pipe") from None
            except OSError as error:
                raise TargetUnavailable(
                    f"the output cannot be written: {error.strerror or type(error).__name__}"
                ) from None

        yield receive

    def _width(self) -> int:
        """Short payloads for a terminal, whole ones for a file or a pipe."""
        file = sys.stdout if self._file is None else self._file
        is_terminal = getattr(file, "isatty", lambda: False)
        return WIDTH if not getattr(file, "closed", False) and is_terminal() else WHOLE

    def _print(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        if file is None or getattr(file, "closed", False):
            raise TargetGone("the output is closed")
        if (encoding := getattr(file, "encoding", None)) is not None:
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        file.write(text)  # one write, so that other output splits no line
        file.flush()
