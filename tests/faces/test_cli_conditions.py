"""Every command on a narrow terminal, without a terminal, with NO_COLOR, in a locale that is not UTF-8, and with wrong input.

The table has every command of the parser. One database has a run that succeeded, one that failed, one that waits, and a session.
"""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli.dispatch import run_command
from heliograph.testing.database import TestServer
from tests.faces.cli_support import HELIO, PRESS, Shell
from tests.faces.test_cli_start import leaves
from tests.faces.warm_helio import WarmHelio

COLUMNS = 60
# Python would choose UTF-8 in the locale C by itself; with these variables it does not
OTHER_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "latin-1"}
STYLE = re.compile(r"\x1b\[([0-9;]*)m")
COLOURS = {*range(30, 49), *range(90, 108)}  # bold and dim text has none
MOVE = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|[\r\n]")  # the cursor moves, and another line begins
NEXT_STEP = re.compile(
    r"helio |hint: |did you mean|must be|expected|takes|check the|write |required|its applications: |the limits are |as in "
)

DESK = '''"""Ein Büro: the file is UTF-8 in every locale."""
import asyncio
from heliograph import Context, Heliograph, tool
from heliograph.models import ScriptedModel, ToolCall, ToolMessage

app = Heliograph("desk")
chat = Heliograph("chat")
named = Heliograph("named")
named.prompt_agent("writer", "Write.", model="openai-chat:gpt-5")
chat.prompt_agent("assistant", "{message}", model=ScriptedModel(lambda request: "Grüße"))


@tool(approval=True)
def refund(customer: str) -> str:
    """Pay a customer back."""
    return customer


def script(request):
    return "done" if isinstance(request.messages[-1], ToolMessage) else [ToolCall("1", "refund", {"customer": "Jürgen"})]


for name in ("payer", "banker"):
    app.prompt_agent(name, "Refund", model=ScriptedModel(script), tools=[refund])


@app.agent(activate_on=["workflow:start"])
async def asker(ctx: Context) -> object:
    return await ctx.ask("Which colour has the Käfer, and how long is the sentence that asks for it on a narrow terminal?")


for name in ("sender", "printer"):
    @app.agent(name=name, activate_on=["workflow:start"])
    async def calls(ctx: Context) -> object:
        return await ctx.call("fax", {"text": "Grüße"})
'''


@dataclass(frozen=True)
class Case:
    """A command that works, and a wrong one. names: the words of the error's object.

    until: the text after which SIGTERM ends the command. is_document: it prints a document, or records of a log, which keep their lines.
    """

    right: str
    wrong: str
    wrong_code: int
    names: str
    code: int = 0
    until: str = ""
    is_document: bool = False
    typed: bytes = b""


