"""Lines about waiting runs: each names the worker or child and the command that helps."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from heliograph.cli.run_watch import RunWatch
from heliograph.cli.waits import UnclaimedWatch
from heliograph.ledger.rows import TurnRow
from tests.faces.cli_support import HELIO, Running, Shell, open_shell

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OFFICE = """
from pathlib import Path
from heliograph import Heliograph

app = Heliograph("office")


@app.agent(activate_on=["workflow:start"])
async def boss(c):
    return await c.delegate("clerk")


@app.agent(on_request=True)
async def clerk(c):
    import asyncio

    while not Path("release").exists():
        await asyncio.sleep(0.01)
    return "done"
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "office.py").write_text(OFFICE)
    return open_shell(tmp_path, database_url)


def turn(
    turn_id: str = "t1", status: str = "dispatched", owner: str | None = None, due_in: float | None = None
) -> TurnRow:
    return TurnRow(
        turn_id=turn_id, agent_id="r/writer", agent="writer", run_id="r", target="a", status=status, phase=None, owner=owner,
        lease_until=None, turn_epoch=2, outcome=None, attempts=0, max_attempts=5, deliverable_card_id=None, context_box_id=None,
        output_box_id="b", created_at=NOW, finished_at=None, cause_id="sig_r_1", activation_id="sig_r_2",
        due_at=None if due_in is None else NOW + timedelta(seconds=due_in),
    )  # fmt: skip


def noted(*polls: tuple[float, Sequence[TurnRow]]) -> list[str | None]:
    watch = UnclaimedWatch("r")
    return [watch.note(turns, NOW, seconds) for seconds, turns in polls]


def test_unclaimed_turn_is_noted_once_after_three_seconds() -> None:
    turns = [turn()]
    assert noted((5.0, turns), (7.9, turns), (8.0, turns), (20.0, turns)) == [None, None, "writer (t1)", None]


def test_run_without_turns_is_noted_by_its_id() -> None:
    assert noted((0.0, []), (3.0, [])) == [None, "run r"]


@pytest.mark.parametrize(
    "others",
    [
        [turn("t2", "running", owner="host:1:abc")],
        [turn("t1", due_in=60)],
        [turn("t1", "suspended")],
        [turn("t1", "done")],
    ],
    ids=["a worker is at work", "deferred", "suspended", "done"],
)
def test_wait_for_a_worker_restarts_when_a_worker_was_present_or_unneeded(others: list[TurnRow]) -> None:
    queued = [turn("t1")] if others[0].owner else []
    polls = noted((0.0, [turn()]), (3.0, others + queued), (4.0, [turn()]), (6.9, [turn()]), (7.0, [turn()]))
    assert polls == [None, None, None, None, "writer (t1)"]


@pytest.mark.parametrize(("seconds", "is_overdue"), [(-1.0, True), (30.0, False)])
def test_note_about_a_dead_worker_appears_only_where_the_lease_is_overdue(seconds: float, is_overdue: bool) -> None:
    notes: list[str] = []
    view: Any = SimpleNamespace(note=notes.append)
    runtime: Any = None
    overdue = msgspec.structs.replace(
        turn(status="running", owner="host:1:abc"), lease_until=datetime.now(UTC) + timedelta(seconds=seconds)
    )
    watch = RunWatch(runtime, "r", view, None)
    for _ in range(2):
        watch._note_others([overdue, turn("t2")])
    [note] = notes
    assert note.startswith("waiting for writer (t1), owned by worker host:1:abc; ")
    assert ("if the worker is dead" in note) is is_overdue
    assert ("it must renew its lease by" in note) is not is_overdue


def test_deferred_turn_is_noted_once_per_deferral_with_the_time_of_its_repetition() -> None:
    notes: list[str] = []
    view: Any = SimpleNamespace(note=notes.append)
    runtime: Any = None
    watch, now = RunWatch(runtime, "r", view, None), datetime.now(UTC)
    for count, due_at in (
        (1, now + timedelta(minutes=5)),
        (1, now + timedelta(minutes=5)),
        (2, now + timedelta(minutes=9)),
        (3, now),
    ):
        watch._note_deferrals(
            [msgspec.structs.replace(turn(), defer_count=count, due_at=due_at), turn("t2", due_in=1e6)]
        )
    assert [note.partition(" at ")[0] for note in notes] == [
        f"writer (t1) was deferred, {times} so far; a worker continues it" for times in ("1 time", "2 times")
    ]
    assert notes[0].endswith("Z, in 4 min 59 s")


@pytest.mark.more
def test_run_without_a_worker_notes_the_command_that_starts_one_on_stderr(shell: Shell, started: list[Running]) -> None:
    watching = subprocess.Popen([HELIO, "run", "press.py:app", "--no-worker", "--json", "--project", "ours"], text=True,
                                cwd=shell.folder, env=shell.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)  # fmt: skip
    assert watching.stderr is not None
    text = next(line for line in watching.stderr if "has claimed" in line)
    assert text.startswith("no worker has claimed writer (turn_")
    command = shlex.split(text.partition("start one: ")[2])
    assert command == ["helio", "worker", "press.py:app", "--project", "ours"]
    started.append(shell.start(*command[1:]))
    out, err = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert "has claimed" not in out + err


@pytest.mark.more
def test_run_without_a_worker_notes_the_command_on_a_terminal(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    watching = subprocess.Popen([HELIO, "run", "press.py:app", "--no-worker"], cwd=shell.folder, stdin=theirs,
                                env=shell.environment | {"TERM": "xterm", "LINES": "40", "COLUMNS": "200"},
                                stdout=theirs, stderr=theirs, close_fds=True)  # fmt: skip
    os.close(theirs)
    screen = b""
    while b"start one: helio worker press.py:app" not in screen:
        screen += os.read(ours, 65536)
    watching.send_signal(signal.SIGTERM)
    with open(ours, "rb", buffering=0) as rest:
        try:
            while rest.read(65536):
                pass
        except OSError:  # Linux raises when the other side is closed
            pass
    assert watching.wait(30) == 130
    assert screen.count(b"has claimed") == 1


@pytest.mark.more
def test_parent_that_waits_for_its_child_names_the_child(shell: Shell, started: list[Running]) -> None:
    running = shell.start("run", "office.py:app", "--run-id", "r")
    started.append(running)
    line = running.read_until("waits for its child").rstrip()
    turns = {row["agent"]: row["turn_id"] for row in shell.rows("turn", "list", "--run", "r")}
    assert line == f"boss ({turns['boss']}) waits for its child clerk: helio turn show {turns['clerk']}"
    output = shell.helio("turn", "show", turns["boss"]).stdout
    assert f"waits for its child clerk: helio turn show {turns['clerk']}\n" in output
    (shell.folder / "release").touch()
    assert running.end() == 0
    assert "helio call list" not in running.text
    assert "waits for its child" not in shell.helio("turn", "show", turns["boss"]).stdout
