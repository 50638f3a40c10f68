"""Calls, reports and stops from a shell: each against a run that waits in another process."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faces.cli_support import Running, Shell, normalised, open_shell
from tests.grids import mostly_more

CALLING_APP = """
import asyncio
from heliograph import Context, Heliograph

app = Heliograph("asks")


@app.agent(activate_on=["workflow:start"], updates="answer")
async def asker(ctx: Context):
    if ctx.document.get("work"):
        ctx.progress(0.5, "at work")
        await asyncio.Event().wait()
    return await ctx.call("approve", {"amount": 5}, timeout=3600)
"""


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    (tmp_path / "asks.py").write_text(CALLING_APP)
    return open_shell(tmp_path, database_url)


@pytest.fixture
def waiting(shell: Shell, started: list[Running]) -> Running:
    """Start a run of asks.py, and wait until it has made its call."""
    running = shell.start("run", "asks.py:app", "--run-id", "q")
    started.append(running)
    running.read_until("tool:call")
    return running


def taken(shell: Shell) -> dict[str, Any]:
    [call] = shell.rows("call", "take", "approve", "--limit", "5")
    return call


def test_open_calls_are_listed_and_taken_and_a_report_continues_the_run(shell: Shell, waiting: Running) -> None:
    listed = normalised(shell.helio("call", "list").stdout).splitlines()
    assert listed[0] == "TURN  CALL  TOOL  AGENT  OPENED  LEFT"
    assert listed[1].startswith("turn_ID  c1  approve  asker  SPAN ago  59 min")
    assert shell.rows("call", "list", "--tool", "other") == []
    call = taken(shell)
    assert (call["tool"], call["arguments"], call["delivery"]) == ("approve", {"amount": 5}, 1)
    assert (
        "no open calls, or other processes have taken them"
        in shell.helio("call", "take", "approve", "--limit", "1").stderr
    )
    report = ("call", "report", call["turn_id"], call["call_id"], "--token", call["token"], "--result")
    assert shell.helio(*report, '{"ok": true}').stdout == "applied: the turn has its result\n"
    assert waiting.end() == 0
    assert '"ok": true' in waiting.text
    assert shell.helio(*report, '{"ok": true}').stdout == "turn_done: the turn has already ended; nothing changed\n"
    assert "no open calls" in shell.helio("call", "list").stderr


@pytest.mark.more
def test_taken_call_is_printed_with_its_report_command(shell: Shell, waiting: Running) -> None:
    first, second = shell.helio("call", "take", "approve", "--limit", "1").stdout.splitlines()
    assert first == 'approve {"amount":5}'
    assert second.startswith("    helio call report turn_")
    done = shell.bash(second.replace("JSON", "'\"yes\"'"))
    assert (done.returncode, done.stdout) == (0, "applied: the turn has its result\n")
    assert waiting.end() == 0


@pytest.mark.more
def test_turn_lists_its_open_calls(shell: Shell, waiting: Running) -> None:
    [turn] = shell.rows("turn", "list", "--run", "q")
    assert (turn["status"], turn["phase"]) == ("suspended", "act")
    output = normalised(shell.helio("turn", "show", turn["turn_id"]).stdout)
    assert "doing  waits for 1 call, the first deadline at TIME" in output
    assert "CALL  TOOL  KIND  STATE  OPENED  TOOK  DEADLINE\nc1  approve  tool  open  DATE  SPAN  DATE" in output
    assert 'tool.call  epoch 2\n  {"step_id":"s1","arguments":{"amount":5}' in output
    [whole] = shell.rows("turn", "show", turn["turn_id"])
    assert [(call["call_id"], call["state"]) for call in whole["calls"]] == [("c1", "open")]


@pytest.mark.more
def test_watched_run_reports_its_open_calls(shell: Shell, waiting: Running) -> None:
    output = normalised(waiting.read_until("waits for"))
    assert output.startswith(
        "asker (turn_ID) waits for 1 call: see helio turn show turn_ID; helio call list lists the calls to report"
    )


@pytest.mark.more
def test_report_takes_a_result_from_a_file_and_a_failure_from_a_text(shell: Shell, waiting: Running) -> None:
    call = taken(shell)
    report = ("call", "report", call["turn_id"], "c1", "--token", call["token"])
    (shell.folder / "result.json").write_text('{"from": "file"}')
    assert shell.helio(*report, "--result-file", "result.json").returncode == 0
    assert waiting.end() == 0
    assert '"from": "file"' in waiting.text


@pytest.mark.more
def test_reported_error_fails_the_run(shell: Shell, waiting: Running) -> None:
    call = taken(shell)
    done = shell.helio(
        "call", "report", call["turn_id"], "c1", "--token", call["token"], "--error", "too much", "--json"
    )
    assert json.loads(done.stdout) == {
        "type": "report",
        "turn_id": call["turn_id"],
        "call_id": "c1",
        "outcome": "applied",
    }
    assert waiting.end() == 1
    assert "TOOL_ERROR: approve (call c1): too much" in waiting.text


@pytest.mark.more
def test_rejected_report_names_its_call_and_the_next_step(shell: Shell, waiting: Running) -> None:
    call = taken(shell)
    turn, token = call["turn_id"], ("--token", call["token"])
    (shell.folder / "latin.json").write_bytes(b'"\xe4"')
    (shell.folder / "large.json").write_bytes(b'"' + b"x" * 20_000_000 + b'"')
    (shell.folder / "big.json").write_bytes(b'"' + b"x" * 2_000_000 + b'"')
    cases: list[tuple[tuple[str, ...], int, str, str]] = [
        ((turn, "c9", *token, "--result", "1"), 3, "unknown_call", "has no call c9"),
        (("turn_none", "c1", *token, "--result", "1"), 3, "unknown_turn", "helio turn list"),
        ((turn, "c1", *token, "--result", "1", "--project", "other"), 3, "unknown_turn", "in project other"),
        ((turn, "c1", "--token", "wrong", "--result", "1"), 4, "bad_signature", "missing, wrong or no longer valid"),
        ((turn, "c1", "--result", "1"), 4, "bad_signature", "missing, wrong or no longer valid"),
        ((turn, "c1", *token, "--result", "yes"), 2, "invalid_json", "--result: not JSON"),
        ((turn, "c1", *token, "--result", "NaN"), 2, "json_non_finite", "nan is not a number in JSON"),
        ((turn, "c1", *token, "--result", '{"a": 1, "a": 2}'), 2, "json_duplicate_key", "twice"),
        ((turn, "c1", *token, "--result-file", "none.json"), 3, "file_not_found", "none.json"),
        ((turn, "c1", *token, "--result-file", "latin.json"), 2, "encoding", "not UTF-8"),
        ((turn, "c1", *token, "--result-file", "large.json"), 2, "payload_too_large", "larger than 16 MiB"),
        ((turn, "c1", *token, "--result-file", "big.json"), 2, "payload_too_large", "at most 1048576 are allowed"),
        ((turn, "c1", *token), 2, "usage", "required"),
        ((turn, "c1", *token, "--result", "1", "--error", "no"), 2, "usage", "not allowed with"),
        ((turn, "../c1", *token, "--result", "1"), 2, "invalid_id", "CALL takes ASCII"),
        ((turn, "c" * 300, *token, "--result", "1"), 2, "too_long", "at most 200"),
    ]
    for arguments, code, name, words in cases:
        done = shell.helio("call", "report", *arguments, "--json")
        envelope = json.loads(done.stdout)["error"]
        assert (done.returncode, envelope["code"]) == (code, name), (arguments, done.stdout)
        assert words in envelope["message"] + envelope.get("hint", "")
    assert (
        "store it elsewhere"
        in json.loads(shell.helio("call", "report", turn, "c1", *token, "--result-file", "big.json", "--json").stdout)[
            "error"
        ]["message"]
    )
    assert shell.rows("call", "list")[0]["duplicates"] == 0


def test_report_without_a_database_creates_none(tmp_path: Path) -> None:
    shell = open_shell(tmp_path, None)
    done = shell.helio("call", "report", "turn_1", "c1", "--result", "1", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "no_data")
    assert shell.helio("turn", "stop", "turn_1").returncode == 3
    assert shell.helio("run", "stop", "r").returncode == 3
    assert shell.helio("call", "list").returncode == 0
    assert not (tmp_path / "home").exists()


# ── Stops ──


def test_stopped_run_ends_the_command_that_follows_it(shell: Shell, waiting: Running) -> None:
    assert shell.helio("run", "stop", "q", "--reason", "resource_limit").stdout.startswith("run q is stopping")
    assert waiting.end() == 1
    assert "outcome  canceled (resource_limit)" in waiting.text
    again = shell.helio("run", "stop", "q")
    assert (again.returncode, again.stdout) == (0, "run q has already ended: canceled\n")


@pytest.mark.proves("G-70")
@pytest.mark.parametrize("words", mostly_more(["run stop", "run --json stop"], {1}))
def test_halt_accepts_any_reason_and_logs_its_sender(shell: Shell, waiting: Running, words: str) -> None:
    done = shell.helio(*words.split(), "q", "--now", "--by", "ada", "--reason", "policy_violation")
    assert (done.returncode, done.stderr) == (0, "")
    assert waiting.end() == 1
    payloads = {
        s["name"]: s["payload"] for s in shell.rows("signal", "tail", "--run", "q", "halt", "workflow:terminating")
    }
    assert payloads["workflow:terminating"] == {"reason": "policy_violation", "actor": "ada"}
    assert payloads["halt"] == {"reason": "policy_violation", "graceful": False, "actor": "ada"}


@pytest.mark.parametrize("how", mostly_more([(("--grace", "5"),), (("--now",),)], {1}))
def test_turn_running_in_another_process_is_stopped(shell: Shell, started: list[Running], how: tuple[str, ...]) -> None:
    running = shell.start("run", "asks.py:app", "--run-id", "w", "--state", '{"work": true}')
    started.append(running)
    running.read_until("at work")
    [turn] = shell.rows("turn", "list", "--run", "w")
    [answer] = shell.rows("turn", "stop", turn["turn_id"], *how)
    assert answer == {
        "type": "stopped",
        "turn_id": turn["turn_id"],
        "outcome": "stopped" if how == ("--now",) else "stopping",
        "ended_as": None,
    }
    assert running.end() in (0, 1)
    assert "CANCELED: user_interrupt" in running.text
    [again] = shell.rows("turn", "stop", turn["turn_id"])
    assert (again["outcome"], again["ended_as"]) == ("already_done", "canceled")
    assert "status       ended, success; 1 turn was stopped\n" in shell.helio("run", "show", "w").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (("turn", "stop", "turn_none"), 3, "unknown_turn"),
        (("run", "stop", "none"), 3, "unknown_run"),
        (("turn", "stop", "turn_none", "--now", "--grace", "5"), 2, "usage"),
        (("turn", "stop", "turn_none", "--grace", "-1"), 2, "out_of_range"),
        (("turn", "stop", "turn_none", "--reason", ""), 2, "invalid_reason"),
        (("turn", "stop"), 2, "usage"),
        (("call", "take"), 2, "usage"),
        (("call", "take", "x", "--limit", "0"), 2, "out_of_range"),
        (("run", "list", "--project", "a", "--project", "b"), 2, "usage"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_impossible_stop_or_take_names_its_object(
    shell: Shell, arguments: tuple[str, ...], code: int, name: str
) -> None:
    done = shell.helio(*arguments, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (code, name)


@pytest.mark.more
def test_worker_serves_several_projects(shell: Shell, started: list[Running]) -> None:
    worker = shell.start("worker", "press.py:app", "--project", "a", "--project", "b")
    started.append(worker)
    assert "serves press in projects a, b, 16 turns at a time" in worker.read_until("started")
    for project in ("a", "b"):
        assert shell.helio("run", "press.py:app", "--no-worker", "--project", project).returncode == 0
