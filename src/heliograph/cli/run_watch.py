"""Watch one run: show its signals, and note which workers, people and calls it waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from heliograph.adapters.base import AdapterServices
from heliograph.cli.approval import task_lines
from heliograph.cli.output import duration
from heliograph.cli.output_thread import OutputThread
from heliograph.cli.run_output import RunOutput
from heliograph.cli.waits import UnclaimedWatch, child_lines, deferral_of
from heliograph.definitions.signal_subscribers import signal_subscriber
from heliograph.error_text import counted
from heliograph.errors import StoreUnavailable
from heliograph.ledger.rows import TurnRow
from heliograph.runtime import Runtime
from heliograph.signals.model import Signal
from heliograph.signals.run_end import read_end
from heliograph.signals.signal_text import clock
from heliograph.signals.trace import TurnFailure, failure_of
from heliograph.subscriptions.run_deliveries import RunDeliveries
from heliograph.types import JsonObject

if TYPE_CHECKING:
    from heliograph.cli.ask_person import Asker

POLL_SECONDS = 1.0
QUIET_SECONDS = 2.0  # while signals arrive more often than this, the watch does not query the open waits of the run
OUTAGE_SECONDS = 1.0
_QUESTIONS_MAX = 50


class RunWatch:
    """Shows one run on a view, as fast as that can print. `end` is the payload of `workflow:end` after the run has ended.

    worker_command: the command that starts a worker, given when this process runs none. The view shows it when no other
    process claims the run's turns. asker: asks the questions of the run here.
    """

    def __init__(
        self, runtime: Runtime, run_id: str, view: OutputThread, project: str | None, worker_command: str | None = None,
        asker: Asker | None = None,
    ):  # fmt: skip
        self.view = view
        self.asker = asker
        self.end: JsonObject | None = None
        self.failures: list[TurnFailure] = []
        self._project = project
        self._questions: Counter[str] = Counter()
        self._runtime = runtime
        self._run_id = run_id
        self._deliveries = RunDeliveries(
            signal_subscriber("helio.run", ["**"], RunOutput(view, self._printed), "start", 1)
        )
        self._last_signal_at: datetime | None = None
        self._noted: set[tuple[object, ...]] = set()
        self._unclaimed = None if worker_command is None else UnclaimedWatch(run_id)
        self._worker_command = worker_command

    async def follow(self) -> None:
        """Show signals until the run ends, across outages of the database."""
        while self.end is None:
            try:
                await self._deliver(self._runtime.pages(self._run_id, self._deliveries.position))
                if self.end is None:
                    read_end(self._run_id, None)  # raises
            except StoreUnavailable as error:
                self.view.note(f"waiting for the database: {error.message}")
                await asyncio.sleep(OUTAGE_SECONDS)

    async def catch_up(self) -> None:
        """Show the recorded signals that are not shown yet."""
        await self._deliver(self._recorded())

    async def _recorded(self) -> AsyncGenerator[Sequence[Signal], None]:
        while page := await self._runtime.reader.signals(self._run_id, self._deliveries.position):
            yield page

    async def _deliver(self, pages: AsyncGenerator[Sequence[Signal], None]) -> None:
        await self._deliveries.run(AdapterServices(self._runtime.world, self._runtime.settings.project), pages)

    async def poll(self, own: str | None) -> None:
        """Once a second, update the turns on the view, and note other workers, calls and people. `own`: this process's worker."""
        is_first = True
        while True:
            with suppress(StoreUnavailable):
                turns = await self._runtime.reader.turns(run_id=self._run_id, limit=200)
                self.view.see_turns(turns)
                self._note_deferrals(turns)
                await self._note_questions(turns)
                if is_first or self._is_quiet():
                    self._note_others(turn for turn in turns if turn.owner not in (None, own))
                    await self._note_calls(turns)
                if self._unclaimed is not None:
                    self._note_unclaimed(self._unclaimed, turns)
                is_first = False
            await asyncio.sleep(POLL_SECONDS)

    def _printed(self, signal: Signal) -> None:
        self._last_signal_at = datetime.now(UTC)
        if (failure := failure_of(signal)) is not None:
            self.failures.append(failure)
        if signal.name == "workflow:end":
            self.end = read_end(self._run_id, signal)

    def _is_quiet(self) -> bool:
        return (
            self._last_signal_at is None or (datetime.now(UTC) - self._last_signal_at).total_seconds() >= QUIET_SECONDS
        )

    def _note_others(self, turns: Iterable[TurnRow]) -> None:
        """Note turns that other workers own: once per owner, and again when the lease is overdue."""
        now = datetime.now(UTC)
        for turn in turns:
            if turn.lease_until is None:
                continue
            is_overdue = turn.lease_until < now
            if (turn.turn_id, turn.turn_epoch, is_overdue) in self._noted:
                continue
            self._noted.add((turn.turn_id, turn.turn_epoch, is_overdue))
            lease = f"its lease expired at {clock(turn.lease_until)}; if the worker is dead, another worker now takes over the turn"
            if not is_overdue:
                lease = f"it must renew its lease by {clock(turn.lease_until)}, in {duration(turn.lease_until - now)}"
            self.view.note(f"waiting for {turn.agent} ({turn.turn_id}), owned by worker {turn.owner}; {lease}")

    def _note_deferrals(self, turns: Iterable[TurnRow]) -> None:
        """Note each turn that waits until it is repeated, for example after a failed model call: once per deferral."""
        now = datetime.now(UTC)
        for turn in turns:
            key = (turn.turn_id, turn.defer_count, "deferred")
            if key not in self._noted and (text := deferral_of(turn, now)) is not None:
                self._noted.add(key)
                self.view.note(text)

    async def _note_questions(self, turns: Iterable[TurnRow]) -> None:
        """Note each approval and question once, with the command that answers it."""
        if not any(turn.activity == "awaiting_tool_result" for turn in turns):
            if self.asker is not None:
                self.asker.see([])
            return
        from heliograph.client.human_tasks import read_tasks  # late: most runs have no questions

        tasks = await read_tasks(self._runtime.reader, self._run_id, _QUESTIONS_MAX)
        self._questions = Counter(task.turn_id for task in tasks)
        for task in tasks:
            if (task.turn_id, task.call_id, "asks") in self._noted:
                continue
            self._noted.add((task.turn_id, task.call_id, "asks"))
            first, *others = task_lines(task, self._project)
            for text in (f"waiting for a person: {first}", *others):
                self.view.note(text)
        if self.asker is not None:
            self.asker.see(tasks)

    def _note_unclaimed(self, unclaimed: UnclaimedWatch, turns: Sequence[TurnRow]) -> None:
        if (work := unclaimed.note(turns, datetime.now(UTC), asyncio.get_running_loop().time())) is not None:
            self.view.warn(f"no worker has claimed {work} yet. If none is running, start one: {self._worker_command}")

    async def _note_calls(self, turns: Iterable[TurnRow]) -> None:
        """Note each suspended turn once per suspension. Questions to people have their own note."""
        for turn in turns:
            if turn.activity != "awaiting_tool_result" or (turn.turn_id, turn.turn_epoch) in self._noted:
                continue
            self._noted.add((turn.turn_id, turn.turn_epoch))
            waits = [wait for wait in await self._runtime.reader.waits(turn.turn_id) if wait.state == "open"]
            for text in child_lines(waits):
                self.view.note(f"{turn.agent} ({turn.turn_id}) waits for its child {text}")
            count = sum(wait.kind != "child" for wait in waits) - self._questions.get(turn.turn_id, 0)
            if count > 0:
                self.view.note(f"{turn.agent} ({turn.turn_id}) waits for {counted(count, 'call')}: see helio turn show "
                               f"{turn.turn_id}; helio call list lists the calls to report")  # fmt: skip
