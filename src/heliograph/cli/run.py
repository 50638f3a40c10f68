"""`helio run FILE.py:app`: start or resume a run, work on it, and show it until it ends."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal as signals_of_the_os
import sys
from argparse import Namespace
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TextIO

from heliograph.cli.approval import project_of
from heliograph.cli.early_signals import INTERRUPTED
from heliograph.cli.files import read_state
from heliograph.cli.interrupts import end_within, graceful, run_agents
from heliograph.cli.load_target import load_target
from heliograph.cli.logs import Places, show_logs
from heliograph.cli.manifests import configure
from heliograph.cli.output import DirectOutput, block, duration, json_line, line, reserved_stdout
from heliograph.cli.output_thread import OutputThread
from heliograph.cli.run_views import JsonView, LineView, NameFilter, View, work_filter
from heliograph.cli.run_watch import RunWatch
from heliograph.cli.waits import run_command, worker_command
from heliograph.config import CLOSE_SECONDS
from heliograph.error_text import printable_json, safe_repr
from heliograph.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from heliograph.key_patterns import without_secrets
from heliograph.ledger.rows import RunRow
from heliograph.reactive.workflow import Workflow
from heliograph.recording.export import export_recording
from heliograph.recording.file import check_writable, write_recording
from heliograph.recording.options import RecordingOptions
from heliograph.runtime import Runtime, open_runtime, telemetry_of
from heliograph.signals.payload import with_sorted_keys
from heliograph.types import JsonObject
from heliograph.worker.claim_loop import Worker

if TYPE_CHECKING:
    from heliograph.cli.ask_person import Asker

_FAILURES_MAX = 20
_REASON_MAX = 100_000


def run(options: Namespace) -> int:
    """Start or resume a run, and show it. Returns 0 for the outcome success, 1 for any other, and 130 for an interrupt."""
    places = show_logs(logging.WARNING)
    if not options.json:
        return _load_and_run(options, places, None)
    with reserved_stdout() as own:  # the application's file may print while it is loaded
        return _load_and_run(options, places, own)


def _load_and_run(options: Namespace, places: Places, own: TextIO | None) -> int:
    """Load the application and the state, so that their errors are raised before a database is opened."""
    workflow = configure(load_target(options.app, options), options).workflow
    state = None if options.state is None else read_state(options.state)
    if options.record is not None:
        check_writable(options.record)
    return run_agents(_run(options, workflow, state, places, own))


async def _run(
    options: Namespace, workflow: Workflow, state: JsonObject | None, places: Places, own: TextIO | None
) -> int:
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(telemetry=telemetry_of([workflow], os.environ)))
        if not options.no_worker:  # before the run starts, so that they receive all of its signals
            await stack.enter_async_context(runtime.serving_subscribers([workflow]))
        run_id, is_over, standing = await _begin(runtime, workflow, state, options)
        view = _open_view(workflow, run_id, own, _filter(options), [
            f"run {run_id} of {workflow.name} {standing}" + ("" if is_over else f"; {_again(options, run_id)}"),
            *(f"warning: {warning}" for warning in workflow.warnings),
        ])  # fmt: skip
        stack.push_async_callback(view.close)
        worker = None
        if not options.no_worker and not is_over:
            worker = runtime.worker(
                workflow,
                concurrency=options.concurrency,
                lease_seconds=options.lease,
                run_id=run_id,
                pools=workflow.pools,
            )
        command = worker_command(options) if options.no_worker else None
        asker = None
        if not (is_over or options.no_ask or options.json):
            asker = _asker(runtime, view)
        watch = RunWatch(runtime, run_id, view, project_of(options), command, asker)
        await _work_and_watch(runtime, watch, worker, options.grace)
        if watch.end is None:
            view.note(f"run {run_id} has not ended; {_again(options, run_id)}")
            await view.drained()
            return INTERRUPTED
        if options.record is not None:
            recording = await export_recording(runtime.reader, run_id)
            write_recording(
                replace(recording, header=replace(recording.header, loaded_from=options.app)), options.record
            )
            view.note(f"recorded in {options.record}")
        await view.drained()
        _print_end(run_id, watch.end, watch, places, own)
        return 0 if watch.end["outcome"] == "success" else 1


def _filter(options: Namespace) -> NameFilter:
    """The signals to show. Programs receive all of them, unless they select some."""
    return work_filter(options.show, shows_all=options.all or options.json)


def _open_view(
    workflow: Workflow, run_id: str, own: TextIO | None, is_wanted: NameFilter, notes: list[str]
) -> OutputThread:
    """Print the notes, then open the view: JSON, plain lines, or a live view on a terminal."""
    plain: View = JsonView(own, is_wanted) if own is not None else LineView(is_wanted, DirectOutput())
    for each in notes:
        plain.note(each)
    if own is not None or not _is_terminal():
        return OutputThread(plain)
    from heliograph.cli.live_view import LiveView  # late: only terminals need rich

    return OutputThread(LiveView(f"{workflow.name}  {run_id}", workflow.agents, is_wanted))


def _asker(runtime: Runtime, view: OutputThread) -> Asker | None:
    """What asks the questions of the run at this terminal; None without one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    from heliograph.cli.ask_person import Asker, may_ask  # late: only terminals need them
    from heliograph.cli.terminal_lines import TerminalLines

    return Asker(runtime, view, TerminalLines().read) if may_ask() else None


