"""`helio chat FILE.py:app [ID]`: a conversation at a terminal, or with the lines of a pipe as messages."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from io import TextIOWrapper
from typing import TextIO

from heliograph.cli.interrupts import run_agents
from heliograph.cli.load_application import load_app
from heliograph.cli.logs import show_logs
from heliograph.cli.output import block, error, json_line, note, piece, reserved_stdout
from heliograph.cli.terminal_lines import TerminalLines
from heliograph.client.session import PendingReply, Reply, Session, open_session
from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput, Rejected
from heliograph.key_patterns import StreamedText, text_without_secrets
from heliograph.reactive.workflow import Workflow
from heliograph.runtime import open_runtime, telemetry_of

_EARLIER_TURNS = 5  # turns of a session that continues
_CLOSE = "/close"


def chat(options: Namespace) -> int:
    """Talk until the end of the input. Returns 0, and 1 if a message of a pipe was rejected or got no reply."""
    show_logs(logging.WARNING)
    if not options.json:
        return _load_and_chat(options, None)
    with reserved_stdout() as own:  # the application's file may print while it is loaded
        return _load_and_chat(options, own)


def _load_and_chat(options: Namespace, own: TextIO | None) -> int:
    return run_agents(_chat(options, load_app(options.app).workflow, own))


async def _chat(options: Namespace, workflow: Workflow, own: TextIO | None) -> int:
    is_terminal, has_failed = sys.stdin.isatty() and own is None, False
    async with (
        open_runtime(telemetry=telemetry_of([workflow], os.environ)) as runtime,
        open_session(runtime, workflow, options.session, agent=options.agent, worker=not options.no_worker) as session,
    ):
        if is_terminal:
            await _greet(session)
        async with aclosing(_lines(is_terminal=is_terminal)) as messages:
            async for message in messages:
                if message == _CLOSE:
                    await session.close()
                    return int(has_failed)
                has_failed |= not await _is_answered(session, message, own, streams=is_terminal)
        if is_terminal:
            note(f"session {session.id} stays open; continue it with: helio chat {options.app} {session.id}")
    return 0 if is_terminal else int(has_failed)


async def _greet(session: Session) -> None:
    note(f"session {session.id} with {session.agent}; Ctrl-C stops a reply, Ctrl-D leaves, {_CLOSE} closes the session")
    for each in await session.history(_EARLIER_TURNS):
        block(f"{'>' if each.role == 'user' else ' '} {text_without_secrets(each.text)}")


async def _is_answered(session: Session, message: str, own: TextIO | None, *, streams: bool) -> bool:
    """Send a message and print its reply. A message that the session rejects is an error of its own: the next one may be valid."""
    try:
        pending = await session.post(message)
    except (InvalidInput, Rejected) as rejection:
        if rejection.code == "run_ended":
            raise
        if own is not None:
            json_line("error", rejection.envelope(), own)
        error(text_without_secrets(f"error: {rejection.message}"))
        return False
    return (await _answer(pending, own, streams=streams)).outcome in ("success", "partial")


async def _lines(*, is_terminal: bool) -> AsyncGenerator[str, None]:
    """The messages of the user, without empty lines. A line of a pipe that is no text keeps its bytes as surrogates, which no message may have."""
    if isinstance(sys.stdin, TextIOWrapper) and not is_terminal:
        sys.stdin.reconfigure(errors="surrogateescape")
    lines = TerminalLines() if is_terminal else None
    while True:
        if lines is not None:
            piece("> ")
            try:
                line = await lines.read()
            except asyncio.CancelledError:  # SIGINT
                piece("\n")
                raise
        else:
            line = await asyncio.to_thread(sys.stdin.readline) or None
        if line is None:
            return
        if stripped := line.strip():
            yield stripped


async def _answer(pending: PendingReply, own: TextIO | None, *, streams: bool) -> Reply:
    """Print the reply to a message, and return it. SIGINT stops it."""
    with _stopping(pending):
        if streams:
            streamed, is_first = StreamedText(), True
            async for text in pending:
                if text.offset == 0 and not is_first:  # after tool calls, or again after a failure
                    piece(f"{streamed.end()}\n")
                    streamed = StreamedText()
                piece(streamed.add(text))
                is_first = False
            piece(streamed.end())
        reply = await pending.reply()
    if own is not None:
        json_line("reply", {"turn_id": reply.turn_id, "outcome": reply.outcome, "text": reply.text, "output": reply.output,
                   "error": reply.error}, own)  # fmt: skip
    elif streams:
        block("")
    else:
        block(text_without_secrets(reply.text))
    if reply.outcome not in ("success", "partial"):
        why = (reply.error or {}).get("message", reply.outcome)
        error(
            "the reply was stopped"
            if reply.was_stopped
            else f"no reply: {safe_repr(text_without_secrets(str(why)), 2000)}; helio turn show {reply.turn_id}"
        )
    return reply


@contextmanager
def _stopping(pending: PendingReply) -> Iterator[None]:
    """Let SIGINT stop a reply while it is written."""
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    before = signal.getsignal(signal.SIGINT)

    def stop() -> None:
        tasks.add(asyncio.create_task(pending.stop()))

    signal.signal(signal.SIGINT, lambda _number, _frame: loop.call_soon_threadsafe(stop))
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGINT, before)
