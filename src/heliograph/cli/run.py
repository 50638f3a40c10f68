"""`helio run FILE.py:app`: start a run or take it up, work on it, show it, and end as it ended."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import signal as signals_of_the_os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from heliograph.cli.approval import project_of, task_lines
from heliograph.cli.early_signals import INTERRUPTED
from heliograph.cli.files import read_state
from heliograph.cli.interrupts import graceful, run_agents
from heliograph.cli.load_application import load_app
from heliograph.cli.logs import show_logs
from heliograph.cli.output import clock, duration, json_line, line, reserved_stdout
from heliograph.cli.run_views import JsonView, LineView, View
from heliograph.cli.waits import UnclaimedWatch, child_lines, worker_command
from heliograph.errors import NotFound, Rejected, StoreUnavailable, safe_repr
from heliograph.ledger.reader import RunRow, TurnRow
from heliograph.reactive.workflow import Workflow
from heliograph.runtime import Runtime, open_runtime
from heliograph.signals.model import Signal
from heliograph.signals.run_end import read_end
from heliograph.signals.trace import TurnFailure, failure_of
from heliograph.types import JsonObject
from heliograph.worker.claim_loop import Worker

POLL_SECONDS = 1.0
QUIET_SECONDS = 2.0  # as long as something happens, nobody asks what a run waits for
OUTAGE_SECONDS = 1.0
_QUESTIONS_MAX = 50
_FAILURES_MAX = 20
_REASON_MAX = 100_000


def run(options: Namespace) -> int:
    """0 when the outcome is success, 1 when it is another, 130 when it was interrupted before there was one."""
    show_logs(logging.WARNING)
    if not options.json:
        return _prepared(options, None)
    with reserved_stdout() as own:  # from here on: the application's file may print while it is loaded
        return _prepared(options, own)


def _prepared(options: Namespace, own: TextIO | None) -> int:
    """Everything that can be refused without a database is refused before one is opened."""
    workflow = load_app(options.app).workflow
    state = None if options.state is None else read_state(options.state)
    return run_agents(_run(options, workflow, state, own))


async def _run(options: Namespace, workflow: Workflow, state: JsonObject | None, own: TextIO | None) -> int:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime())
        run_id, is_over, words = await _begin(runtime, workflow, state, options)
        view = _open_view(workflow, run_id, own, [
            f"run {run_id} of {workflow.name} {words}" + ("" if is_over else f"; {_again(options, run_id)}"),
            *(f"warning: {warning}" for warning in workflow.warnings),
        ])  # fmt: skip
        stack.callback(view.close)
        worker = None
        if not options.no_worker and not is_over:
            worker = runtime.worker(
                workflow, concurrency=options.concurrency, lease_seconds=options.lease, run_id=run_id
            )
        command = worker_command(options) if options.no_worker else None
        watch = _Watch(runtime, run_id, view, project_of(options), command)
        await _watched(runtime, watch, worker, options.grace)
        view.close()
        if watch.end is None:
            view.note(f"run {run_id} is not over; {_again(options, run_id)}")
            return INTERRUPTED
        _print_end(run_id, watch.end, watch.failures, own)
        return 0 if watch.end["outcome"] == "success" else 1


def _open_view(workflow: Workflow, run_id: str, own: TextIO | None, notes: list[str]) -> View:
    """The view that suits whoever reads, after these notes."""
    plain: View = JsonView(own) if own is not None else LineView()
    for each in notes:
        plain.note(each)
    if own is not None or not _is_terminal():
        return plain
    from heliograph.cli.live_view import LiveView  # late: only terminals need rich

    return LiveView(f"{workflow.name}  {run_id}", workflow.agents)


async def _begin(
    runtime: Runtime, workflow: Workflow, state: JsonObject | None, options: Namespace
) -> tuple[str, bool, str]:
    """The run's id, whether it is over, and in words what happened to it. Raises Rejected (`id_conflict`)."""
    run_id: str | None = options.run_id
    if run_id is not None and state is None:  # what it began with is known: nobody has to say it again
        with suppress(NotFound):
            row = await runtime.reader.run(run_id)
            if row.target != workflow.name:
                raise Rejected(f"run {run_id} belongs to application {row.target}, not to {workflow.name}",
                              code="id_conflict")  # fmt: skip
            return _stand(row)
    run_id, is_new = await runtime.start(workflow, state, run_id, options.callback)
    if is_new:
        return run_id, False, "has started"
    return _stand(await runtime.reader.run(run_id))