# {name}: an id of `Place.ids`. Commands that end something are the last ones.
TABLE = {
    "run start": Case("run start press.py:app --run-id more", "run start missing.py:app", 3, "missing.py"),
    "run list": Case("run list", "run list --status finished", 2, "--status finished"),
    "run show": Case("run show bad", "run show none", 3, "none"),
    "run fork": Case("run fork first --at 3 --app press.py:app --run-id forked", "run fork first --at 999 --app press.py:app", 3, "999"),
    "run retry": Case("run retry bad --app press.py:app --run-id again", "run retry none --app press.py:app", 3, "none"),
    "worker start": Case("worker start press.py:app", "worker start press.py:nothing", 3, "nothing", until="started", is_document=True),
    "worker list": Case("worker list", "worker list --health ill", 2, "--health ill"),
    "turn list": Case("turn list", "turn list --status finished", 2, "--status finished"),
    "turn show": Case("turn show {turn}", "turn show turn_none", 3, "turn_none"),
    "turn children": Case("turn children {turn}", "turn children turn_none", 3, "turn_none"),
    "box show": Case("box show box_{turn}", "box show nobody", 3, "nobody"),
    "call list": Case("call list", "call list --run none", 3, "none"),
    "call take": Case("call take fax", "call take fax --limit 0", 2, "--limit 0"),
    "call report": Case("call report {fax_turn} {fax_call} --token {token} --result '\"Grüße\"'", "call report {fax_turn} {fax_call} --result yes", 2, "--result"),
    "approval list": Case("approval list", "approval list --run none", 3, "none"),
    "approval grant": Case("approval grant {payer_turn} {payer_call}", "approval grant turn_none c1", 3, "turn_none"),
    "approval deny": Case("approval deny {banker_turn} {banker_call} --reason Geiz", "approval deny turn_none c1", 3, "turn_none"),
    "approval answer": Case("approval answer {asker_turn} {asker_call} grün", "approval answer {asker_turn} {asker_call} --value {{", 2, "--value"),
    "callback list": Case("callback list", "callback list --state lost", 2, "--state lost"),
    "callback redeliver": Case("callback redeliver --dead", "callback redeliver callback_none", 3, "callback_none"),
    "top": Case("top --once", "top --sort name", 2, "--sort name"),
    "upgrade check": Case("upgrade check press.py:app", "upgrade check missing.py:app", 3, "missing.py"),
    "check": Case("check desk.py:app", "check missing.py:app", 3, "missing.py"),
    "graph": Case("graph desk.py:app", "graph missing.py:app", 3, "missing.py"),
    "init": Case("init Agent --output agent.yaml", "init Agnt", 2, "Agnt"),
    "validate": Case("validate agent.yaml", "validate agent.yaml --level good", 2, "--level good"),
    "export ossa": Case("export ossa desk.py:named", "export ossa missing.py:app", 3, "missing.py", is_document=True),
    "schema": Case("schema", "schema Agnt", 2, "Agnt"),
    "conformance": Case("conformance --list", "conformance NONE-1", 3, "NONE-1"),
    "send": Case("send anna assistant 'Schöne Grüße'", "send none assistant hi", 3, "none"),
    "chat": Case("chat desk.py:chat anna", "chat missing.py:app", 3, "missing.py", typed=b"\x04"),
    "signal tail": Case("signal tail --run first", "signal tail --since soon", 2, "soon"),
    "signal control": Case("signal control first", "signal control none", 3, "none"),
    "signal catalog": Case("signal catalog press.py:app", "signal catalog missing.py:app", 3, "missing.py"),
    "signal send": Case("signal send billing 'draft:*' --logs --once", "signal send billing 'a:*b' --logs --once", 2, "a:*b"),
    "signal subscriptions": Case("signal subscriptions", "signal subscriptions all", 2, "all"),
    "signal unsubscribe": Case("signal unsubscribe billing", "signal unsubscribe none", 3, "none"),
    "signal why": Case("signal why sig_first_12", "signal why sig_none_1", 3, "sig_none_1"),
    "signal tree": Case("signal tree first", "signal tree none", 3, "none"),
    "signal graph": Case("signal graph first", "signal graph none", 3, "none", is_document=True),
    "signal why-not": Case("signal why-not first critic", "signal why-not first nobody", 3, "nobody"),
    "play": Case("play first --at end", "play none --at end", 3, "none"),
    "diff": Case("diff first bad", "diff first none", 3, "none", code=1),
    "record list": Case("record list", "record list --outcome good", 2, "--outcome good"),
    "record export": Case("record export first out.jsonl", "record export none out.jsonl", 3, "none"),
    "replay": Case("replay first.jsonl --app press.py:app", "replay missing.jsonl --app press.py:app", 3, "missing.jsonl"),
    "db install": Case("db install", "db install all", 2, "all"),
    "db url": Case("db url", "db url all", 2, "all"),
    "db sql": Case("db sql", "db sql all", 2, "all", is_document=True),
    "db grant": Case("db grant nobody_here --role worker", "db grant nobody_here --role king", 2, "--role king", code=3),
    "db revoke": Case("db revoke nobody_here", "db revoke", 2, "LOGIN", code=3),
    "db roles": Case("db roles", "db roles all", 2, "all"),
    "db prune": Case("db prune --older-than 30d", "db prune --older-than soon", 2, "soon"),
    "db limits": Case("db limits", "db limits speed=9", 2, "speed"),
    "db wires": Case("db wires", "db wires --declare rabbit", 2, "rabbit"),
    "db breakers": Case("db breakers", "db breakers all", 2, "all"),
    "db rates": Case("db rates", "db rates --reset tool none", 3, "none"),
    "db doctor": Case("db doctor", "db doctor --database-url mysql://a@b/c", 2, "--database-url"),
    "dev": Case("dev desk.py:app", "dev missing.py:app", 3, "missing.py", code=143, until="started", is_document=True),
    "completion": Case("completion bash", "completion tcsh", 2, "tcsh", is_document=True),
    "sim": Case("sim replay 1", "sim frobnicate", 2, "frobnicate", is_document=True),
    "turn stop": Case("turn stop {asker_turn} --now", "turn stop turn_none", 3, "turn_none"),
    "run stop": Case("run stop waiting --now", "run stop none", 3, "none"),
}  # fmt: skip


