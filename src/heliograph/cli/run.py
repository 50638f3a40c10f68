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
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from heliograph.cli.errors import INTERRUPTED
from heliograph.cli.files import read_state
from heliograph.cli.interrupts import graceful
from heliograph.cli.loading import load_app
from heliograph.cli.logs import show_logs
from heliograph.cli.output import clock, duration, json_line, line, reserved_stdout
from heliograph.cli.view import JsonView, LineView, View
from heliograph.errors import NotFound, Refused, StoreUnavailable
from heliograph.ledger.reader import TurnRow
from heliograph.reactive.workflow import Workflow
from heliograph.runtime import Runtime, open_runtime
from heliograph.signals.model import Signal
from heliograph.types import JsonObject
from heliograph.worker.loop import Worker

POLL_SECONDS = 1.0
QUIET_SECONDS = 2.0  # as long as something happens, nobody asks what a run waits for
OUTAGE_SECONDS = 1.0


def run(options: Namespace) -> int:
    """0 when the outcome is success, 130 when interrupted, else 1."""
    show_logs(logging.WARNING)
    if not options.json:
        return _prepared(options, None)
    with reserved_stdout() as own:  # from here on: the application's file may print while it is loaded
        return _prepared(options, own)


def _prepared(options: Namespace, own: TextIO | None) -> int:
    """Everything that can be refused without a database is refused before one is opened."""
    workflow = load_app(options.app).workflow
    state = None if options.state is None else read_state(options.state)
    return asyncio.run(_run(options, workflow, state, own))


async def _run(options: Namespace, workflow: Workflow, state: JsonObject | None, own: TextIO | None) -> int:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime())
        run_id, is_over, words = await _begin(runtime, workflow, state, options.run_id)
        view = JsonView(own) if own is not None else LineView()
        view.note(f"run {run_id} of {workflow.name} {words}; take it up again with: {_again(options, run_id)}")
        for warning in workflow.warnings:
            view.note(f"warning: {warning}")
        if own is None and _is_terminal():
            from heliograph.cli.live import LiveView  # late: only terminals need rich

            view = LiveView(f"{workflow.name}  {run_id}", workflow.agents)
        stack.callback(view.close)
        worker = None
        if not options.no_worker and not is_over:
            worker = runtime.worker(workflow, concurrency=options.concurrency, lease_seconds=options.lease)
        watch = _Watch(runtime, run_id, view)
        was_interrupted = await _watched(runtime, watch, worker, options.grace)
        view.close()
        if watch.end is not None:
            _print_end(run_id, watch.end, own)
        elif was_interrupted:
            view.note(f"run {run_id} is not over; take it up again with: {_again(options, run_id)}")
        if was_interrupted:
            return INTERRUPTED
        return 0 if watch.end is not None and watch.end["outcome"] == "success" else 1


async def _begin(
    runtime: Runtime, workflow: Workflow, state: JsonObject | None, run_id: str | None
) -> tuple[str, bool, str]:
    """The run's id, whether it is over, and in words what happened to it. Raises Refused (`id_conflict`)."""
    if run_id is not None and state is None:  # what it began with is known: nobody has to say it again
        with suppress(NotFound):
            row = await runtime.reader.run(run_id)
            if row.target != workflow.name:
                raise Refused(f"run {run_id} belongs to application {row.target}, not to {workflow.name}", code="id_conflict")
            return run_id, row.status == "ended", "has ended" if row.status == "ended" else "goes on"
    run_id, is_new = await runtime.start(workflow, state, run_id)
    if is_new:
        return run_id, False, "has started"
    row = await runtime.reader.run(run_id)
    return run_id, row.status == "ended", "has ended" if row.status == "ended" else "goes on"


async def _watched(runtime: Runtime, watch: _Watch, worker: Worker | None, grace_seconds: float) -> bool:
    """Work and watch until the run is over or somebody interrupts; answers whether somebody did."""

    def told(number: int) -> None:
        name = signals_of_the_os.Signals(number).name
        left = f"turns in hand get {grace_seconds:g} s, then others may take them" if worker else "others go on with it"
        watch.view.note(f"{name}: stopping; {left}. Once more ends this at once")

    with graceful(told) as stopping:
        tasks = {asyncio.create_task(watch.follow(), name="follow")}
        if worker is not None:
            tasks.add(asyncio.create_task(runtime.serve(worker, stopping, grace_seconds), name="serve"))
        else:
            tasks.add(asyncio.create_task(stopping.wait(), name="interrupted"))
        polling = asyncio.create_task(watch.poll(worker.name if worker else None))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            polling.cancel()
            for task in tasks:
                task.cancel()  # a worker hands back what it has in hand: those are turns of other runs by now
            outcomes = await asyncio.gather(*tasks, polling, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if stopping.is_set():
            with suppress(StoreUnavailable):
                await watch.catch_up()
        return stopping.is_set()


class _Watch:
    """The log of one run, shown as it grows. `end` is the payload of workflow:end, once it is there."""

    def __init__(self, runtime: Runtime, run_id: str, view: View):
        self.view = view
        self.end: JsonObject | None = None
        self._runtime = runtime
        self._run_id = run_id
        self._after = 0
        self._heard_at: datetime | None = None
        self._told: set[tuple[str, int | None]] = set()

    async def follow(self) -> None:
        """To the end of the run, however long the database is away."""
        while self.end is None:
            try:
                async for signal in self._runtime.follow(self._run_id, self._after):
                    self._show(signal)
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
        while True:
            with suppress(StoreUnavailable):
                turns = await self._runtime.reader.turns(run_id=self._run_id, limit=200)
                self.view.see_turns(turns)
                if self._is_quiet():
                    self._tell_of(turn for turn in turns if turn.owner is not None and turn.owner != own)
            await asyncio.sleep(POLL_SECONDS)
