"""Open approvals and questions in a shell; each run waits in the database without a process."""

import json
import os
import pty
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.faces.cli_support import HELIO, Running, Shell, normalised, open_shell

LISTED_SECONDS_MAX = 60.0

DESK = """
import asyncio
from pathlib import Path
from pydantic import BaseModel
from heliograph import Heliograph, tool
from heliograph.errors import Denied, StepInDoubt
from heliograph.models import ScriptedModel, ToolCall, ToolMessage

app = Heliograph("desk")


class Trip(BaseModel):
    to: str
    days: int


@app.agent(activate_on=["workflow:start"], updates="answers")
async def planner(ctx):
    with Path("steps").open("a") as steps:
        await ctx.step("before", steps.write, "once ")
    if "late" in ctx.document:
        return (await ctx.approve("Too late?", timeout=0.1)).by
    leave, trip, colour, name = await asyncio.gather(
        ctx.approve("May I book?", arguments={"price": 9}, may_edit=True, timeout=3600),
        ctx.ask("Where to?\\x1b[31m", form=Trip), ctx.ask("Which one?", options=["red", "blue"]), ctx.ask("Your name?"),
    )
    return [leave.arguments, leave.by, trip.to, colour, name]


@tool(approval=lambda arguments: arguments["amount"] > 100)
def pay(amount: int, to: str) -> str:
    with Path("paid").open("a") as paid:
        paid.write(f"{amount} to {to}\\n")
    return "paid"


def script(request):
    last = request.messages[-1]
    return str(last.content) if isinstance(last, ToolMessage) else ToolCall("x", "pay", {"amount": 500, "to": "bob"})


@tool(in_doubt="ask")
def send(amount: int) -> str:
    raise StepInDoubt("cut off", step="send")


def sends(request):
    last = request.messages[-1]
    return str(last.content) if isinstance(last, ToolMessage) else ToolCall("x", "send", {"amount": 5})


bank = Heliograph("bank")
bank.prompt_agent("clerk", "Send", model=ScriptedModel(sends), activate_on=["workflow:start"], updates="said", tools=[send])

till = Heliograph("till")
till.prompt_agent("clerk", "Pay", model=ScriptedModel(script), activate_on=["workflow:start"], updates="said", tools=[pay])
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "desk.py").write_text(DESK)
    return open_shell(tmp_path, database_url)


def run(shell: Shell, started: list[Running], app: str, run_id: str, waits: int) -> Running:
    """A run, as soon as that many of its calls wait."""
    running = shell.start("run", f"desk.py:{app}", "--run-id", run_id)
    started.append(running)
    listed(shell, waits)
    return running


def listed(shell: Shell, count: int) -> list[dict[str, Any]]:
    """The open approvals and questions, once there are `count` of them. Each look is a process, so looks need no pause."""
    until = time.monotonic() + LISTED_SECONDS_MAX
    while len(rows := shell.rows("approval", "list")) != count:
        assert time.monotonic() < until, f"{len(rows)} instead of {count} are open: {rows}"
    return rows


def tasks(shell: Shell) -> dict[str, dict[str, Any]]:
    return {task["question"]: task for task in shell.rows("approval", "list")}


@pytest.mark.more
def test_open_human_tasks_are_listed_with_the_commands_that_answer_them(shell: Shell, started: list[Running]) -> None:
    running = run(shell, started, "app", "trip", 4)
    listing = normalised(shell.helio("approval", "list", "--run", "trip").stdout).splitlines()
    assert [row.strip() for row in listing] == [
        'May I book? {"price":9}',
        "planner, since DATE, until DATE, 59 min SPAN left, the arguments may be changed",
        "helio approval grant turn_ID c2",
        "Where to?\\x1b[31m",
        "planner, since DATE, no deadline",
        "fields: to (text), days (integer)",
        "helio approval answer turn_ID c3 --value JSON",
        "Which one?",
        "planner, since DATE, no deadline",
        "one of: red, blue",
        "helio approval answer turn_ID c4 TEXT",
        "Your name?",
        "planner, since DATE, no deadline",
        "helio approval answer turn_ID c5 TEXT",
    ]
    printed = shell.helio("run", "show", "trip").stdout
    assert printed.endswith("next: answer the 4 questions above; helio approval list --run trip lists all\n")
    waiting = tasks(shell)
    assert [(t["call_id"], t["kind"], t["arguments"], t["may_edit"], t["options"]) for t in waiting.values()] == [
        ("c2", "decision", {"price": 9}, True, []), ("c3", "answer", None, False, []),
        ("c4", "answer", None, False, ["red", "blue"]), ("c5", "answer", None, False, []),
    ]  # fmt: skip
    (shell.folder / "trip.json").write_text('{"to": "Oslo", "days": 3}')
    commands = [line.strip() for line in shell.helio("approval", "list").stdout.splitlines() if "helio" in line]
    answers = {"c2": "", "c3": "--value @trip.json", "c4": "blue", "c5": "Ann --by ann"}
    for command in reversed(commands):
        turn, call = command.split()[3:5]
        done = shell.bash(" ".join([*command.split()[:5], answers[call]]))
        outcome = "granted" if call == "c2" else "answered"
        assert (done.returncode, done.stdout) == (0, f"call {call} of {turn} is {outcome}\n")
    assert running.end() == 0
    assert '"Oslo"' in running.text
    assert '"Ann"' in running.text
    assert (shell.folder / "steps").read_text() == "once "
    assert shell.helio("approval", "list").stderr == "nothing waits for a person\n"


@pytest.mark.more
def test_run_shows_the_question_and_the_command_that_answers_it_in_a_pipe(shell: Shell, started: list[Running]) -> None:
    running = shell.start("run", "desk.py:till", "--run-id", "pays", "--project", "default")
    started.append(running)
    listing = running.read_until("waiting for a person: ")
    assert "waiting for a person: May clerk call pay? {" in listing
    assert "clerk, since " in running.read_until("no deadline")
    command = running.read_until("helio approval ").strip()
    assert command.endswith(" m1-1-approval --project default")
    assert shell.bash(command).returncode == 0
    assert running.end() == 0
    assert running.text.count("waiting for a person: ") == 1
    assert "waits for 1 call" not in running.text


@pytest.mark.more
def test_run_shows_the_question_and_the_command_that_answers_it_on_a_terminal(shell: Shell) -> None:
    ours, theirs = pty.openpty()
    environment = shell.environment | {"TERM": "xterm", "LINES": "40", "COLUMNS": "200"}
    process = subprocess.Popen([HELIO, "run", "desk.py:till"], cwd=shell.folder, env=environment, stdin=theirs,
                               stdout=theirs, stderr=theirs, close_fds=True)  # fmt: skip
    os.close(theirs)
    screen = b""
    with suppress(OSError):  # Linux raises it when the other side is closed
        while piece := os.read(ours, 65536):
            screen += piece
            if b"waiting for a person" in screen and not shell.rows("turn", "list", "--status", "done"):
                for task in shell.rows("approval", "list"):
                    shell.rows("approval", "grant", task["turn_id"], task["call_id"])
    os.close(ours)
    assert process.wait(30) == 0
    assert "waiting for a person: May clerk call pay?" in screen.decode()
    assert "helio approval grant turn_" in screen.decode()


@pytest.mark.more
def test_run_as_json_shows_the_question_on_stderr(shell: Shell, started: list[Running]) -> None:
    running = run(shell, started, "till", "asks", 1)
    printed = shell.helio("run", "show", "asks").stdout
    assert printed.endswith("next: answer the question above; helio approval list --run asks lists it\n")
    (task,) = shell.rows("approval", "list")
    watching = shell.start("run", "desk.py:till", "--run-id", "asks", "--no-worker", "--json")
    started.append(watching)
    watching.read_until("waiting for a person: May clerk call pay?")
    assert shell.rows("approval", "grant", task["turn_id"], task["call_id"])
    assert (running.end(), watching.end()) == (0, 0)


@pytest.mark.more
def test_approval_granted_after_its_worker_was_killed_reaches_the_next_worker(
    shell: Shell, started: list[Running]
) -> None:
    worker = shell.start("worker", "desk.py:till", "--lease", "0.5")
    started.append(worker)
    watching = shell.start("run", "desk.py:till", "--run-id", "pays", "--no-worker")
    started.append(watching)
    (task,) = listed(shell, 1)
    worker.process.kill()
    assert (task["tool"], task["arguments"], task["may_edit"]) == ("pay", {"amount": 500, "to": "bob"}, False)
    turn, call = task["turn_id"], task["call_id"]
    assert shell.rows("approval", "grant", turn, call, "--by", "ann") == [
        {"type": "decision", "turn_id": turn, "call_id": call, "outcome": "applied"}
    ]
    again = shell.helio("approval", "grant", turn, call, "--by", "ann")
    assert normalised(again.stdout) == f"call {call} of turn_ID is granted already; nothing changed"
    other = shell.helio("approval", "deny", turn, call, "--by", "bob")
    assert other.returncode == 4
    assert (
        normalised(other.stderr)
        == f"error: call {call} of turn_ID was already granted by ann; the first decision remains"
    )
    assert not (shell.folder / "paid").exists()
    started.append(shell.start("worker", "desk.py:till"))
    assert watching.end() == 0
    assert (shell.folder / "paid").read_text() == "500 to bob\n"


@pytest.mark.more
def test_denial_reaches_the_model_with_its_reason(shell: Shell, started: list[Running]) -> None:
    running = run(shell, started, "till", "pays", 1)
    (task,) = shell.rows("approval", "list")
    done = shell.helio("approval", "deny", task["turn_id"], task["call_id"], "--reason", "too much", "--by", "ann")
    assert normalised(done.stdout) == "call m1-1-approval of turn_ID is denied"
    assert running.end() == 0
    assert "pay was denied by ann: too much; it was not called" in running.text
    assert not (shell.folder / "paid").exists()


@pytest.mark.more
def test_call_in_doubt_is_listed_with_its_decisions_and_accepts_a_result(shell: Shell, started: list[Running]) -> None:
    running = run(shell, started, "bank", "sends", 1)
    listing = normalised(shell.helio("approval", "list").stdout).splitlines()
    assert listing[0].startswith(
        "The outcome of send is unknown. Grant: call it again. Deny: do not call it again. Answer: it happened"
    )
    assert listing[0].endswith('{"amount":5}')
    assert [row.strip() for row in listing[2:]] == [
        "helio approval grant turn_ID m1-1-doubt",
        "helio approval deny turn_ID m1-1-doubt",
        "helio approval answer turn_ID m1-1-doubt --value JSON",
    ]
    (task,) = shell.rows("approval", "list")
    where = (task["turn_id"], task["call_id"])
    again = shell.helio("approval", "grant", *where)
    assert again.returncode == 0
    (task,) = listed(shell, 1)
    while task["call_id"] != "m1-1-doubt2":  # in doubt once more
        (task,) = listed(shell, 1)
    answered = shell.helio("approval", "answer", task["turn_id"], task["call_id"], "--value", '{"id": 7}')
    assert answered.returncode == 0, answered.stderr
    assert running.end() == 0
    assert "{'id': 7}" in running.text


@pytest.mark.more
def test_invalid_decision_is_rejected_and_changes_nothing(shell: Shell, started: list[Running]) -> None:
    run(shell, started, "app", "trip", 4)
    before = tasks(shell)
    turn = before["May I book?"]["turn_id"]
    (shell.folder / "latin.json").write_bytes(b'"\xe4"')
    cases: list[tuple[tuple[str, ...], int, str, str]] = [
        (("grant", "turn_none", "c2"), 3, "unknown_turn", "helio turn list"),
        (("grant", turn, "c9"), 3, "unknown_call", "has no call c9"),
        (("grant", turn, "c1"), 2, "wrong_type", "waits for before, not for a person"),
        (("grant", turn, "c2", "--project", "other"), 3, "unknown_turn", "in project other"),
        (("grant", turn, "c3"), 2, "wrong_type", "requires an answer"),
        (("grant", turn, "c2", "--arguments", "[1]"), 2, "wrong_type", "must be a JSON object, not [1]"),
        (("grant", turn, "c2", "--arguments", "nonsense"), 2, "invalid_json", "--arguments: not JSON"),
        (("grant", turn, "c2", "--arguments", "@none.json"), 3, "file_not_found", "none.json"),
        (("grant", turn, "c2", "--arguments", "@latin.json"), 2, "encoding", "not UTF-8"),
        (("grant", turn, "c2", "--by", "x" * 300), 2, "too_long", "at most 200"),
        (("deny", turn, "c2", "--reason", "x" * 3000), 2, "too_long", "at most 2000"),
        (("answer", turn, "c2", "yes"), 2, "wrong_type", "requires a decision (grant or deny)"),
        (("answer", turn, "c4", "green"), 2, "invalid_answer", "one of red, blue, not green"),
        (("answer", turn, "c3", "Oslo"), 2, "invalid_answer", 'not of type "object"'),
        (("answer", turn, "c3", "--value", '{"to": "Oslo"}'), 2, "invalid_answer", '"days" is a required property'),
        (("answer", turn, "c5", "--value", "5"), 2, "invalid_answer", "a text, not 5"),
        (("answer", turn, "c5"), 2, "usage", "required"),
        (("answer", turn, "c5", "Ann", "--value", "1"), 2, "usage", "not allowed with"),
        (("answer", "../x", "c5", "Ann"), 2, "invalid_id", "TURN takes ASCII"),
        (("list", "--run", "none"), 3, "unknown_run", "no run none"),
        (("list", "--limit", "0"), 2, "out_of_range", "from 1 to 1000"),
    ]
    wrong = []
    for arguments, code, name, words in cases:
        done = shell.helio("approval", *arguments, "--json")
        envelope = json.loads(done.stdout)["error"]
        message = envelope["message"] + envelope.get("hint", "")
        if (done.returncode, envelope["code"]) != (code, name) or words not in message:
            wrong.append((arguments, done.returncode, envelope))
    assert wrong == []
    assert tasks(shell) == before


@pytest.mark.more
def test_late_decision_is_rejected_with_a_reason(shell: Shell, started: list[Running]) -> None:
    running = shell.start("run", "desk.py:app", "--run-id", "late", "--state", '{"late": true}')
    started.append(running)
    assert running.end() == 1
    [turn] = shell.rows("turn", "list", "--run", "late")
    done = shell.helio("approval", "grant", turn["turn_id"], "c2")
    assert done.returncode == 4
    assert "cannot be decided any more" in done.stderr


def test_list_without_a_database_is_empty(tmp_path: Path) -> None:
    shell = open_shell(tmp_path, None)
    assert shell.helio("approval", "list").returncode == 0
    done = shell.helio("approval", "grant", "turn_1", "c1", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "no_data")
    assert not (tmp_path / "home").exists()
