"""`helio send` and `helio chat`: conversations at a terminal and in pipes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from argparse import Namespace
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph import Reply
from heliograph.cli import send, waits
from heliograph.cli.chat import _answer
from heliograph.client import TextPiece
from tests.faces.cli_support import Shell
from tests.faces.own_terminal import on_terminal

CHAT = """
from heliograph import Heliograph
from heliograph.models import ScriptedModel

app = Heliograph("chat")
model = ScriptedModel(lambda request: f"{len(request.messages)}: {request.prompt}")
app.prompt_agent("assistant", "{message}", model=model)
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "chat.py").write_text(CHAT)
    return Shell(tmp_path, database_url)


def _chat(shell: Shell, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return shell.helio_with_input(text.encode(), "chat", "chat.py:app", *options)


def test_lines_of_a_pipe_are_messages_and_another_process_sends_to_the_same_session(shell: Shell) -> None:
    talked = _chat(shell, "Hello\n\nAgain\n", "anna")
    assert (talked.returncode, talked.stdout, talked.stderr) == (0, "1: Hello\n3: Again\n", "")
    for _ in range(2):  # the same message
        sent = shell.helio("send", "anna", "assistant", "From afar", "--message-id", "1")
        assert (sent.returncode, sent.stdout) == (0, "turn_anna_1\n")
    talked = _chat(shell, "Last\n/close\n", "anna", "--json")
    [reply] = [json.loads(line) for line in talked.stdout.splitlines()]
    assert (talked.returncode, reply["type"], reply["text"], reply["outcome"]) == (0, "reply", "7: Last", "success")
    waited = shell.helio("send", "anna", "assistant", "From afar", "--message-id", "1", "--wait")
    assert (waited.returncode, waited.stdout) == (0, "5: From afar\n")
    for run, agent, text in (
        ("anna", "assistent", "has no agent assistent; did you mean assistant?\nhint: helio run show anna lists"),
        ("ana", "assistant", "no run ana "),
    ):
        wrong = shell.helio("send", run, agent, "Hello")
        assert (wrong.returncode, text in wrong.stderr) == (3, True), wrong.stderr
    closed = shell.helio("send", "anna", "assistant", "Anybody?")
    assert closed.returncode == 4
    assert "takes no more messages" in closed.stderr


def test_invalid_line_of_a_pipe_is_an_error_and_the_next_lines_are_answered(shell: Shell) -> None:
    lines = b"".join([b"One\n", b"x" * 70_000 + b"\n", b"nul \0\n", b"latin \xe4\n", b"Two\n"])
    for options, replies in (((), ["1: One", "3: Two"]), (("--json",), ["reply", "error", "error", "error", "reply"])):
        talked = shell.helio_with_input(lines, "chat", "chat.py:app", *options)
        printed = talked.stdout.splitlines()
        assert [json.loads(line)["type"] for line in printed] == replies if options else printed == replies
        assert talked.returncode == 1
        assert [line[:7] for line in talked.stderr.splitlines()] == ["error: "] * 3, talked.stderr


def test_stop_of_a_session_without_a_turn_names_the_application_whose_worker_ends_it(shell: Shell) -> None:
    assert _chat(shell, "Hello\n", "anna").returncode == 0
    for _ in range(2):
        stopped = shell.helio("run", "stop", "anna")
        assert stopped.stdout == "run anna is stopping; it has no open turn, so a worker of chat ends it\n"


async def test_reply_that_begins_again_is_printed_on_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    class Pending:
        async def __aiter__(self) -> AsyncIterator[TextPiece]:
            for content, offset in (("half a ", 0), ("a whole ", 0), ("reply", 8)):
                yield TextPiece(content, offset)

        async def reply(self) -> Reply:
            return Reply("a whole reply", "a whole reply", "success", "turn_1")

    pending: Any = Pending()
    await _answer(pending, None, streams=True)
    assert capsys.readouterr().out == "half a \na whole reply\n"


async def test_message_that_no_worker_claims_is_noted_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waits, "UNCLAIMED_SECONDS", 0)
    monkeypatch.setattr(send, "POLL_SECONDS", 0.001)
    answer = Reply("late", "late", "success", "turn_1")
    polls, is_answered = 0, asyncio.Event()

    async def turns(**_: Any) -> list[Any]:
        nonlocal polls
        polls += 1
        if polls == 3:
            is_answered.set()
        return [
            SimpleNamespace(
                owner=None, status="dispatched", due_at=None, agent="assistant", turn_id="turn_1", turn_epoch=1
            )
        ]

    async def reply() -> Reply:
        await is_answered.wait()
        return answer

    runtime: Any = SimpleNamespace(reader=SimpleNamespace(turns=turns))
    pending: Any = SimpleNamespace(reply=reply)
    assert await send._awaited_reply(runtime, Namespace(run="anna", project=["news"]), pending) is answer
    noted = "no worker has claimed assistant (turn_1) yet. If none is running, start one: helio worker FILE.py:app --project news\n"
    assert capsys.readouterr().err == noted


@pytest.mark.more
def test_reply_streams_on_a_terminal_and_an_interrupt_of_the_prompt_ends_the_chat(shell: Shell) -> None:
    code, screen = on_terminal(
        shell, {b"> ": "Hällo\n".encode(), "1: Hällo\r\n> ".encode(): b"\x03"}, "chat", "chat.py:app", "anna"
    )
    assert (code, screen.count("1: Hällo")) == (130, 1)
    code, screen = on_terminal(shell, {b"\r\n> ": b"\x04"}, "chat", "chat.py:app", "anna")
    assert code == 0, screen
    assert "continue it with: helio chat chat.py:app anna" in screen
