"""Lines that show the open waits of a run or turn, each with the next command."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence
from datetime import datetime

from heliograph.cli.approval import project_of
from heliograph.cli.bindings import binding_options
from heliograph.cli.db import mask_password
from heliograph.cli.manifests import manifest_options
from heliograph.cli.output import duration, moment
from heliograph.error_text import counted
from heliograph.ledger.rows import TurnRow, WaitRow

UNCLAIMED_SECONDS = 3.0
_CHILDREN_LISTED = 3


class UnclaimedWatch:
    """Notice once, by the caller's clock, that no worker has claimed the work of a run for UNCLAIMED_SECONDS."""

    def __init__(self, run_id: str):
        self._run_id = run_id
        self._work: tuple[str, int | None] | None = None
        self._since = 0.0
        self._is_noted = False

    def note(self, turns: Sequence[TurnRow], now: datetime, seconds: float) -> str | None:
        """The name of the unclaimed work, once it is overdue. `seconds`: a monotonic clock; `now`: for deferred turns."""
        found = self._unclaimed(turns, now)
        if found is None or self._is_noted:
            self._work = None
            return None
        work, name = found
        if work != self._work:
            self._work, self._since = work, seconds
        if seconds - self._since < UNCLAIMED_SECONDS:
            return None
        self._is_noted = True
        return name

    def _unclaimed(self, turns: Sequence[TurnRow], now: datetime) -> tuple[tuple[str, int | None], str] | None:
        """The unclaimed work and its name. None while a worker runs a turn of this run, because it also claims the others."""
        if any(turn.owner is not None for turn in turns):
            return None
        if not turns:  # a worker starts the first turns of a run
            return (self._run_id, None), f"run {self._run_id}"
        for turn in turns:
            if turn.status == "dispatched" and (turn.due_at is None or turn.due_at <= now):
                return (turn.turn_id, turn.turn_epoch), f"{turn.agent} ({turn.turn_id})"
        return None


def deferral_of(turn: TurnRow, now: datetime) -> str | None:
    """The note on a deferred turn that is not due yet: when a worker continues it. None for any other turn."""
    if not turn.defer_count or turn.due_at is None or turn.due_at <= now:
        return None
    times = counted(turn.defer_count, "time")
    return (f"{turn.agent} ({turn.turn_id}) was deferred, {times} so far; a worker continues it at {moment(turn.due_at)}, "
            f"in {duration(turn.due_at - now)}")  # fmt: skip


def run_command(options: Namespace, run_id: str) -> str:
    """The command that executes a run, with the application and project of this one."""
    parts = ["helio", "run", options.app, "--run-id", run_id, *binding_options(options), *manifest_options(options)]
    if (project := project_of(options)) is not None:
        parts += ["--project", project]
    return shlex.join(parts)


def worker_command(options: Namespace) -> str:
    """The command that starts a worker for the application, database and project of a `helio run`."""
    parts = ["helio", "worker", options.app, *binding_options(options), *manifest_options(options)]
    if (project := project_of(options)) is not None:
        parts += ["--project", project]
    if hasattr(options, "database_url"):
        parts += ["--database-url", mask_password(options.database_url)]
    return shlex.join(parts)


def child_lines(waits: Iterable[WaitRow]) -> list[str]:
    """The children that a turn waits for, each with the command that shows it."""
    children = [wait for wait in waits if wait.kind == "child" and wait.state == "open"]
    lines = [f"{wait.tool}: helio turn show {wait.child_turn_id}" for wait in children[:_CHILDREN_LISTED]]
    if len(children) > _CHILDREN_LISTED:
        lines.append(f"{len(children) - _CHILDREN_LISTED} more: helio turn children {children[0].turn_id}")
    return lines
