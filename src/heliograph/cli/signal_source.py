"""Read the signals of a run for commands that play or compare runs: from the database, or from the file of a recording."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain, islice
from typing import Protocol

from heliograph.cli.arguments import is_file, is_file_name
from heliograph.cli.existing_database import open_existing
from heliograph.cli.output import note
from heliograph.errors import NotFound
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import RunRow
from heliograph.signals.model import Signal

_PAGE = 1000


class SignalSource(Protocol):
    """The log of one run. name: what the user called it. has_ended: whether it can grow no more."""

    name: str
    has_ended: bool

    async def page(self) -> Sequence[Signal]:
        """Read the next signals; none at the end of the log. Raises StoreUnavailable: the next call reads the same ones."""


class RunSource:
    """The log of a run in the database, read page by page."""

    def __init__(self, reader: Reader, run_id: str, *, has_ended: bool):
        self.name = run_id
        self.has_ended = has_ended
        self._reader = reader
        self._after = 0

    async def page(self) -> Sequence[Signal]:
        found = await self._reader.signals(self.name, self._after)
        self._after = found[-1].seq if found else self._after
        return found


class RecordingSource:
    """The log in the file of a recording, read line by line. Raises the errors of `read_recording`, those of its last lines by `page`."""

    has_ended = True

    def __init__(self, path: str, *, edited: bool = False):
        from heliograph.recording.file import signals_in  # late: most commands read no recording

        self.name = path
        signals = signals_in(path, edited=edited)
        self.close = signals.close
        self._signals = chain(list(islice(signals, 1)), signals)  # the first one now: it opens the file

    async def page(self) -> Sequence[Signal]:
        return list(islice(self._signals, _PAGE))


async def signals_of(source: SignalSource) -> AsyncIterator[Signal]:
    """Yield the whole log. Raises StoreUnavailable, and the errors of `read_recording`."""
    while page := await source.page():
        for signal in page:
            yield signal


@asynccontextmanager
async def open_sources(*names: str, edited: bool = False) -> AsyncIterator[list[SignalSource]]:
    """Open runs by their ids, and recordings by their files. edited: accept files that were changed by hand.

    A name without a dot and a slash is the id of a run, or of a file if no run has it. The database is opened only for such names.
    Raises NotFound (`unknown_run`, `no_data`), and the errors of `read_recording`.
    """
    async with AsyncExitStack() as stack:
        found: list[SignalSource] = []
        reader: Reader | None = None
        for name in names:
            run: RunRow | None = None
            if not is_file_name(name):
                try:
                    if reader is None:
                        reader = await stack.enter_async_context(open_existing(f"run {name}"))
                    run = await reader.run(name)
                except NotFound as error:
                    if error.code == "pruned_run" or not is_file(name):
                        raise
                    note(f"{name} is not the id of a run; the file of this name is read")
            if reader is not None and run is not None:
                found.append(RunSource(reader, run.run_id, has_ended=run.status == "ended"))
                continue
            recording = RecordingSource(name, edited=edited)
            stack.callback(recording.close)
            found.append(recording)
        yield found
