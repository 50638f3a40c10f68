"""`helio send RUN AGENT TEXT`: send a message to an agent of a run, and wait for its reply if asked."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from heliograph.cli.arguments import login_name
from heliograph.cli.existing_database import open_existing_runtime
from heliograph.cli.output import block, json_line, line
from heliograph.client.client import Client
from heliograph.client.messages import message_payload, turn_of_message
from heliograph.client.session import PendingReply, SessionReader
from heliograph.key_patterns import text_without_secrets
from heliograph.turn.earlier_turns import MESSAGE


def send(options: Namespace) -> int:
    """Send a message. Returns 0, and 1 for a reply without success."""
    return asyncio.run(_send(options))


async def _send(options: Namespace) -> int:
    async with open_existing_runtime(f"run {options.run}") as runtime:
        turn_id = turn_of_message(runtime.world, options.run, options.message_id)
        await Client.on(runtime).enqueue(
            options.run,
            options.agent,
            message_payload(options.text, options.file),
            name=MESSAGE,
            turn_id=turn_id,
            actor=login_name(),
        )
        if not options.wait:
            if options.json:
                json_line("message", {"turn_id": turn_id})
            else:
                line(turn_id)
            return 0
        reply = await PendingReply(SessionReader(runtime, options.run, options.agent), options.agent, turn_id).reply()
        if options.json:
            json_line("reply", {"turn_id": turn_id, "outcome": reply.outcome, "text": reply.text, "output": reply.output,
                       "error": reply.error})  # fmt: skip
        else:
            block(text_without_secrets(reply.text))
        return 0 if reply.outcome in ("success", "partial") else 1
