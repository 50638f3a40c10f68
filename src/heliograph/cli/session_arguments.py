"""The arguments of `helio send` and `helio chat`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from heliograph.cli.arguments import identifier, run_id


def add_sessions(nouns: Any, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add both commands."""
    sending = command(
        nouns, "send", "send:send", "send a message to an agent of a run", "helio send anna assistant 'Hello' --wait"
    )
    sending.add_argument("run", metavar="RUN", type=run_id, help="the id of the run, or of the session")
    sending.add_argument("agent", metavar="AGENT", type=identifier("AGENT"), help="the agent that answers")
    sending.add_argument("text", metavar="TEXT", help="the message")
    sending.add_argument(
        "--file",
        metavar="URL",
        action="append",
        default=[],
        help="an image or a document, an https URL; may be repeated",
    )
    sending.add_argument("--message-id", metavar="ID", type=identifier("--message-id"),
                         help="the key of the message: a second one with it sends nothing")  # fmt: skip
    sending.add_argument("--wait", action="store_true", help="wait for the reply, and print it")
    chatting = command(
        nouns,
        "chat",
        "chat:chat",
        "talk to an application, in a session that outlives the process",
        "helio chat app.py:app anna",
    )
    chatting.add_argument("app", metavar="FILE.py:app", help="the file, and the name of the application in it")
    chatting.add_argument(
        "session",
        metavar="ID",
        nargs="?",
        type=run_id,
        help="the session to continue or to begin; without it, a new one",
    )
    chatting.add_argument("--agent", metavar="AGENT", type=identifier("--agent"), help="the agent that answers")
    chatting.add_argument("--no-worker", action="store_true", help="other workers run the turns")
