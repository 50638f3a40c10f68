from __future__ import annotations

import io
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from heliograph.cli.live_view import Board, draw
from heliograph.cli.run_views import LineView
from heliograph.ledger.rows import TurnRow
from heliograph.signals.model import Signal, Source
from heliograph.signals.signal_text import json_text, short_payload
from heliograph.types import Json
from tests.faces.cli_support import HELIO, open_shell

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
FORM = {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}, "days": {"type": "integer"}}}


def logged(seq: int, name: str, payload: Json = None, agent: str | None = "writer") -> Signal:
    """A signal of one run; each comes a second after the one before."""
    return Signal(id=f"sig_r_{seq}", name=name, payload=payload, timestamp=START + timedelta(seconds=seq),
                  source=Source(agent, None), run_id="r", seq=seq)  # fmt: skip


def delta(seq: int, content: str, agent: str = "writer") -> Signal:
    return logged(seq, "text:delta", {"content": content, "offset": 0}, agent)


def turn(agent: str, status: str, phase: str | None) -> TurnRow:
    return TurnRow(
        turn_id="t", agent_id=f"r/{agent}", agent=agent, run_id="r", target="a", status=status, phase=phase, owner=None,
        lease_until=None, turn_epoch=2, outcome=None, attempts=0, max_attempts=5, deliverable_card_id=None, context_box_id=None,
        output_box_id="b", created_at=START, finished_at=None, cause_id="sig_r_1", activation_id="sig_r_2",
    )  # fmt: skip


