"""Exit codes match docs/reference/cli.md, and errors of an option name that option."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from heliograph.testing.database import TestServer
from tests.faces.cli_support import Running, Shell, open_shell
from tests.grids import mostly_more

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"

# {other}: the URL of a database that does not exist
TABLE: list[tuple[int, str]] = [
    (0, "--help"),
    (0, "--version"),
    (0, "db sql"),
    (0, "run list"),
    (0, "turn list"),
    (0, "run press.py:app --run-id fine"),
    (0, ""),
    (1, 'run press.py:app --state {"fail":true}'),
    (1, "run list --database-url postgresql://nobody@127.0.0.1:1/none"),
    (1, "db doctor --database-url {other}"),
    (2, "turn lst"),
    (2, "turn list --limit 0"),
    (2, "turn list --status finished"),
    (2, "run press.py:app --state nonsense"),
    (2, "run list --database-url mysql://a@b/c"),
    (3, "turn show turn_none"),
    (3, "run none.py:app"),
    (3, "signal why sig_none_1"),
    (3, "callback redeliver callback_none"),
    (4, 'run press.py:app --run-id fine --state {"fail":true}'),
    (4, "run press.py:app --callback https://a:b@somewhere.example/"),
]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, postgres: TestServer) -> Iterator[Shell]:
    """One database for all commands of this file, with one run in it."""
    url = asyncio.run(postgres.create())
    shell = open_shell(tmp_path_factory.mktemp("codes"), url)
    assert shell.helio("run", "press.py:app", "--run-id", "fine").returncode == 0
    yield shell
    asyncio.run(postgres.drop(url))


def other(shell: Shell) -> str:
    parts = urlsplit(shell.url or "")
    return urlunsplit(parts._replace(path=f"{parts.path}_none"))


def test_page_help_and_table_list_the_same_codes(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (\d+) \|", page, re.M)
    ending = Shell(tmp_path, None).helio("--help").stdout.partition("exit codes: ")[2]
    assert re.findall(r"\d+", ending) == listed
    assert {code for code, _ in TABLE} | {130} == set(map(int, listed))


@pytest.mark.parametrize(("code", "command"), mostly_more(TABLE, {0, 6, 9, 15, 20}), ids=str)
def test_command_ends_with_its_documented_code(shell: Shell, code: int, command: str) -> None:
    done = shell.helio(*command.replace("{other}", other(shell)).split())
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_is_interrupted_ends_with_130(shell: Shell, started: list[Running], number: int) -> None:
    run = shell.start("run", "press.py:app", "--state", '{"stall": true}', "--grace", "0")
    started.append(run)
    run.read_until("half way")
    run.signal(number)
    assert run.end() == 130, run.text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_that_is_interrupted_while_its_application_loads_ends_with_130(
    shell: Shell, started: list[Running], number: int
) -> None:
    # short sleeps: Python runs no handler for a signal that comes just before a sleep until that sleep ends
    loading = "import time\n\nprint('loading', flush=True)\nfor _ in range(6000):\n    time.sleep(0.01)\n"
    (shell.folder / "slow.py").write_text(loading)
    run = shell.start("run", "slow.py:app")
    started.append(run)
    run.read_until("loading")
    run.signal(number)
    assert run.end() == 130, run.text
    assert "Traceback" not in run.text


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "invalid_url"),
        ("mysql://a@b/c", "invalid_url"),
        ("postgresql://a@b:port/c", "invalid_url"),
        ("postgresql://a@127.0.0.1:99999/c", "invalid_url"),
        ("postgresql://a@no-such-host.invalid/c", "store_unavailable"),
        ("postgresql://a@127.0.0.1:1/c", "store_unavailable"),
        ("{other}", "no_database"),
    ],
)
def test_error_in_the_database_url_names_the_option(shell: Shell, url: str, code: str) -> None:
    given = url.replace("{other}", other(shell))
    done = shell.helio("run", "list", "--json", "--database-url", given)
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["path"]) == (code, "--database-url")
    assert "--database-url" in error["message"]
    assert "HELIOGRAPH_DATABASE_URL" not in done.stdout + done.stderr
    named = Shell(shell.folder, given).helio("run", "list")  # and the variable, where it came from there
    assert "HELIOGRAPH_DATABASE_URL" in named.stderr or not given
