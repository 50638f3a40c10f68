from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from heliograph.ledger.pool import Database
from tests.faces.cli_support import Running, Shell, normalised, open_shell


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return open_shell(tmp_path, database_url)


PLAIN = """\
run run_ID of press has started; resume it with: helio run press.py:app --run-id run_ID
TIME  workflow:start  -  {"topic":"ink"}
TIME  agent:activated  writer
TIME  ready  writer  {"version":"1","metadata":{"runtime":"PYTHON","tools_loaded":0},"capabilities":["draft:ready"]}
TIME  plan_ready  writer  {"steps":1,"tools_required":[]}
TIME  agent:progress  writer  50% half way
TIME  action_complete  writer  {"success":true,"steps_executed":1}
TIME  reflection_complete  writer  {"decision":"goal_achieved"}
TIME  terminated  writer  {"status":"success","outputs":["the draft"]}
TIME  agent:completed  writer  the draft
TIME  state:draft:changed  writer  {"value":"the draft"}
TIME  draft:ready  writer  the draft
TIME  agent:activated  critic
"""


WORK = """\
run run_ID of press has started; resume it with: helio run press.py:app --run-id run_ID
TIME  agent:activated  writer
TIME  agent:progress  writer  50% half way
TIME  agent:completed  writer  the draft
TIME  draft:ready  writer  the draft
TIME  agent:activated  critic
TIME  agent:completed  critic  good: the draft
outcome  success
"""


def test_run_shows_the_work_of_its_agents_and_its_outcome(shell: Shell) -> None:
    done = shell.helio("run", "press.py:app", "--state", '{"topic": "ink"}')
    assert (done.returncode, done.stderr) == (0, "")
    assert normalised(done.stdout).replace("the critic prints this\n", "").startswith(WORK)


def test_run_with_all_prints_a_line_per_signal(shell: Shell) -> None:
    done = shell.helio("run", "press.py:app", "--state", '{"topic": "ink"}', "--all")
    assert (done.returncode, done.stderr) == (0, "")
    text = normalised(done.stdout).replace("the critic prints this\n", "")  # at any moment, as its thread likes
    assert text[: len(PLAIN)] == PLAIN
    assert "outcome  success\nturns  2, failed 0, skipped 0\ntokens  0 in, 0 out\ntook  SPAN\nstate  {" in text
    assert '"verdict": "good: the draft"' in text


@pytest.mark.proves("SIG-62")
def test_json_output_is_one_object_per_line_despite_prints_of_agents(shell: Shell) -> None:
    done = shell.helio("run", "press.py:app", "--state", "{}", "--json", "--run-id", "run_json")
    assert done.returncode == 0
    *signals, result = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["seq"] for each in signals] == list(range(1, len(signals) + 1))
    assert signals[0]["name"] == "workflow:start"
    assert signals[-1]["name"] == "workflow:end"
    assert list(result) == ["type", "run_id", "outcome", "state", "metrics"]
    assert (result["run_id"], result["outcome"]) == ("run_json", "success")
    assert "the critic prints this" in done.stderr
    assert "helio run press.py:app --run-id run_json" in done.stderr


def test_failed_run_exits_with_1_and_prints_the_cause_without_a_traceback(shell: Shell) -> None:
    done = shell.helio("run", "press.py:app", "--state", '{"fail": true}')
    assert done.returncode == 1
    assert "ACTION_FAILED: ValueError: no ink" in done.stdout
    assert "outcome  failed" in done.stdout
    assert "(press.py:20)" in done.stderr
    assert "ACTION_FAILED: ValueError: no ink (press.py:20)" in done.stdout.split("outcome  failed")[1]
    assert "Traceback" not in done.stdout + done.stderr


FAILING = """
from heliograph import Heliograph

app = Heliograph("failing")


@app.agent(activate_on=["workflow:start"])
def writer(c):
    raise ValueError("no ink\\n" * 700 + "at the very end")


idle = Heliograph("idle")
unknown = Heliograph("unknown")
unknown.prompt_agent("writer", "Write.", model="nobody:nothing", activate_on=["workflow:start"])
idle.agent(name="counter", activate_on=["workflow:strat"], emits=["words:counted"])(lambda c: None)
"""