def drawn(board: Board, seconds: float) -> str:
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(draw("press  run_1", board, START + timedelta(seconds=seconds)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_deltas_of_parallel_agents_are_joined_to_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(lambda _name: True)
    for seq, (agent, content) in enumerate([("a", "one "), ("b", "eins\n"), ("a", "two"), ("b", "zwei"), ("a", "\nx")]):
        view.show(delta(seq, content, agent))
    view.show(logged(9, "text:complete", {"content": "one two\nx"}, "a"))
    view.close()
    rows = [line.split(maxsplit=3)[1:] for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["text:delta", "b", "eins"],
        ["text:delta", "a", "one two"],
        ["text:delta", "a", "x"],
        ["text:complete", "a", "one two\\nx"],
        ["text:delta", "b", "zwei"],
    ]


def test_long_text_is_broken_at_spaces_and_loses_no_word(capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"word{n}" for n in range(200)]
    view = LineView(lambda _name: True)
    for word in words:
        view.show(delta(1, f"{word} "))
    view.close()
    lines = [line.split(maxsplit=3)[3] for line in capsys.readouterr().out.splitlines()]
    assert " ".join(line.strip() for line in lines).split() == words
    assert max(map(len, lines)) <= 100


def test_text_of_a_model_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(lambda _name: True)
    view.show(delta(1, "\x1b[2Jgone\n"))
    view.show(logged(2, "agent:completed", {"output": "\x1b]0;title\x07"}))
    assert "\x1b" not in capsys.readouterr().out
    board = Board(["writer"])
    board.show(delta(1, "\x1b[2Jgone"))
    board.show(logged(2, "a\x1b[2J:b", {"t": "\x9b2J"}, "b\x1b[2J"))
    board.show(logged(3, "agent:completed", {"outcome": "\x1b[2J"}, "writer"))
    assert "\x1b" not in drawn(board, 2)
    assert "\x9b" not in drawn(board, 2)


@pytest.mark.parametrize(
    ("name", "payload", "text"),
    [
        ("agent:activated", {"agent": "writer"}, ""),
        ("agent:progress", {"agent": "writer", "fraction": 0.25, "message": "on it"}, "25% on it"),
        ("agent:progress", {"fraction": 10**400}, json_text({"fraction": 10**400}, 100)),
        ("agent:failed", {"error": {"code": "TIMEOUT", "message": "too slow"}}, "TIMEOUT: too slow"),
        ("agent:skipped", {"agent": "writer", "reason": "when guard false"}, "when guard false"),
        ("workflow:end", {"state": {}, "outcome": "partial", "metrics": {}}, "partial"),
        (
            "delegation",
            {"target_agent": "writer", "task_id": "turn_2", "id": "c1", "task": "ink"},
            "writer (turn_2) ink",
        ),
        ("delegation", {"target_agent": "writer", "id": "c1", "task": {"n": 1}}, 'writer {"n":1}'),
        (
            "delegation_response",
            {"target_agent": "writer", "task_id": "turn_2", "status": "in_progress"},
            "writer (turn_2) in_progress",
        ),
        (
            "delegation_response",
            {"target_agent": "writer", "task_id": "turn_2", "status": "completed", "result": "A text"},
            "writer (turn_2) completed -> A text",
        ),
        (
            "delegation_response",
            {
                "target_agent": "writer",
                "task_id": "turn_2",
                "status": "failed",
                "error": {"code": "TIMEOUT", "message": "late"},
            },
            "writer (turn_2) failed: TIMEOUT: late",
        ),
        (
            "harness:error",
            {"code": "RATE_LIMITED", "message": "busy", "recoverable": True},
            "RATE_LIMITED: busy (recoverable)",
        ),
        ("harness:error", {"code": "AUTH_ERROR", "message": "no key", "recoverable": False}, "AUTH_ERROR: no key"),
        (
            "delegation_response",
            {"target_agent": "a", "status": "completed", "result": {"text": "Ink"}},
            "a completed -> Ink",
        ),
        (
            "tool:call",
            {
                "name": "pay",
                "input": {"question": "May I?", "arguments": {"to": "Bob"}, "may_edit": True, "form": FORM},
            },
            'pay May I? {"to":"Bob"}',
        ),
        (
            "tool:call",
            {"name": "ask", "input": {"question": "Where?", "options": [], "form": FORM}},
            "ask Where? Fields: to (text), days (integer, may be empty)",
        ),
        (
            "tool:call",
            {"name": "ask", "input": {"question": "Which?", "options": ["a", "b"]}},
            "ask Which? One of: a, b",
        ),
        ("tool:call", {"name": "ask", "input": {"question": "Who?", "options": []}}, "ask Who?"),
        (
            "tool:call",
            {"name": "pay", "input": {"question": "May I?", "arguments": {}, "may_edit": False}},
            "pay May I?",
        ),
        (
            "tool:call",
            {"name": "look", "input": {"question": "Who?", "options": [{"n": 1}]}},
            'look {"question":"Who?","options":[{"n":1}]}',
        ),
        ("tool:call", {"name": "look", "input": {"question": "Who?"}}, 'look {"question":"Who?"}'),
        ("tool:call", {"name": "look", "input": {"question": "Who?", "size": 1}}, 'look {"question":"Who?","size":1}'),
        ("mine:done", {"n": 1}, '{"n":1}'),
        ("mine:done", {"output": {"n": 1}, "deliverable_card_id": "card:t:end"}, '{"n":1}'),
        (
            "agent:activated",
            {
                "agent": "a",
                "guard": {"verdict": True, "reads": [{"key": "n", "value": 3}, {"key": "who", "value": "Ada"}]},
            },
            "its guard read n = 3, who = Ada",
        ),
        ("agent:activated", {"agent": "a", "guard": {"verdict": True, "reads": []}}, ""),
        ("mine:done", [1, 2], "[1,2]"),
    ],
)
def test_line_has_the_relevant_part_of_its_payload(name: str, payload: Json, text: str) -> None:
    assert short_payload(logged(1, name, payload)) == text


def test_board_follows_each_agent_from_idle_to_its_end() -> None:
    board = Board(["writer", "critic"])
    board.show(logged(0, "workflow:start", {"state": {}}, None))
    board.show(logged(1, "agent:activated", {"agent": "writer"}))
    assert "waiting" in drawn(board, 2)
    board.see_turns([turn("writer", "running", "act")])
    board.show(logged(3, "agent:progress", {"agent": "writer", "fraction": 0.5, "message": "half"}))
    board.show(delta(4, "and so it "))
    board.show(delta(5, "began"))
    running = drawn(board, 6)
    assert "press  run_1  6.0 s" in running
    assert "running act" in running
    assert "and so it" in running, "the last word may become a key"
    assert "━━━━" in running
    assert "critic  idle" in running
    board.show(logged(7, "agent:completed", {"agent": "writer", "output": "x"}))
    board.show(logged(8, "agent:failed", {"agent": "critic", "outcome": "timeout", "error": {}}, "critic"))
    ended = drawn(board, 60)
    assert "writer  success" in ended
    assert "critic  timeout" in ended
    assert "6.0 s" in ended  # the writer's time stands still once it is done


def test_board_restarts_an_agent_that_wakes_again() -> None:
    board = Board(["writer"])
    for seq in (1, 11):
        board.show(logged(seq, "agent:activated", {"agent": "writer"}))
        assert board.rows["writer"].status == "waiting"
        board.show(logged(seq + 1, "agent:progress", {"fraction": 0.9, "message": ""}))
        board.show(logged(seq + 2, "agent:completed", {}))
    row = board.rows["writer"]
    assert (row.status, row.turns, row.since, row.until) == (
        "success", 2, START + timedelta(seconds=11), START + timedelta(seconds=13)
    )  # fmt: skip


@pytest.mark.more
def test_terminal_shows_the_live_view_and_restores_its_cursor(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": "xterm", "LINES": "40"}
    process = subprocess.Popen([HELIO, "run", "press.py:app"], cwd=tmp_path, env=environment, stdin=theirs,
                               stdout=theirs, stderr=theirs, close_fds=True)  # fmt: skip
    os.close(theirs)
    screen = b""
    try:
        while piece := os.read(ours, 65536):
            screen += piece
    except OSError:  # Linux raises it when the other side is closed
        pass
    os.close(ours)
    assert process.wait(30) == 0
    text = screen.decode()
    assert text.rindex("\x1b[?25h") > text.index("\x1b[?25l")
    assert "writer" in text
    assert "success" in text
    assert text.rstrip().endswith("}")
