"""`helio approval`: list open approvals and questions, and decide or answer them."""

from __future__ import annotations

import asyncio
import shlex
from argparse import Namespace
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heliograph.cli.arguments import login_name
from heliograph.cli.existing_database import open_client, open_list
from heliograph.cli.files import read_value
from heliograph.cli.output import duration, json_line, line, moment, note, started_since, width
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.key_patterns import json_without_secrets
from heliograph.signals.form_fields import fields_of, fields_text
from heliograph.types import JsonObject

if TYPE_CHECKING:
    from heliograph.client.client import Client
    from heliograph.client.human_tasks import HumanTask

_QUESTION_WIDTH = 200
_JSON_WIDTH = 400


def list_tasks(options: Namespace) -> int:
    """Print the open approvals and questions. Returns 0, also for an empty list."""
    tasks = asyncio.run(_list(options))
    for task in tasks:
        if options.json:
            json_line("task", task)
        else:
            for text in task_lines(task, project_of(options)):
                line(text)
    if not tasks and not options.json:
        note("nothing waits for a person")
    return 0


def grant(options: Namespace) -> int:
    arguments: Any = None
    if options.arguments is not None:
        arguments = read_value("--arguments", options.arguments)
        if not isinstance(arguments, dict):
            raise InvalidInput(
                f"--arguments must be a JSON object, not {safe_repr(arguments)}", code="wrong_type", path="--arguments"
            )

    def decision(client: Client) -> Awaitable[str]:
        return client.grant(options.turn, options.call_id, arguments=arguments, by=options.by or login_name())

    return _decide(options, "granted", decision)


def deny(options: Namespace) -> int:
    def decision(client: Client) -> Awaitable[str]:
        return client.deny(options.turn, options.call_id, reason=options.reason, by=options.by or login_name())

    return _decide(options, "denied", decision)


def answer(options: Namespace) -> int:
    value = options.text if options.value is None else read_value("--value", options.value)

    def decision(client: Client) -> Awaitable[str]:
        return client.answer(options.turn, options.call_id, value, by=options.by or login_name())

    return _decide(options, "answered", decision)


def _decide(options: Namespace, what: str, decision: Callable[[Client], Awaitable[str]]) -> int:
    outcome = asyncio.run(_decide_async(options, decision))
    if options.json:
        json_line("decision", {"turn_id": options.turn, "call_id": options.call_id, "outcome": outcome})
    else:
        again = " already; nothing changed" if outcome == "duplicate" else ""
        line(f"call {options.call_id} of {options.turn} is {what}{again}")
    return 0


async def _decide_async(options: Namespace, decision: Callable[[Client], Awaitable[str]]) -> str:
    async with open_client(f"turn {options.turn}") as client:
        return await decision(client)


async def _list(options: Namespace) -> list[HumanTask]:
    from heliograph.client.human_tasks import read_tasks

    async with open_list(options.run) as reader:
        since = started_since(options.since)
        return await read_tasks(reader, options.run, options.limit, target=options.app, since=since)


def task_lines(task: HumanTask, project: str | None = None) -> list[str]:
    """The lines that show a question: its text, its times, and the command that answers it. Agents' texts are escaped.

    project: the project that the command must name; None when the environment names it.
    """
    asked = safe_repr(task.question or task.tool, width(_QUESTION_WIDTH))
    edits = ", the arguments may be changed" if task.may_edit else ""
    lines = [
        f"{asked} {_short(task.arguments)}" if task.arguments else asked,
        f"    {task.agent}, since {moment(task.since)}, {_deadline(task)}{edits}",
    ]
    if task.options:
        lines.append(f"    one of: {', '.join(safe_repr(option) for option in task.options)}")
    if task.form is not None and (task.kind == "answer" or task.may_answer):
        lines.append(f"    fields: {_fields(task.form)}")
    verbs = ["grant", "deny", "answer"] if task.may_answer else ["grant" if task.kind == "decision" else "answer"]
    scope = [] if project is None else ["--project", project]
    for verb in verbs:
        command = shlex.join(["helio", "approval", verb, task.turn_id, task.call_id, *scope])
        lines.append(f"    {command}{_rest(task, verb)}")
    return lines


def _deadline(task: HumanTask) -> str:
    if task.deadline is None:
        return "no deadline"
    return f"until {moment(task.deadline)}, {duration(task.deadline - datetime.now(UTC))} left"


def project_of(options: Namespace) -> str | None:
    """The value of `--project`; None without one."""
    return options.project[0] if hasattr(options, "project") else None


def _rest(task: HumanTask, verb: str) -> str:
    if verb != "answer":
        return ""
    return " --value JSON" if task.may_answer or task.form is not None else " TEXT"


def _fields(form: JsonObject) -> str:
    """The fields of a form. A field that is no plain value has a schema of its own, which only JSON has."""
    is_plain = all(field.kind != "json" for field in fields_of(form))
    return fields_text(form, width(_JSON_WIDTH)) + (
        "" if is_plain else "; helio approval list --json prints the whole form"
    )


def _short(value: Any) -> str:
    return safe_repr(json_without_secrets(value).decode(), width(_JSON_WIDTH))
