"""`helio init`, `helio dev` and `helio completion`."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from heliograph.cli.commands import command_parser
from heliograph.cli.completion import script_of
from heliograph.cli.dev import changed, times_of
from heliograph.cli.main import main
from tests.faces.cli_support import SECONDS, Running, open_shell
from tests.grids import mostly_more


@pytest.mark.parametrize(
    ("kind", "state", "key"),
    [("tools", '{"request": "Refund 25 EUR to Ada"}', "answer"), ("workflow", '{"text": "a b c"}', "verdict")],
)
def test_application_of_a_template_runs(tmp_path: Path, database_url: str, kind: str, state: str, key: str) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("init", kind).returncode == 0
    assert shell.helio("check", "app.py:app", "--strict").returncode == 0
    result = shell.rows("run", "app.py:app", "--state", state)[-1]
    assert (result["outcome"], bool(result["state"][key])) == ("success", True)
    again = shell.helio("init", kind)
    assert (again.returncode, "there is a file app.py already" in again.stderr) == (4, True)


@pytest.mark.parametrize(
    ("text", "answer"),
    mostly_more(
        [
            ("Refund 25.50 EUR to Ada", "The result: refunded 25.5 EUR to Ada"),
            ("Refund Ada", "The request names no amount like 250 or 250.50."),
            ("Refund 1,000 EUR to Ada", "The request names no amount like 250 or 250.50."),
            ("Refund 50,25 EUR to Ada", "The request names no amount like 250 or 250.50."),
        ],
        {0, 2},
    ),
)
def test_template_with_a_tool_reads_the_amount_of_the_request(
    tmp_path: Path, database_url: str, text: str, answer: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("init", "tools").returncode == 0
    result = shell.rows("run", "app.py:app", "--state", json.dumps({"request": text}))[-1]
    assert (result["outcome"], result["state"]["answer"]) == ("success", answer)


@pytest.mark.more
def test_template_without_a_name_asks_for_the_approval_that_its_first_lines_promise(
    tmp_path: Path, database_url: str, started: list[Running]
) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("init").stdout.startswith("wrote app.py\n")
    command = next(line for line in (tmp_path / "app.py").read_text().splitlines() if line.startswith("    helio run"))
    running = shell.start(*shlex.split(command)[1:])
    started.append(running)
    granted = running.read_until("helio approval grant")
    assert shell.helio(*granted.split()[1:]).returncode == 0
    assert running.end() == 0
    assert '"answer": "The result: refunded 250.0 EUR to Ada"' in running.text


def test_chat_of_a_template_answers_and_remembers(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("init", "chat").returncode == 0
    assert shell.helio("check", "app.py:app", "--strict").returncode == 0
    for text, number in (("Hello", 1), ("Again", 2)):
        done = shell.helio_with_input(f"{text}\n".encode(), "chat", "app.py:app", "anna")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"That was message {number}: {text}\n"


@pytest.mark.more
def test_web_application_of_a_template_streams_the_signals_of_a_run(tmp_path: Path, database_url: str) -> None:
    shell = open_shell(tmp_path, database_url)
    assert shell.helio("init", "fastapi").returncode == 0
    assert shell.helio("check", "app.py:app", "--strict").returncode == 0
    command = [sys.executable, "-m", "uvicorn", "app:web", "--port", "0"]
    server = Running(subprocess.Popen(command, cwd=tmp_path, env=shell.environment, text=True, stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT))  # fmt: skip
    worker = shell.start("worker", "app.py:app")
    try:
        line = server.read_until("running on http://")
        port = int(line.split("http://127.0.0.1:")[1].split()[0])
        connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("GET", "/")
        assert "EventSource" in connection.getresponse().read().decode()
        connection.request(
            "POST", "/questions/q1", json.dumps({"question": "What?"}), {"Content-Type": "application/json"}
        )
        assert json.loads(connection.getresponse().read()) == {"events": "/questions/q1/events"}
        for after, first in ((0, 1), (3, 4)):
            connection.request("GET", "/questions/q1/events", headers={"Last-Event-ID": str(after)})
            lines = connection.getresponse().read().decode().splitlines()  # it ends with the run
            found = [json.loads(each.removeprefix("data: ")) for each in lines if each.startswith("data: ")]
            assert next(each for each in lines if each.startswith("id: ")) == f"id: {first}"
            text = "".join(each["payload"]["content"] for each in found if each["name"] == "text:delta")
            assert text == "A mirror that signals with the light of the sun."
            assert found[-1]["name"] == "workflow:end"
        connection.close()
    finally:
        for each in (server, worker):
            each.signal(signal.SIGTERM)
        worker.end()
        server.end()


def test_saved_new_and_deleted_sources_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    for name in ("app.py", "pkg/tool.py", "notes.txt", ".hidden.py"):
        (tmp_path / name).write_text("")
    before = times_of(tmp_path)
    assert {path.name for path in before} == {"app.py", "tool.py"}
    (tmp_path / "pkg/tool.py").unlink()
    (tmp_path / "new.py").write_text("")
    assert {path.name for path in changed(before, times_of(tmp_path))} == {"tool.py", "new.py"}
    assert changed(before, before) == set()


def test_dev_rejects_what_is_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dev", "app.py"]) == 2
    assert "did you mean app.py:app?" in capsys.readouterr().err
    assert main(["dev", "app"]) == 2
    assert main(["dev", f"{tmp_path}/none.py:app"]) == 3


def test_bash_completes_commands_options_and_files() -> None:
    script = script_of(command_parser(), "bash")
    for words, expected in (
        (["helio", "run", "sh"], "show"),
        (["helio", "run", "list", "--outc"], "--outcome"),
        (["helio", "cal"], "call callback"),
    ):
        line = (
            f'{script}\nCOMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _helio; echo "${{COMPREPLY[*]}}"'
        )
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, timeout=30)
        assert done.stdout.split() == expected.split()
    assert script_of(command_parser(), "zsh").startswith("autoload")
    assert (
        "complete -c helio -n '__fish_seen_subcommand_from run; and not __fish_seen_subcommand_from start"
        in script_of(command_parser(), "fish")
    )
    assert sys.executable not in script


@pytest.mark.more
def test_dev_stops_its_worker_at_sigterm(tmp_path: Path, database_url: str) -> None:
    serving = open_shell(tmp_path, database_url).start("dev", "press.py:app")
    serving.read_until("started")
    serving.signal(signal.SIGTERM)
    assert serving.end() == 143  # the worker writes to the same pipe, which is open until it has ended
    assert " stopped" in serving.text
