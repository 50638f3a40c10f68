"""`helio send RUN AGENT TEXT`: send a message to an agent of a run, and wait for its reply if asked."""

from __future__ import annotations

import asyncio
import shlex
from argparse import Namespace
from contextlib import suppress
from datetime import UTC, datetime

from heliograph.cli.approval import project_of
from heliograph.cli.arguments import login_name
from heliograph.cli.existing_database import open_existing_runtime
from heliograph.cli.output import block, json_line, line, note
from heliograph.cli.waits import UnclaimedWatch
from heliograph.client.client import Client
from heliograph.client.messages import message_payload, turn_of_message
from heliograph.client.session import PendingReply, Reply, SessionReader
from heliograph.control.model_errors import nearest
from heliograph.error_text import safe_repr
from heliograph.errors import NotFound, StoreUnavailable
from heliograph.key_patterns import text_without_secrets
from heliograph.ledger.reader import Reader
from heliograph.runtime import Runtime
from heliograph.turn.earlier_turns import MESSAGE

POLL_SECONDS = 1.0


def send(options: Namespace) -> int:
    """Send a message. Returns 0, and 1 for a reply without success."""
    return asyncio.run(_send(options))


async def _send(options: Namespace) -> int:
    async with open_existing_runtime(f"run {options.run}") as runtime:
        turn_id = turn_of_message(runtime.world, options.run, options.message_id)
        payload = message_payload(options.text, options.file)
        try:
            await Client.on(runtime).enqueue(
                options.run, options.agent, payload, name=MESSAGE, turn_id=turn_id, actor=login_name()
            )
        except NotFound as error:
            raise await _not_found(runtime.reader, options, error) from None
        if not options.wait:
            if options.json:
                json_line("message", {"turn_id": turn_id})
            else:
                line(turn_id)
            return 0
        pending = PendingReply(SessionReader(runtime, options.run, options.agent), options.agent, turn_id)
        reply = await _awaited_reply(runtime, options, pending)
        if options.json:
            json_line("reply", {"turn_id": turn_id, "outcome": reply.outcome, "text": reply.text, "output": reply.output,
                       "error": reply.error})  # fmt: skip
        else:
            block(text_without_secrets(reply.text))
        return 0 if reply.outcome in ("success", "partial") else 1


async def _not_found(reader: Reader, options: Namespace, error: NotFound) -> NotFound:
    """The error that names the run or the agent that does not exist."""
    await reader.run(options.run)  # raises
    agents = dict.fromkeys(turn.agent for turn in await reader.turns(run_id=options.run))
    return NotFound(f"run {options.run} has no agent {safe_repr(options.agent)}{nearest(options.agent, agents)}", code=error.code,
                    hint=f"helio run show {options.run} lists the agents that ran")  # fmt: skip


async def _awaited_reply(runtime: Runtime, options: Namespace, pending: PendingReply) -> Reply:
    """Wait for a reply, and print a note on stderr if no worker claims the turn."""
    replying = asyncio.create_task(pending.reply())
    unclaimed, loop = UnclaimedWatch(options.run), asyncio.get_running_loop()
    try:
        while not (await asyncio.wait([replying], timeout=POLL_SECONDS))[0]:
            with suppress(StoreUnavailable):
                turns = await runtime.reader.turns(run_id=options.run, limit=200)
                if (work := unclaimed.note(turns, datetime.now(UTC), loop.time())) is not None:
                    project = project_of(options)
                    scope = "" if project is None else f" --project {shlex.quote(project)}"
                    note(
                        f"no worker has claimed {work} yet. If none is running, start one: helio worker FILE.py:app{scope}"
                    )
        return await replying
    finally:
        replying.cancel()
