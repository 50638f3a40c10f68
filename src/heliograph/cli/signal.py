"""`helio signal tail`: read or follow the log of signals."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from heliograph.adapters.signal_lines import SignalLines
from heliograph.cli.existing_database import missing_database, open_client, open_existing
from heliograph.cli.output import json_line, line, note, width
from heliograph.config import read_settings
from heliograph.errors import InvalidInput, StoreUnavailable
from heliograph.ledger.reader import Reader
from heliograph.signals.model import Signal, to_wire
from heliograph.signals.pattern_table import name_filter
from heliograph.signals.signal_text import WIDTH

POLL_SECONDS = 0.5
OUTAGE_SECONDS = 1.0
RUNS_MAX = 10  # by `tail` without --run and --since
# The server stamps a run's last change before it commits, by its own clock: look this far back for changed runs.
# Positions identify printed signals, so looking too far back costs a query and shows nothing twice.
_OVERLAP = timedelta(minutes=5)


def tail(options: Namespace) -> int:
    show = _Printer(options)
    try:
        asyncio.run(_tail(options, show))
    except KeyboardInterrupt:
        if not options.follow:
            raise  # an interrupt is the normal end of --follow
    return 0


class _Printer:
    """Prints the signals that the options select. count: how many."""

    def __init__(self, options: Namespace):
        self.count = 0
        self._since: datetime | None = options.since
        self._is_wanted = name_filter(options.patterns)
        self._print = _print_json if options.json else SignalLines(line, has_ids=True, width=width(WIDTH)).show

    def __call__(self, signal: Signal) -> None:
        if self._is_wanted(signal.name) and (self._since is None or signal.timestamp >= self._since):
            self.count += 1
            self._print(signal)


def _print_json(signal: Signal) -> None:
    json_line("signal", to_wire(signal))


async def _follow(options: Namespace, show: _Printer) -> None:
    """Follow the log of one run; bells announce new signals."""
    after = options.after or 0
    async with open_client(f"run {options.run}") as client:
        while True:
            try:
                async for signal in client.follow(options.run, after):
                    after = signal.seq
                    show(signal)
            except StoreUnavailable as error:
                note(f"waiting for the database: {error.message}")
                await asyncio.sleep(OUTAGE_SECONDS)
            else:
                return


async def _tail(options: Namespace, show: _Printer) -> None:
    if options.run is None and options.after is not None:
        raise InvalidInput(
            "--after is a position in the log of one run: name it with --run", code="usage", path="--after"
        )
    if options.run is not None and options.follow:
        await _follow(options, show)
        return
    if options.follow and options.run is None:
        await _database_made()
    async with open_existing(None if options.run is None else f"run {options.run}") as reader:
        log = _Run(reader, options.run, options.after or 0) if options.run is not None else _All(reader, options.since)
        is_over = False
        while not is_over:
            news, is_over = await _look(log, is_patient=options.follow)
            for signal in news:
                show(signal)
            if not options.follow:
                break
            await asyncio.sleep(POLL_SECONDS)
    if not show.count and not options.json:
        note("no such signals; helio run list lists the runs")


async def _database_made() -> None:
    """Wait until there is a database, with a note."""
    settings = read_settings(os.environ)
    if (lacking := missing_database(settings)) is not None:
        note(f"waiting: {lacking}")
    while missing_database(settings) is not None:  # noqa: ASYNC110  another process creates it and cannot ring a bell yet
        await asyncio.sleep(POLL_SECONDS)


async def _look(log: _Run | _All, *, is_patient: bool) -> tuple[list[Signal], bool]:
    """Call `log.look()`; with `is_patient`, retry until the database is back."""
    while True:
        try:
            return await log.look()
        except StoreUnavailable as error:
            if not is_patient:
                raise
            note(f"waiting for the database: {error.message}")
            await asyncio.sleep(OUTAGE_SECONDS)


class _Run:
    """Polls the log of one run."""

    def __init__(self, reader: Reader, run_id: str, after: int):
        self._reader = reader
        self._run_id = run_id
        self._after = after

    async def look(self) -> tuple[list[Signal], bool]:
        """New signals, and whether the log is complete. Raises NotFound."""
        run = await self._reader.run(self._run_id)  # before the pages, which then contain all of an ended run
        news = await read_on(self._reader, self._run_id, self._after)
        self._after = news[-1].seq if news else self._after
        return news, run.status == "ended"


class _All:
    """Polls the logs of all changing runs: since a time, or the newest runs and all later signals."""

    def __init__(self, reader: Reader, since: datetime | None):
        self._reader = reader
        self._since = since
        self._positions: dict[str, int] | None = None

    async def look(self) -> tuple[list[Signal], bool]:
        """New signals, in order of time."""
        is_first = self._positions is None
        positions = dict(self._positions or {})
        start = self._since if is_first and self._since else datetime.now(UTC)
        runs = await self._reader.runs_changed_since(start - _OVERLAP)
        if is_first and self._since is None:
            positions = {run.run_id: run.signal_count for run in runs}
            runs = await self._reader.runs(RUNS_MAX)
            for run in runs:
                positions.pop(run.run_id, None)
        news: list[Signal] = []
        for run in runs:
            after = positions.get(run.run_id, 0)
            page = await read_on(self._reader, run.run_id, after) if after < run.signal_count else []
            positions[run.run_id] = page[-1].seq if page else after
            news += page
        self._positions = positions  # last, so that an outage in between loses no signals
        return sorted(news, key=lambda signal: (signal.timestamp, signal.run_id, signal.seq)), False


async def read_on(reader: Reader, run_id: str, after: int) -> list[Signal]:
    """Read all signals after a position, in pages. Pruned signals leave gaps."""
    found: list[Signal] = []
    while page := await reader.signals(run_id, found[-1].seq if found else after):
        found += page
    return found
