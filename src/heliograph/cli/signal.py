"""`helio signal tail|trace|why`: read or follow the log of signals, and trace causes."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from datetime import UTC, datetime, timedelta

from heliograph.cli.existing_database import missing_database, open_client, open_existing
from heliograph.cli.output import clock, json_line, line, note
from heliograph.cli.signal_text import line_payload, meaning, woken_by
from heliograph.config import read_settings
from heliograph.errors import InvalidInput, NotFound, StoreUnavailable
from heliograph.ledger.reader import Reader
from heliograph.signals.model import Signal, to_wire
from heliograph.signals.pattern import Pattern, compile_pattern
from heliograph.signals.trace import chain, children, draw_tree

POLL_SECONDS = 0.5
OUTAGE_SECONDS = 1.0
RUNS_MAX = 10  # by `tail` without --run and --since
# The server stamps a run's last change before it commits, by its own clock: look this far back for changed runs.
# Positions identify printed signals, so looking too far back costs a query and shows nothing twice.
_OVERLAP = timedelta(minutes=5)


def tail(options: Namespace) -> int:
    patterns = [compile_pattern(text) for text in options.patterns]
    try:
        asyncio.run(_tail(options, patterns))
    except KeyboardInterrupt:
        if not options.follow:
            raise  # an interrupt is the normal end of --follow
    return 0


def trace(options: Namespace) -> int:
    signals = asyncio.run(_trace(options.subject))
    if options.json:
        for signal in signals:
            json_line(to_wire(signal))
    else:
        for text in draw_tree(signals):
            line(text)
    return 0


def why(options: Namespace) -> int:
    signals = asyncio.run(_whole_run(options.signal))
    below = children(signals)
    for position, signal in enumerate(chain(signals, options.signal)):
        woken = woken_by(below.get(signal.id, ()))
        if options.json:
            json_line({**to_wire(signal), "meaning": meaning(signal), "woke": woken})
            continue
        if position:
            line("because")
        line(f"{signal.id}  {signal.name}  {line_payload(signal)}".rstrip())
        woke = f" It woke {', '.join(woken)}." if woken else ""
        line(f"    {meaning(signal)}{woke}")
    return 0


async def _follow(options: Namespace, patterns: list[Pattern]) -> None:
    """Follow the log of one run; bells announce new signals."""
    after = options.after or 0
    async with open_client(f"run {options.run}") as client:
        while True:
            try:
                async for signal in client.follow(options.run, after):
                    after = signal.seq
                    if _is_wanted(signal, options.since, patterns):
                        _print(signal, as_json=options.json)
            except StoreUnavailable as error:
                note(f"waiting for the database: {error.message}")
                await asyncio.sleep(OUTAGE_SECONDS)
            else:
                return


async def _tail(options: Namespace, patterns: list[Pattern]) -> None:
    if options.run is None and options.after is not None:
        raise InvalidInput(
            "--after is a position in the log of one run: name it with --run", code="usage", path="--after"
        )
    if options.run is not None and options.follow:
        await _follow(options, patterns)
        return
    found = 0
    if options.follow and options.run is None:
        await _database_made()
    async with open_existing(None if options.run is None else f"run {options.run}") as reader:
        log = _Run(reader, options.run, options.after or 0) if options.run is not None else _All(reader, options.since)
        is_over = False
        while not is_over:
            news, is_over = await _look(log, is_patient=options.follow)
            for signal in news:
                if _is_wanted(signal, options.since, patterns):
                    found += 1
                    _print(signal, as_json=options.json)
            if not options.follow:
                break
            await asyncio.sleep(POLL_SECONDS)
    if not found and not options.json:
        note("no such signals; helio runs lists the runs")


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


async def _trace(subject: str) -> list[Signal]:
    """The log of a run; or a signal and all its effects, in the order of the log."""
    if not subject.startswith("sig_"):
        async with open_existing(f"run {subject}") as reader:
            await reader.run(subject)
            return await reader.all_signals(subject)
    wanted: set[str | None] = {subject}
    found = []
    for signal in await _whole_run(subject):  # a parent comes before its children
        if signal.id in wanted or signal.parent in wanted:
            wanted.add(signal.id)
            found.append(signal)
    return found


async def _whole_run(signal_id: str) -> list[Signal]:
    async with open_existing(f"signal {signal_id}") as reader:
        try:
            return await reader.all_signals(await reader.run_of_signal(signal_id))
        except NotFound as error:
            raise await _named_otherwise(reader, signal_id) or error from None


async def _named_otherwise(reader: Reader, identifier: str) -> NotFound | None:
    """The error for a run id in place of a signal id; None for any other id."""
    try:
        await reader.run(identifier)
    except NotFound:
        return None
    return NotFound(f"{identifier} is a run, not a signal: helio signal trace {identifier} draws it, "
                    f"helio signal tail --run {identifier} lists its signals", code="unknown_signal")  # fmt: skip


def _is_wanted(signal: Signal, since: datetime | None, patterns: list[Pattern]) -> bool:
    if since is not None and signal.timestamp < since:
        return False
    return not patterns or any(pattern.matches(signal.name) for pattern in patterns)


def _print(signal: Signal, *, as_json: bool) -> None:
    if as_json:
        json_line(to_wire(signal))
    else:
        who = signal.agent or "-"
        line(f"{clock(signal.timestamp)}  {signal.id}  {signal.name}  {who}  {line_payload(signal)}".rstrip())