def test_failure_reason_is_complete_in_a_pipe_in_the_closing_block_and_in_json(shell: Shell) -> None:
    (shell.folder / "failing.py").write_text(FAILING)
    done = shell.helio("run", "failing.py:app", "--run-id", "long")
    assert done.returncode == 1
    whole = "ACTION_FAILED: ValueError: " + r"no ink\n" * 700 + "at the very end"
    [signal] = [line for line in done.stdout.splitlines() if "agent:failed" in line]
    assert signal.endswith(whole)
    [turn] = shell.rows("turn", "list", "--status", "failed")
    assert f"\nfailed   writer ({turn['turn_id']}): {whole} (failing.py:9)\n" in done.stdout
    result = json.loads(shell.helio("run", "failing.py:app", "--run-id", "long", "--json").stdout.splitlines()[-1])
    assert list(result) == ["type", "run_id", "outcome", "state", "metrics", "failures"]
    assert result["failures"] == [
        {"agent": "writer", "turn_id": turn["turn_id"], "outcome": "failed", "code": "ACTION_FAILED",
         "message": whole.removeprefix("ACTION_FAILED: ")}
    ]  # fmt: skip
    assert shell.rows("turn", "list", "--status", "success") == []
    assert len(shell.rows("turn", "list", "--status", "done")) == 1


@pytest.mark.more
def test_failure_reason_of_a_model_that_cannot_be_used_includes_the_hint(shell: Shell) -> None:
    (shell.folder / "failing.py").write_text(FAILING)
    done = shell.helio("run", "failing.py:unknown", "--run-id", "model", "--json")
    *signals, result = [json.loads(line) for line in done.stdout.splitlines()]
    [error] = [signal["payload"]["message"] for signal in signals if signal["name"] == "harness:error"]
    assert "; name it provider:model, install its extra (heliograph[openai]" in error
    assert result["failures"][0]["message"] == error


def test_run_in_which_no_agent_ran_ends_with_1_and_names_the_misspelt_signal(shell: Shell) -> None:
    (shell.folder / "failing.py").write_text(FAILING)
    done = shell.helio("run", "failing.py:idle", "--run-id", "idle")
    assert done.returncode == 1
    assert (
        "warning: pattern_matches_nothing: 'workflow:strat' matches no signal; did you mean workflow:start?"
        in done.stdout
    )
    assert "warning: nothing_subscribes: agent counter emits 'words:counted'" in done.stdout
    assert "outcome  failed (no agent ran: none is activated by workflow:start)" in done.stdout
    result = json.loads(shell.helio("run", "failing.py:idle", "--run-id", "idle", "--json").stdout.splitlines()[-1])
    assert (result["outcome"], result["code"]) == ("failed", "NOTHING_RAN")


def test_run_reads_its_state_from_a_file(shell: Shell) -> None:
    (shell.folder / "state.json").write_text('{"topic": "paper"}')
    done = shell.helio("run", "press.py:app", "--state", "@state.json")
    assert done.returncode == 0
    assert '"topic": "paper"' in done.stdout


def test_printed_states_have_their_keys_in_alphabetical_order(shell: Shell) -> None:
    state = '{"zoo": [{"yard": 1, "a_long_key": 2}], "an_agenda": 3}'
    texts = [
        shell.helio("run", "press.py:app", "--run-id", "r", "--state", state).stdout,
        shell.helio("run", "show", "r").stdout,
    ]
    keys = ["an_agenda", "draft", "verdict", "zoo", "a_long_key", "yard"]
    assert [re.findall(r'^ +"(\w+)":', text, re.MULTILINE) for text in texts] == [keys, keys]
    for command in (["run", "press.py:app", "--run-id", "r"], ["run", "list"]):
        found = shell.rows(*command)[-1]["state"]
        assert [*found, *found["zoo"][0]] == keys
    played = shell.helio("play", "r", "--at", "end").stdout
    assert re.findall(r"^state +(\w+)", played, re.MULTILINE) == keys[:4]


@pytest.mark.more
def test_ended_run_is_only_read(shell: Shell) -> None:
    shell.helio("run", "press.py:app", "--state", '{"topic": "ink"}', "--run-id", "once")
    again = shell.helio("run", "press.py:app", "--run-id", "once")
    assert again.returncode == 0
    assert again.stdout.startswith("run once of press has ended\n")
    assert "outcome  success" in again.stdout
    assert len(shell.rows("turn", "list", "--run", "once")) == 2


def test_run_id_with_another_state_is_rejected(shell: Shell) -> None:
    shell.helio("run", "press.py:app", "--state", '{"topic": "ink"}', "--run-id", "once")
    other = shell.helio("run", "press.py:app", "--state", '{"topic": "oil"}', "--run-id", "once", "--json")
    assert other.returncode == 4
    assert json.loads(other.stdout)["error"]["code"] == "id_conflict"


