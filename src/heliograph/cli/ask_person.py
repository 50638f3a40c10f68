"""`helio run` at a terminal: ask the questions of a run there, and report the answers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from heliograph.cli.approval import task_lines
from heliograph.cli.arguments import login_name
from heliograph.cli.form_input import object_of, value_of
from heliograph.cli.output_thread import OutputThread
from heliograph.client.human_tasks import Approvals, HumanTask
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput, StoreUnavailable
from heliograph.signals.form_fields import Field, fields_of
from heliograph.types import Json

if TYPE_CHECKING:
    from heliograph.runtime import Runtime

_SKIP = "/skip"
_YES, _NO = ("y", "yes"), ("n", "no")

ReadLine = Callable[[], Awaitable[str | None]]


class _Skipped(Exception):
    """The person leaves a question to others."""


class _EndOfInput(Exception):
    """The person has closed the input: nothing more is asked."""


class Asker:
    """Asks one question after the other, and reports the answers. `see` is called with all open questions of the run."""

    def __init__(self, runtime: Runtime, view: OutputThread, read_line: ReadLine):
        self._approvals = Approvals(runtime)
        self._view = view
        self._read_line = read_line
        self._open: dict[tuple[str, str], HumanTask] = {}
        self._done: set[tuple[str, str]] = set()  # those that are answered or left to others
        self._asking: asyncio.Task[None] | None = None
        self._asked: tuple[str, str] | None = None
        self._is_reading = False  # while an answer is reported, its question is gone
        self._changed = asyncio.Event()

    def see(self, tasks: Sequence[HumanTask]) -> None:
        """Ask the new ones of these questions, and no longer those that are gone."""
        self._open = {(task.turn_id, task.call_id): task for task in tasks}
        if self._asking is not None and self._is_reading and self._asked not in self._open:
            self._asking.cancel()
        self._changed.set()

    async def run(self) -> None:
        """Ask until the input ends, or this is cancelled."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while (key := next((each for each in self._open if each not in self._done), None)) is not None:
                    await self._ask_open(key)
        except _EndOfInput:
            self._view.note("the input has ended: nothing more is asked here")
        finally:
            self._view.resume()

    async def _ask_open(self, key: tuple[str, str]) -> None:
        """Ask one question, until it is answered, left to others, or answered elsewhere."""
        self._asked, self._asking = key, asyncio.create_task(self._ask(self._open[key]))
        try:
            await asyncio.wait([self._asking])
        finally:
            self._asking.cancel()
        asking, self._asking = self._asking, None
        self._done.add(key)
        if asking.cancelled():
            self._view.prompt("\n")
            self._view.note("this question was answered elsewhere, or is no longer open")
        elif (error := asking.exception()) is not None and not isinstance(error, _Skipped):
            raise error
        self._view.resume()

    async def _ask(self, task: HumanTask) -> None:
        self._view.prompt(f"{safe_repr(task.agent)} asks: {task_lines(task)[0]}\n")
        while True:
            try:
                await (self._decide(task) if task.kind == "decision" else self._answer(task))
            except (InvalidInput, StoreUnavailable) as error:  # it is asked again
                self._view.prompt(f"  {error.message}\n")
                continue
            except HeliographError as error:  # for example, somebody else has answered it
                self._view.prompt(f"  {error.message}\n")
            return

    async def _decide(self, task: HumanTask) -> None:
        further = "".join(
            [", e changes the arguments" if task.may_edit else "", ", a gives the result" if task.may_answer else ""]
        )
        line = (await self._line(f"  grant it? (y or n{further}, {_SKIP}) ")).strip().lower()
        if line in _YES:
            await self._approvals.grant(task.turn_id, task.call_id, None, login_name())
        elif line in _NO:
            reason = (await self._line("  reason (may be empty) ")).strip()
            await self._approvals.deny(task.turn_id, task.call_id, reason or None, login_name())
        elif line == "e" and task.may_edit:
            given = value_of(Field("arguments", "json"), await self._line("  arguments (JSON) "))
            if not isinstance(given, dict):
                raise InvalidInput(f"arguments must be an object, not {safe_repr(given)}", code="wrong_type")
            await self._approvals.grant(task.turn_id, task.call_id, given, login_name())
        elif line == "a" and task.may_answer:
            await self._answer(task)
        else:
            raise InvalidInput(f"type y or n, not {safe_repr(line)}", code="invalid_answer")

    async def _answer(self, task: HumanTask) -> None:
        if task.options:
            fields: Sequence[Field] = [Field(None, "string", tuple(task.options))]
        elif task.form is not None:
            fields = fields_of(task.form)
        else:
            fields = [Field(None, "json" if task.may_answer else "string")]
        values = {}
        for field in fields:
            if (value := await self._value(field)) is not None or field.may_be_null:
                values[field] = value
        await self._approvals.answer(task.turn_id, task.call_id, object_of(values) if values else {}, login_name())

    async def _value(self, field: Field) -> Json:
        """The value of one field, asked until it is valid; None for an empty line, if that is allowed."""
        while True:
            line = await self._line(f"  {field.prompt} ")
            if not line.strip():
                if not field.is_required or field.may_be_null:
                    return None
                continue
            try:
                return value_of(field, line)
            except InvalidInput as error:
                self._view.prompt(f"  {error.message}\n")

    async def _line(self, prompt: str) -> str:
        self._view.prompt(prompt)
        self._is_reading = True
        try:
            line = await self._read_line()
        finally:
            self._is_reading = False
        if line is None:
            self._view.prompt("\n")
            raise _EndOfInput
        if line.strip() == _SKIP:
            raise _Skipped
        return line


def may_ask() -> bool:
    """Whether a person can answer here: stdin and stdout are terminals, and this process is in the foreground."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