async def _begin(
    runtime: Runtime, workflow: Workflow, state: JsonObject | None, options: Namespace
) -> tuple[str, bool, str]:
    """Start or resume the run. Returns its id, whether it has ended, and a phrase for its status.

    Raises Conflict (`id_conflict`), InvalidInput.
    """
    run_id: str | None = options.run_id
    if run_id is not None and state is None:  # an existing run resumes without its initial state
        with suppress(NotFound):
            row = await runtime.reader.run(run_id)
            if row.target != workflow.name:
                raise Conflict(f"run {run_id} belongs to application {row.target}, not to {workflow.name}",
                              code="id_conflict")  # fmt: skip
            return _standing(row)
    try:
        run_id, is_new = await runtime.start(workflow, state, run_id, options.callback, _record_of(options))
    except InvalidInput as error:
        if error.code == "invalid_state":
            error.hint = "--state '{...}' or --state @FILE gives the state"
        raise
    if is_new:
        return run_id, False, "has started"
    return _standing(await runtime.reader.run(run_id))


def _record_of(options: Namespace) -> RecordingOptions | None:
    """How the run is recorded; None if no option asks for it."""
    if options.record is None and options.record_name is None and not options.tag:
        return None
    return RecordingOptions(options.record_name, options.tag)


def _standing(row: RunRow) -> tuple[str, bool, str]:
    is_over = row.status == "ended"
    return row.run_id, is_over, "has ended" if is_over else "continues"


async def _work_and_watch(runtime: Runtime, watch: RunWatch, worker: Worker | None, grace_seconds: float) -> None:
    """Work and watch until the run ends (`watch.end` is set) or a signal interrupts it."""

    def on_signal(number: int) -> None:
        name = signals_of_the_os.Signals(number).name
        left = (
            f"running turns have {grace_seconds:g} s to finish, then other workers can claim them"
            if worker
            else "other workers continue the run"
        )
        if worker is not None:
            worker.stop()  # at once: an ending that comes before `serve` notices would carry the claim of another turn
        watch.view.note(f"{name}: stopping; {left}. A second signal ends the process at once")
        end_within(grace_seconds + CLOSE_SECONDS, INTERRUPTED)

    with graceful(on_signal) as stopping:
        work = (
            runtime.serve(worker, stopping, grace_seconds, subscribers=False) if worker is not None else _wait(stopping)
        )
        tasks = [asyncio.create_task(watch.follow()), asyncio.create_task(work)]
        beside = [asyncio.create_task(watch.poll(worker.name if worker is not None else None))]
        if watch.asker is not None:
            beside.append(asyncio.create_task(watch.asker.run()))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, *beside):
                task.cancel()  # the worker releases its turns
            outcomes = await asyncio.gather(*tasks, *beside, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        if stopping.is_set():
            with suppress(StoreUnavailable):
                await watch.catch_up()


async def _wait(stopping: asyncio.Event) -> None:
    await stopping.wait()


def _again(options: Namespace, run_id: str) -> str:
    return f"resume it with: {run_command(options, run_id)}"


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _print_end(run_id: str, end: JsonObject, watch: RunWatch, places: Places, own: TextIO | None) -> None:
    failures, state = watch.failures, with_sorted_keys(end["state"])
    if own is not None:
        why = {key: end[key] for key in ("reason", "code") if key in end}
        found = [
            asdict(each) | ({"place": places[each.turn_id]} if each.turn_id in places else {}) for each in failures
        ]
        why |= {"failures": found} if found else {}  # type: ignore[dict-item]
        json_line(
            "result",
            {"run_id": run_id, "outcome": end["outcome"], "state": state, "metrics": end["metrics"], **why},
            own,
        )
        return
    metrics: Any = end["metrics"]
    usage = metrics["usage"]
    reason = f" ({safe_repr(end['reason'], _REASON_MAX)})" if "reason" in end else ""
    line(f"outcome  {end['outcome']}{reason}")
    for failure in failures[:_FAILURES_MAX]:
        place = f" ({places[failure.turn_id]})" if failure.turn_id in places else ""
        line(f"{failure.outcome.ljust(7)}  {failure.agent} ({failure.turn_id}): {failure.code}: "
             f"{safe_repr(failure.message, _REASON_MAX)}{place}")  # fmt: skip
    if len(failures) > _FAILURES_MAX:
        line(f"         and {len(failures) - _FAILURES_MAX} more: helio turn list --run {run_id} --status failed")
    line(f"turns    {metrics['turns']}, failed {metrics['failed']}, skipped {metrics['skipped']}")
    line(f"tokens   {usage['inputTokens']} in, {usage['outputTokens']} out")
    line(f"took     {duration(timedelta(milliseconds=metrics['duration_ms']))}")
    block(printable_json(f"state    {json.dumps(without_secrets(state), ensure_ascii=False, indent=2)}"))
