"""`helio upgrade check`: would the open turns continue with this code?"""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TextIO

import msgspec

from heliograph.cli.existing_database import open_existing
from heliograph.cli.load_target import load_target
from heliograph.cli.output import json_line, line, reserved_stdout
from heliograph.config import read_settings
from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput, KernelRejected
from heliograph.ledger.open_turns import UnreadableTurn
from heliograph.ledger.reader import Reader
from heliograph.ledger.rows import OpenTurnRow
from heliograph.recording.ledger_parts import boxes_of
from heliograph.upgrade.checkers import check_turns
from heliograph.upgrade.divergence import TurnDivergence
from heliograph.upgrade.turn_process import CheckRequest

_PROCESSES_MAX = 8
START = (sys.executable, "-m", "heliograph.cli.upgrade_process")
# The options that `load_target` reads, which each process needs.
_TARGET_OPTIONS = (
    "tools", "model", "start_servers", "external_tools", "allow_secret_literals", "runtime", "routing",
)  # fmt: skip


def check(options: Namespace) -> int:
    """Check the open turns. Returns 0 if all continue, and 1 if one diverges or cannot be checked."""
    with reserved_stdout() as own:
        app = load_target(options.app, options)
        report = _Report(own, app.name, as_json=options.json)
        asyncio.run(_check(options, app.name, report))
        report.end()
    return 1 if report.diverged else 0


class _Report:
    """Prints each divergence when it is found, and the counts at the end."""

    def __init__(self, file: TextIO, application: str, *, as_json: bool):
        self._file = file
        self._application = application
        self._as_json = as_json
        self._began = monotonic()
        self._checked = 0
        self._noted = 0
        self._kinds: Counter[str] = Counter()

    @property
    def diverged(self) -> int:
        return self._kinds.total()

    def add(self, found: TurnDivergence | None) -> None:
        self._checked += 1
        if found is None:
            return
        if found.is_note:
            self._noted += 1
        else:
            self._kinds[found.kind] += 1
        if self._as_json:
            json_line("turn_check", found.as_json(), self._file)
            return
        for text in found.lines():
            line(text, self._file)

    def end(self) -> None:
        seconds = monotonic() - self._began
        if self._as_json:
            json_line("upgrade_check", {"application": self._application, "checked": self._checked, "diverged": self.diverged, "noted": self._noted, "kinds": dict(self._kinds),
                       "seconds": round(seconds, 3)}, self._file)  # fmt: skip
            return
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._kinds.items()))
        outcome = f"{self.diverged} would diverge ({kinds})" if self.diverged else "all of them continue with this code"
        if self._noted:
            outcome += f"; in {self._noted}, a recorded reply answers another prompt, system text or tools"
        turns = counted(self._checked, "open turn")
        line(f"checked {turns} of {self._application} in {seconds:.1f} s: {outcome}" if self._checked else
             f"{self._application} has no open turns in this project", self._file)  # fmt: skip


async def _check(options: Namespace, application: str, report: _Report) -> None:
    settings = read_settings(os.environ)
    wanted = f"run {options.run}" if options.run else f"turns of {application}"
    async with open_existing(wanted, reads_only=True) as reader:
        if options.run:
            await _check_run(reader, options.run, application)
        first = {"reference": options.app, "project": settings.project, "timeout_seconds": options.timeout,
                 "options": {name: getattr(options, name) for name in _TARGET_OPTIONS}}  # fmt: skip
        count = options.processes or min(os.cpu_count() or 1, _PROCESSES_MAX)
        async with aclosing(_requests(reader, application, options)) as requests:
            await check_turns(
                requests, START, msgspec.json.encode(first), report.add, count=count, timeout_seconds=options.timeout
            )


async def _check_run(reader: Reader, run_id: str, application: str) -> None:
    run = await reader.run(run_id)
    if run.target != application:
        raise InvalidInput(f"run {run_id} is of the application {safe_repr(run.target)}, not of {application}", code="other_application",
                           path="--run")  # fmt: skip


async def _requests(
    reader: Reader, application: str, options: Any
) -> AsyncGenerator[CheckRequest | UnreadableTurn, None]:
    now = datetime.now(UTC)
    async with aclosing(reader.open_turns(application, options.run)) as turns:
        async for turn in turns:
            agent = turn.agent if isinstance(turn, UnreadableTurn) else turn.claimed.agent
            if options.agent in (None, agent):
                yield turn if isinstance(turn, UnreadableTurn) else await _request(reader, turn, now)


async def _request(reader: Reader, turn: OpenTurnRow, now: datetime) -> CheckRequest | UnreadableTurn:
    try:
        return CheckRequest(turn, {box: await reader.cards_of_box(box) for box in boxes_of(turn.claimed)}, now)
    except KernelRejected as error:  # it costs this turn, and no other
        claimed = turn.claimed
        return UnreadableTurn(claimed.run_id, claimed.turn_id, claimed.agent, f"a box that it reads: {error.message}")
