"""`helio run show`: explain a run without its file: its state, its agents, its open waits, its errors and the next step."""

from __future__ import annotations

import asyncio
import json
import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.cli.approval import project_of, task_lines
from heliograph.cli.existing_database import open_existing
from heliograph.cli.layout import field_lines, table_lines
from heliograph.cli.output import ago, columns, duration, json_line, line, moment
from heliograph.cli.runs import row_json
from heliograph.cli.waits import child_lines, deferral_of
from heliograph.error_text import counted, printable_json, safe_repr
from heliograph.key_patterns import without_secrets
from heliograph.ledger.rows import RunRow, TurnRow, WaitRow, WorkerRow
from heliograph.signals.payload import with_sorted_keys

if TYPE_CHECKING:
    from heliograph.client.human_tasks import HumanTask
    from heliograph.ledger.reader import Reader

_TURNS_MAX = 1000
_ERRORS_MAX = 20
_WAITING_MAX = 20
_MESSAGE_MAX = 100_000


@dataclass
class _Facts:
    """What the database has about a run. turns: the newest first."""

    run: RunRow
    turns: Sequence[TurnRow]
    tasks: Sequence[HumanTask]
    waits: Sequence[WaitRow]
    errors: Sequence[dict[str, Any]]
    workers: Sequence[WorkerRow]


def show_run(options: Namespace) -> int:
    facts = asyncio.run(_read_existing(options.run))
    step = next_step(facts, project_of(options))
    agents = _agents(facts.turns)
    if options.json:
        json_line("run", {**row_json(facts.run), "agents": agents, "tasks": facts.tasks, "waits": facts.waits,
                          "errors": facts.errors, "next": step})  # fmt: skip
        return 0
    for text in _lines(facts, agents, step, project_of(options), columns()):
        line(text)
    return 0


async def run_lines(reader: Reader, run_id: str, project: str | None = None, width: int | None = None) -> list[str]:
    """What `helio run show` prints on a terminal of this width. Raises NotFound."""
    facts = await _read(reader, run_id)
    return _lines(facts, _agents(facts.turns), next_step(facts, project), project, width)


def _lines(
    facts: _Facts, agents: Sequence[dict[str, Any]], step: str, project: str | None, width: int | None
) -> list[str]:
    lines = field_lines(_described(facts), width)
    lines += printable_json(
        f"state        {json.dumps(without_secrets(with_sorted_keys(facts.run.state)), ensure_ascii=False, indent=2)}"
    ).splitlines()
    if agents:
        lines += [
            "",
            *table_lines(
                ("AGENT", "STATUS", "TURNS", "LAST TURN", "SINCE"), [_cells(agent) for agent in agents], width
            ),
        ]
    lines += _wait_lines(facts, project)
    for error in facts.errors:
        message = safe_repr(error["message"], _MESSAGE_MAX)
        lines += ["", f"error  {error['agent']} ({error['turn_id']}): {error['code']}: {message}"]
    return [*lines, "", f"next: {step}"]


async def _read_existing(run_id: str) -> _Facts:
    async with open_existing(f"run {run_id}") as reader:
        return await _read(reader, run_id)


async def _read(reader: Reader, run_id: str) -> _Facts:
    from heliograph.client.human_tasks import read_tasks

    run = await reader.run(run_id)
    turns = await reader.turns(run_id=run_id, limit=_TURNS_MAX)
    suspended = [turn for turn in turns if turn.activity == "awaiting_tool_result"][:_WAITING_MAX]
    waits = [wait for turn in suspended for wait in await reader.waits(turn.turn_id) if wait.state == "open"]
    tasks = await read_tasks(reader, run_id, _WAITING_MAX) if waits else []
    return _Facts(run, turns, tasks, waits, await _errors(reader, turns), await reader.workers(None))


async def _errors(reader: Reader, turns: Sequence[TurnRow]) -> list[dict[str, Any]]:
    """The errors of the first turns that failed, in the order of their ends."""
    failed = [turn for turn in reversed(turns) if turn.outcome in ("failed", "timeout")][:_ERRORS_MAX]
    found = []
    for turn in failed:
        cards = await reader.cards(turn.turn_id)
        content: Any = cards[-1].content if cards else None
        given = content.get("error") if isinstance(content, dict) else None
        error = given if isinstance(given, dict) else {}
        found.append({"agent": turn.agent, "turn_id": turn.turn_id, "outcome": turn.outcome,
                      "code": str(error.get("code")), "message": str(error.get("message", ""))})  # fmt: skip
    return found