def test_table_has_every_command() -> None:
    assert set(TABLE) == {each.prog.removeprefix("helio ") for each in leaves()}


@dataclass
class Place:
    """A folder with applications, and a database with their runs. ids: what the commands of the table name."""

    folder: Path
    environment: dict[str, str]
    warm: WarmHelio
    ids: dict[str, str] = field(default_factory=dict)

    def arguments(self, text: str) -> list[str]:
        return [str(HELIO), *shlex.split(text.format(**self.ids))]

    def in_a_pipe(self, text: str) -> tuple[int, str, str]:
        """Run a command without a terminal."""
        done = self.warm.run(self.arguments(text), self.folder, self.environment, 60)
        return done.returncode, done.stdout, done.stderr

    def on_a_terminal(self, case: Case) -> tuple[int, str]:
        """Run a command on a terminal of 60 columns, and return what it prints there."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        process = subprocess.Popen(self.warm.client(*self.arguments(case.right)), cwd=self.folder, env=self.environment, stdin=theirs,
                                   stdout=theirs, stderr=theirs, start_new_session=True)  # fmt: skip
        os.close(theirs)
        os.write(ours, case.typed)
        screen, is_ending = b"", False
        with suppress(OSError):  # Linux raises it when the other side is closed
            while piece := os.read(ours, 65536):
                screen += piece
                if case.until and case.until.encode() in screen and not is_ending:
                    process.terminate()
                    is_ending = True
        os.close(ours)
        return process.wait(60), screen.decode("utf-8")

    def rows(self, text: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.in_a_pipe(f"{text} --json")[1].splitlines()]


@pytest.fixture
def place(tmp_path: Path, postgres: TestServer) -> Iterator[Place]:
    url = asyncio.run(postgres.create())
    (tmp_path / "press.py").write_text(PRESS, encoding="utf-8")
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    environment = {**Shell(tmp_path, url, OTHER_LOCALE).environment, "TERM": "xterm"}
    del environment["COLUMNS"]
    made = Place(tmp_path, environment, WarmHelio(environment))
    try:
        fill(made)
        yield made
    finally:
        made.warm.close()
        asyncio.run(postgres.drop(url))


def fill(place: Place) -> None:
    """Make the runs, and collect the ids that the table names."""
    record = "--record first.jsonl --record-name kept --callback https://example.org/done"
    assert place.in_a_pipe(f"run press.py:app --run-id first {record}")[0] == 0
    assert place.in_a_pipe("run press.py:app --run-id bad --state '{{\"fail\": true}}'")[0] == 1
    assert place.in_a_pipe("chat desk.py:chat anna")[0] == 0
    command = place.warm.client(*place.arguments("run desk.py:app --run-id waiting"))
    waiting = subprocess.Popen(command, cwd=place.folder, env=place.environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    while len(tasks := place.rows("approval list")) < 3 or len(place.rows("call list --tool fax")) < 2:
        assert waiting.poll() is None
    waiting.terminate()
    waiting.wait(60)
    [fax] = place.rows("call take fax")
    place.ids = {"turn": place.rows("turn list --run first")[0]["turn_id"], "token": fax["token"], "fax_turn": fax["turn_id"],
                 "fax_call": fax["call_id"]}  # fmt: skip
    for task in tasks:
        place.ids |= {f"{task['agent']}_turn": task["turn_id"], f"{task['agent']}_call": task["call_id"]}


def is_narrow(line: str) -> bool:
    """Whether a line is as narrow as the terminal, or is one word or one command, which are copied whole."""
    text = line.strip(" │├└─")
    return len(line) <= COLUMNS or " " not in text or text.startswith("helio ")


def problems_on_a_terminal(place: Place, case: Case) -> Iterator[str]:
    code, screen = place.on_a_terminal(case)
    if code != case.code:
        yield f"ends with {code}, not {case.code}: {screen}"
    if COLOURS & {int(code) for codes in STYLE.findall(screen) for code in codes.split(";") if code}:
        yield f"has colours despite NO_COLOR: {screen!r}"
    if "Traceback" in screen:
        yield screen
    lines = MOVE.split(STYLE.sub("", screen))
    if not case.is_document and (long := [line for line in lines if not is_narrow(line)]):
        yield f"has lines of more than {COLUMNS} columns: {long}"


@pytest.mark.more
@pytest.mark.proves("P-55")
@pytest.mark.timeout(300)
def test_each_command_prints_narrow_lines_without_colours_in_any_locale(place: Place) -> None:
    found = [f"{name}: {problem}" for name, case in TABLE.items() for problem in problems_on_a_terminal(place, case)]
    assert found == [], "\n".join(found)


def run_in_a_pipe(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """Run a command in this process, without a terminal and with the encoding ASCII. Return its code, and what it prints and reports."""
    out, err = io.BytesIO(), io.BytesIO()
    with monkeypatch.context() as changed:  # a command writes its options into the environment
        changed.setattr(os, "environ", os.environ.copy())
        changed.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        changed.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
        changed.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="ascii"))
        code = run_command(arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        return code, out.getvalue().decode(), err.getvalue().decode()


def problems_of_wrong_input(case: Case, code: int, printed: str, errors: str) -> Iterator[str]:
    if (
        code != case.wrong_code
        or not errors.startswith("error: ")
        or "Traceback" in errors
        or "\x1b" in printed + errors
    ):
        yield f"ends with {code}, not {case.wrong_code}: {printed}{errors}"
    if not all(name in errors for name in case.names.split()) or not NEXT_STEP.search(errors):
        yield f"lacks the object or the next step: {errors}"


def problems_of_right_input(case: Case, code: int, printed: str, errors: str) -> Iterator[str]:
    if code != case.code or "Traceback" in errors or "\x1b" in printed + errors:
        yield f"ends with {code}, not {case.code}: {printed}{errors}"
    if any("..." in line and len(line) == COLUMNS for line in printed.splitlines()):
        yield f"clips a line as on a terminal: {printed}"


@pytest.mark.more
@pytest.mark.proves("P-56")
@pytest.mark.timeout(180)
def test_each_command_works_in_a_pipe_and_its_errors_name_the_object_and_the_next_step(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    found = []
    for case in TABLE.values():
        done = run_in_a_pipe(place.arguments(case.wrong)[1:], monkeypatch)
        found += [f"helio {case.wrong}: {problem}" for problem in problems_of_wrong_input(case, *done)]
        if not case.until:  # such a command runs until a signal ends its process
            done = run_in_a_pipe(place.arguments(case.right)[1:], monkeypatch)
            found += [f"helio {case.right}: {problem}" for problem in problems_of_right_input(case, *done)]
    monkeypatch.undo()
    assert found == [], "\n".join(found)