def _stand(row: RunRow) -> tuple[str, bool, str]:
    is_over = row.status == "ended"
    return row.run_id, is_over, "has ended" if is_over else "goes on"


async def _watched(runtime: Runtime, watch: _Watch, worker: Worker | None, grace_seconds: float) -> None:
    """Work and watch until the run is over, or somebody interrupts: then `watch.end` tells whether it is."""

    def on_signal(number: int) -> None:
        name = signals_of_the_os.Signals(number).name
        left = f"turns in hand get {grace_seconds:g} s, then others may take them" if worker else "others go on with it"
        watch.view.note(f"{name}: stopping; {left}. Once more ends this at once")

    with graceful(on_signal) as stopping:
        work = runtime.serve(worker, stopping, grace_seconds) if worker is not None else _wait(stopping)
        tasks = [asyncio.create_task(watch.follow()), asyncio.create_task(work)]
        polling = asyncio.create_task(watch.poll(worker.name if worker is not None else None))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, polling):
                task.cancel()  # a worker hands back what it has in hand: those are turns of other runs by now
            outcomes = await asyncio.gather(*tasks, polling, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if stopping.is_set():
            with suppress(StoreUnavailable):
                await watch.catch_up()


async def _wait(stopping: asyncio.Event) -> None:
    await stopping.wait()


class _Watch:
    """The log of one run, shown as it grows. `end` is the payload of workflow:end, once it is there.

    worker_command: starts a worker, where this process has none; noted when no other process claims the run's work.
    """

    def __init__(
        self, runtime: Runtime, run_id: str, view: View, project: str | None, worker_command: str | None = None
    ):
        self.view = view
        self.end: JsonObject | None = None
        self.failures: list[TurnFailure] = []
        self._project = project
        self._questions: Counter[str] = Counter()
        self._runtime = runtime
        self._run_id = run_id
        self._after = 0
        self._last_signal_at: datetime | None = None
        self._noted: set[tuple[object, ...]] = set()
        self._unclaimed = None if worker_command is None else UnclaimedWatch(run_id)
        self._worker_command = worker_command

    async def follow(self) -> None:
        """To the end of the run, however long the database is away."""
        while self.end is None:
            try:
                async for signal in self._runtime.follow(self._run_id, self._after):
                    self._show(signal)
                if self.end is None:
                    read_end(self._run_id, None)  # raises
            except StoreUnavailable as error:
                self.view.note(f"waiting for the database: {error.message}")
                await asyncio.sleep(OUTAGE_SECONDS)

    async def catch_up(self) -> None:
        """Show what is in the log and was not shown yet."""
        while page := await self._runtime.reader.signals(self._run_id, self._after):
            for signal in page:
                self._show(signal)

    async def poll(self, own: str | None) -> None:
        """Tell the view how the turns stand, and people who is waited for. `own` is this process's worker."""
        is_first = True
        while True:
            with suppress(StoreUnavailable):
                turns = await self._runtime.reader.turns(run_id=self._run_id, limit=200)
                self.view.see_turns(turns)
                await self._note_questions(turns)
                if is_first or self._is_quiet():
                    self._note_others(turn for turn in turns if turn.owner not in (None, own))
                    await self._note_calls(turns)
                if self._unclaimed is not None:
                    self._note_unclaimed(self._unclaimed, turns)
                is_first = False
            await asyncio.sleep(POLL_SECONDS)

    def _show(self, signal: Signal) -> None:
        self.view.show(signal)
        self._after = signal.seq
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
        """Note turns of other workers, once per owner, and once more when its lease is overdue: the owner may be dead."""
        now = datetime.now(UTC)
        for turn in turns:
            if turn.lease_until is None:
                continue
            is_overdue = turn.lease_until < now
            if (turn.turn_id, turn.turn_epoch, is_overdue) in self._noted:
                continue
            self._noted.add((turn.turn_id, turn.turn_epoch, is_overdue))
            lease = f"its lease ended at {clock(turn.lease_until)}; if that worker is dead, another one takes the turn over now"
            if not is_overdue:
                lease = f"it has to renew its lease by {clock(turn.lease_until)}, in {duration(turn.lease_until - now)}"
            self.view.note(f"waiting for {turn.agent} ({turn.turn_id}), held by worker {turn.owner}; {lease}")

    async def _note_questions(self, turns: Iterable[TurnRow]) -> None:
        """Note each question to a person once and at once, with the command that answers it."""
        if not any(turn.activity == "awaiting_tool_result" for turn in turns):
            return
        from heliograph.client.human_tasks import read_tasks  # late: most runs ask nobody

        tasks = await read_tasks(self._runtime.reader, self._run_id, _QUESTIONS_MAX)
        self._questions = Counter(task.turn_id for task in tasks)
        for task in tasks:
            if (task.turn_id, task.call_id, "asks") in self._noted:
                continue
            self._noted.add((task.turn_id, task.call_id, "asks"))
            first, *others = task_lines(task, self._project)
            for text in (f"waiting for a person: {first}", *others):
                self.view.note(text)

    def _note_unclaimed(self, unclaimed: UnclaimedWatch, turns: Sequence[TurnRow]) -> None:
        if (work := unclaimed.note(turns, datetime.now(UTC), asyncio.get_running_loop().time())) is not None:
            self.view.warn(f"no worker has claimed {work} yet. If none is running, start one: {self._worker_command}")

    async def _note_calls(self, turns: Iterable[TurnRow]) -> None:
        """Note turns that wait for calls, once each time they wait; questions to people have a note of their own."""
        for turn in turns:
            if turn.activity != "awaiting_tool_result" or (turn.turn_id, turn.turn_epoch) in self._noted:
                continue
            self._noted.add((turn.turn_id, turn.turn_epoch))
            waits = [wait for wait in await self._runtime.reader.waits(turn.turn_id) if wait.state == "open"]
            for text in child_lines(waits):
                self.view.note(f"{turn.agent} ({turn.turn_id}) waits for its child {text}")
            count = sum(wait.kind != "child" for wait in waits) - self._questions.get(turn.turn_id, 0)
            if count > 0:
                self.view.note(f"{turn.agent} ({turn.turn_id}) waits for {count} calls: helio turn show "
                               f"{turn.turn_id} shows them, helio calls lists those that are to be reported")  # fmt: skip


def _again(options: Namespace, run_id: str) -> str:
    parts = ["helio", "run", options.app, "--run-id", run_id]
    if (project := project_of(options)) is not None:
        parts += ["--project", project]
    return f"take it up again with: {shlex.join(parts)}"


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _print_end(run_id: str, end: JsonObject, failures: list[TurnFailure], own: TextIO | None) -> None:
    if own is not None:
        why = {key: end[key] for key in ("reason", "code") if key in end}
        why |= {"failures": failures} if failures else {}  # type: ignore[dict-item]
        json_line({"run_id": run_id, **{key: end[key] for key in ("outcome", "state", "metrics")}, **why}, own)
        return
    metrics: Any = end["metrics"]
    usage = metrics["usage"]
    reason = f" ({end['reason']})" if "reason" in end else ""
    line(f"outcome  {end['outcome']}{reason}")
    for failure in failures[:_FAILURES_MAX]:
        line(f"{failure.outcome.ljust(7)}  {failure.agent} ({failure.turn_id}): {failure.code}: "
             f"{safe_repr(failure.message, _REASON_MAX)}")  # fmt: skip
    if len(failures) > _FAILURES_MAX:
        line(f"         and {len(failures) - _FAILURES_MAX} more: helio turn list --run {run_id} --status failed")
    line(f"turns    {metrics['turns']}, failed {metrics['failed']}, skipped {metrics['skipped']}")
    line(f"tokens   {usage['inputTokens']} in, {usage['outputTokens']} out")
    line(f"took     {duration(timedelta(milliseconds=metrics['duration_ms']))}")
    line(f"state    {json.dumps(end['state'], ensure_ascii=False, indent=2)}")