def next_step(facts: _Facts, project: str | None = None) -> str:
    """The command that moves the run on, or that shows more of it."""
    run, scope = facts.run, "" if project is None else f" --project {shlex.quote(project)}"
    if run.status == "ended":
        if facts.errors:
            return f"fix the cause, then helio run retry {run.run_id} --app FILE.py:app{scope}"
        return f"helio play {run.run_id}{scope} plays it"
    if facts.tasks:
        count = len(facts.tasks)
        questions, lists = ("question", "lists it") if count == 1 else (f"{count} questions", "lists all")
        return f"answer the {questions} above; helio approval list --run {run.run_id}{scope} {lists}"
    is_owned = any(turn.owner for turn in facts.turns)
    if any(turn.status == "dispatched" for turn in facts.turns) and not is_owned:
        alive = sum(worker.health in ("healthy", "degraded", "unknown") for worker in facts.workers)
        serves = any(run.target in worker.capabilities for worker in facts.workers)
        if not alive or not serves:
            return f"no worker serves {run.target}: helio worker FILE.py:app{scope} starts one"
    if any(wait.kind == "external" for wait in facts.waits):
        return f"another program has to report a call; helio call list{scope} lists them"
    return f"helio signal tail --run {run.run_id} --follow{scope} follows it"


def _described(facts: _Facts) -> dict[str, str | None]:
    run = facts.run
    end = "" if run.ended_at is None else f"; it took {duration(run.ended_at - run.created_at)}"
    return {
        "run": run.run_id,
        "application": run.target,
        "status": _status(facts),
        "started": f"{moment(run.created_at)}, {ago(run.created_at)}{end}",
        "signals": str(run.signal_count),
        "turns": f"{run.activations}, {run.open_turns} open",
        "forked from": None if run.forked_from is None else f"{run.forked_from} at {run.forked_seq}",
    }


def _status(facts: _Facts) -> str:
    """The status and the outcome of the run, then the number of stopped turns: these do not change the outcome."""
    run = facts.run
    status = run.status if run.outcome is None else f"{run.status}, {run.outcome}"
    stopped = sum(turn.outcome == "canceled" for turn in facts.turns)
    if not stopped or run.outcome == "canceled":
        return status
    return f"{status}; {counted(stopped, 'turn')} {'was' if stopped == 1 else 'were'} stopped"


def _agents(turns: Sequence[TurnRow]) -> list[dict[str, Any]]:
    """The agents that have turns, in the order of their first turn."""
    found: dict[str, dict[str, Any]] = {}
    for turn in reversed(turns):
        count = found[turn.agent]["turns"] + 1 if turn.agent in found else 1
        found[turn.agent] = {"agent": turn.agent, "status": turn.outcome or turn.status, "phase": turn.phase, "turns": count,
                             "turn_id": turn.turn_id, "since": turn.finished_at or turn.created_at}  # fmt: skip
    return list(found.values())


def _cells(agent: dict[str, Any]) -> tuple[str, ...]:
    status = f"{agent['status']} {agent['phase'] or ''}".strip()
    return safe_repr(agent["agent"]), status, str(agent["turns"]), agent["turn_id"], ago(agent["since"])


def _wait_lines(facts: _Facts, project: str | None) -> list[str]:
    lines: list[str] = []
    for task in facts.tasks:
        first, *others = task_lines(task, project)
        lines += ["", f"waits for a person: {first}", *others]
    asked = {(task.turn_id, task.call_id) for task in facts.tasks}
    calls = [wait for wait in facts.waits if wait.kind != "child" and (wait.turn_id, wait.call_id) not in asked]
    now = datetime.now(UTC)
    others = [text for turn in facts.turns if (text := deferral_of(turn, now)) is not None]
    others += [f"waits for its child {text}" for text in child_lines(facts.waits)]
    others += [
        f"waits for call {wait.call_id} of {wait.turn_id}: {wait.tool}, since {moment(wait.opened_at)}"
        for wait in calls
    ]
    if others:
        lines += ["", *others]
    return lines
