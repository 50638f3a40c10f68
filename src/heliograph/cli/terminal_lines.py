"""Lines that a person types, read by the event loop: a thread that reads cannot be cancelled, and would keep the process alive."""

from __future__ import annotations

import asyncio
import os


class TerminalLines:
    """The lines of the standard input, which must be a terminal."""

    def __init__(self) -> None:
        self._rest = b""
        self._has_ended = False

    async def read(self) -> str | None:
        """The next line without its end; None after the end of the input."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._rest and not self._has_ended:
            ready = asyncio.Event()
            loop.add_reader(0, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_reader(0)
            try:
                piece = os.read(0, 65536)
            except OSError:  # the terminal is gone
                piece = b""
            self._rest += piece
            self._has_ended = not piece
        if not self._rest:
            return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")