@pytest.mark.more
@pytest.mark.proves("L0-111", "G-62")
async def test_killed_run_continues_under_its_id_and_names_the_lease_that_it_waits_for(
    shell: Shell, started: list[Running], database: Database
) -> None:
    first = shell.start("run", "press.py:app", "--state", '{"stall": true}', "--run-id", "k")
    started.append(first)
    first.read_until("half way")
    first.signal(signal.SIGKILL)
    assert first.end() == -signal.SIGKILL
    again = shell.start("run", "press.py:app", "--run-id", "k")
    started.append(again)
    waiting = again.read_until("waiting for writer (turn_")
    assert "owned by worker " in waiting
    assert "; it must renew its lease by " in waiting
    assert "if the worker is dead" not in waiting
    assert again.lines[0].startswith("run k of press continues; resume it with: ")
    # the lease ends only now: on any machine, another worker owned the turn before
    await database.fetch("update heliograph.agent_state_head set lease_until = now() where lease_until is not null")
    assert again.end() == 0, again.text
    [writer] = [turn for turn in shell.rows("turn", "list", "--run", "k") if turn["agent"] == "writer"]
    assert (writer["outcome"], writer["attempts"]) == ("success", 1)


@pytest.mark.more
def test_two_commands_for_one_run_id_share_the_work_and_print_the_same(shell: Shell, started: list[Running]) -> None:
    arguments = ("run", "press.py:app", "--state", '{"topic": "ink"}', "--run-id", "both", "--json")
    started += [shell.start(*arguments), shell.start(*arguments)]
    assert [running.end() for running in started] == [0, 0]
    logs = [[line for line in running.lines if line.startswith("{")] for running in started]
    assert logs[0] == logs[1]
    assert len(shell.rows("turn", "list", "--run", "both")) == 2
    assert {row["status"] for row in shell.rows("db", "doctor")} <= {"ok", "warning"}


def test_first_sigint_finishes_the_running_turn_and_starts_no_other(shell: Shell, started: list[Running]) -> None:
    release = shell.folder / "release"
    state = json.dumps({"hold": str(release)})
    running = shell.start("run", "press.py:app", "--state", state, "--run-id", "int")
    started.append(running)
    running.read_until("half way")
    running.signal(signal.SIGINT)
    running.read_until("SIGINT: stopping")
    release.touch()
    assert running.end() == 130
    assert "agent:completed         writer" in running.text
    assert "run int has not ended; resume it with: helio run press.py:app --run-id int" in running.text
    states = {turn["agent"]: turn["status"] for turn in shell.rows("turn", "list", "--run", "int")}
    assert states == {"writer": "done", "critic": "dispatched"}
    assert shell.helio("run", "press.py:app", "--run-id", "int").returncode == 0


@pytest.mark.more
@pytest.mark.parametrize(("fails", "code", "outcome"), [(False, 0, "success"), (True, 1, "failed")])
def test_run_that_ends_within_the_grace_ends_the_command_by_its_outcome(
    shell: Shell, started: list[Running], fails: bool, code: int, outcome: str
) -> None:
    (shell.folder / "last.py").write_text(
        "import asyncio\nfrom pathlib import Path\nfrom heliograph import Heliograph\napp = Heliograph('last')\n"
        "@app.agent(activate_on=['workflow:start'])\nasync def only(c):\n    c.progress(0.5, 'half way')\n"
        "    while not Path('release').exists():\n        await asyncio.sleep(0.01)\n"
        f"    assert not {fails}\n"
    )
    running = shell.start("run", "last.py:app", "--run-id", "last")
    started.append(running)
    running.read_until("half way")
    running.signal(signal.SIGINT)
    running.read_until("SIGINT: stopping")
    (shell.folder / "release").touch()
    assert running.end() == code
    assert f"outcome  {outcome}" in running.text
    assert "has not ended" not in running.text


@pytest.mark.more
def test_turn_past_the_grace_is_released_at_once(shell: Shell, started: list[Running]) -> None:
    arguments = ("--state", '{"stall": true}', "--run-id", "back", "--lease", "3600", "--grace", "0")
    running = shell.start("run", "press.py:app", *arguments)
    started.append(running)
    running.read_until("half way")
    running.signal(signal.SIGTERM)
    assert running.end() == 130
    assert shell.helio("run", "press.py:app", "--run-id", "back").returncode == 0  # the hour of the lease did not pass


@pytest.mark.more
def test_second_sigint_ends_at_once_and_loses_nothing(shell: Shell, started: list[Running]) -> None:
    running = shell.start("run", "press.py:app", "--state", '{"stall": true}', "--run-id", "two", "--lease", "0.5")
    started.append(running)
    running.read_until("half way")
    running.signal(signal.SIGINT)
    running.read_until("SIGINT: stopping")
    running.signal(signal.SIGINT)
    assert running.end() == 130
    assert shell.helio("run", "press.py:app", "--run-id", "two").returncode == 0


