"""`helio record export` and `helio record list`, and `helio replay`: recordings of runs."""

from __future__ import annotations

import asyncio
import logging
from argparse import Namespace
from shlex import quote

from heliograph.cli.early_signals import end_at_sigint
from heliograph.cli.existing_database import open_existing
from heliograph.cli.load_application import load_app
from heliograph.cli.logs import show_logs
from heliograph.cli.output import json_line, line, moment, note, reserved_stdout, started_since, table
from heliograph.cli.replay_hints import hints
from heliograph.error_text import counted, safe_repr
from heliograph.errors import InvalidInput
from heliograph.ledger.rows import RecordingRow
from heliograph.recording.api import replay as replay_with
from heliograph.recording.export import export_recording
from heliograph.recording.file import read_recording, write_recording
from heliograph.recording.recording import Header, Recording
from heliograph.telemetry.logs import ROOT


def export(options: Namespace) -> int:
    """Write the recording of a run to a file."""
    recording = asyncio.run(_export(options.run))
    write_recording(recording, options.file)
    if options.json:
        json_line("recorded", {"file": options.file, "run_id": options.run, "signals": len(recording.signals), "parts": len(recording.parts),
                   "gaps": [{"part": gap.part, "reason": gap.reason} for gap in recording.gaps]})  # fmt: skip
        return 0
    sizes = {"signal": recording.signals, "part": recording.parts, "gap": recording.gaps}
    line(f"{options.file}: {', '.join(counted(len(each), noun) for noun, each in sizes.items())}")
    for gap in recording.gaps:
        note(f"gap: {gap.part}: {gap.reason}")
    return 0


def list_recordings(options: Namespace) -> int:
    rows = asyncio.run(_list(options))
    if options.json:
        for row in rows:
            json_line("recording", row)
    elif rows:
        table(("RUN", "APPLICATION", "NAME", "TAGS", "OUTCOME", "STARTED"),
              [(row.run_id, row.target, safe_repr(row.name or "-", 60), safe_repr(" ".join(row.tags) or "-", 60), row.outcome or "running",
                moment(row.started_at)) for row in rows])  # fmt: skip
    else:
        note("no such recordings; helio run FILE.py:app --record FILE makes one")
    return 0


def replay(options: Namespace) -> int:
    """Replay a recording. Returns 0 if the code does the same, and 1 if it diverges."""
    recording = read_recording(options.file, edited=options.edited)
    if options.app is None:
        raise _application_needed(options.file, recording.header)
    show_logs(logging.CRITICAL if options.ci or options.json else logging.WARNING)
    logging.getLogger(ROOT).handlers[0].addFilter(_Once())
    end_at_sigint()  # a replay owns nothing, and a KeyboardInterrupt would count as a failure of the agent that runs
    with reserved_stdout() as own:  # the application's file may print while it is loaded, and its agents while they run
        app = load_app(options.app)
        result = replay_with(
            recording, app, accept=options.accept, renamed_tools=dict(map(_renamed, options.renamed_tools))
        )
        if options.json:
            json_line("replay", {"run_id": recording.header.run_id, "is_same": result.is_same, "reproduced": result.reproduced,
                       "signals": len(result.signals), "line": result.line(),
                       "divergences": [each.as_json() for each in result.divergences],
                       "gaps": [{"part": gap.part, "reason": gap.reason} for gap in result.gaps]}, own)  # fmt: skip
        elif options.ci:
            line(result.line(), own)
        else:
            for text in result.lines():
                line(text, own)
            for hint in hints(recording, app.workflow, result, options.accept):
                note(f"hint: {hint}")
    return 0 if result.is_same else 1


class _Once(logging.Filter):
    """Drops repeated records: a turn that differs is replayed several times."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self._seen
        self._seen.add(message)
        return is_new


def _application_needed(file: str, header: Header) -> InvalidInput:
    """The error of a replay without --app. A recording is data, so it names its application, and the user decides which code runs."""
    command = f"helio replay {quote(file)} --app {quote(header.loaded_from or 'FILE.py:app')}"
    return InvalidInput(f"recording {safe_repr(file)} is of application {safe_repr(header.application)}; name the file that defines it",
                        code="required_field", path="--app", hint=safe_repr(command, 500))  # fmt: skip


async def _export(run_id: str) -> Recording:
    async with open_existing(f"run {run_id}") as reader:
        return await export_recording(reader, run_id)


async def _list(options: Namespace) -> list[RecordingRow]:
    async with open_existing() as reader:
        return await reader.recordings(options.name, options.tag, options.limit, outcome=options.outcome, target=options.app,
                                       since=started_since(options.since))  # fmt: skip


def _renamed(text: str) -> tuple[str, str]:
    old, _, new = text.partition("=")
    if not (old and new):
        raise InvalidInput(f"--renamed-tool is OLD=NEW, not {safe_repr(text)}", code="usage", path="--renamed-tool")
    return old, new