def test_endless_plain_function_does_not_keep_the_process_alive(shell: Shell, started: list[Running]) -> None:
    (shell.folder / "stuck.py").write_text(
        "import threading\nfrom heliograph import Heliograph\napp = Heliograph('stuck')\n"
        "@app.agent(activate_on=['workflow:start'])\n"
        "def agent(c):\n    c.progress(0.1, 'stuck')\n    threading.Event().wait()\n"
    )
    running = shell.start("run", "stuck.py:app", "--grace", "0")
    started.append(running)
    running.read_until("10% stuck")
    running.signal(signal.SIGINT)
    assert running.end() == 130


@pytest.mark.more
def test_async_function_that_swallows_its_cancellation_does_not_keep_the_process_alive(
    shell: Shell, started: list[Running]
) -> None:
    (shell.folder / "deaf.py").write_text(
        "import asyncio\nfrom heliograph import Heliograph\napp = Heliograph('deaf')\n"
        "@app.agent(activate_on=['workflow:start'])\n"
        "async def agent(c):\n    c.progress(0.1, 'stuck')\n    while True:\n        try:\n"
        "            await asyncio.sleep(0.05)\n        except asyncio.CancelledError:\n            pass\n"
    )
    running = shell.start("run", "deaf.py:app", "--grace", "0", "--run-id", "deaf")
    started.append(running)
    running.read_until("10% stuck")
    running.signal(signal.SIGINT)
    assert running.end() == 130
    assert "run deaf has not ended" in running.text


def test_closed_pipe_ends_a_run_silently(shell: Shell) -> None:
    done = shell.bash("helio run press.py:app --json 2>/dev/null | head -1; echo ${PIPESTATUS[0]}")
    first, code = done.stdout.splitlines()
    assert json.loads(first)["name"] == "workflow:start"
    assert (code, done.stderr) == ("0", "")


@pytest.mark.more
def test_run_without_its_own_worker_is_executed_by_others(shell: Shell, started: list[Running]) -> None:
    worker = shell.start("worker", "press.py:app", "--name", "night-shift")
    started.append(worker)
    worker.read_until("started: serves press")
    done = shell.helio("run", "press.py:app", "--no-worker", "--run-id", "far")
    assert done.returncode == 0
    [lease] = shell.rows("turn", "show", shell.rows("turn", "list", "--run", "far")[0]["turn_id"])[0]["leases"]
    assert lease["owner"].startswith("night-shift:")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0
    assert "SIGTERM: stopping" in worker.text
    assert worker.lines[-1].endswith("stopped")


@pytest.mark.more
async def test_worker_survives_an_outage_and_logs_the_recovered_turns(
    shell: Shell, started: list[Running], database: Database
) -> None:
    first = shell.start("run", "press.py:app", "--state", '{"stall": true}', "--run-id", "dead", "--lease", "0.5")
    started.append(first)
    first.read_until("half way")
    first.signal(signal.SIGKILL)
    worker = shell.start("worker", "press.py:app", "--json")
    started.append(worker)
    worker.read_until("started")
    # every connection but ours is gone at once, as in a restart of the server
    await database.fetch("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                         "and pid <> pg_backend_pid() and application_name like 'heliograph%'")  # fmt: skip
    recovered = json.loads(worker.read_until("recovered turn_"))
    assert (recovered["level"], list(recovered)) == ("info", ["at", "level", "logger", "message"])
    assert shell.helio("run", "press.py:app", "--run-id", "dead", "--no-worker").returncode == 0
    worker.signal(signal.SIGINT)
    assert worker.end() == 130
    worker.lines.remove("the critic prints this")  # on stderr, which is read together with stdout here
    assert all(json.loads(line) for line in worker.lines)


def test_text_in_a_file_that_an_application_leaves_open_is_written(tmp_path: Path, database_url: str) -> None:
    """The interpreter does so with its last collections, because a module with a function is a cycle."""
    shell = open_shell(tmp_path, database_url)
    text = "from press import app\nnotes = open('notes.txt', 'w')\ndef note(text): notes.write(text)\nnote('loaded')\n"
    (tmp_path / "notes.py").write_text(text)
    running = shell.start("run", "notes.py:app", "--run-id", "noted")
    assert running.end() == 0, running.text
    assert (tmp_path / "notes.txt").read_text() == "loaded"
