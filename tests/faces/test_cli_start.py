from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from heliograph.cli.commands import command_parser
from heliograph.cli.dispatch import with_verb
from heliograph.cli.garbage_collection import tuned_garbage_collection
from heliograph.cli.logs import show_logs
from heliograph.cli.main import main
from heliograph.cli.parser import Parser
from tests.faces.cli_support import HELIO, Shell, open_shell
from tests.grids import mostly_more
from tests.kept_logging import kept_logging

HEAVY = {"asyncpg", "msgspec", "pydantic", "pydantic_ai", "rich", "asyncio", "nats"}

MODULES_MAX = 168  # the modules that --version loads, and a few more

PROBE = """
import sys
before = set(sys.modules)
from heliograph.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sorted(sys.modules.keys() - before), file=sys.stderr)
sys.exit(code)
"""


def loaded_by(shell: Shell, *arguments: str) -> set[str]:
    """Which modules a command has imported."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], cwd=shell.folder, env=shell.environment, text=True,
                          check=False, capture_output=True, timeout=30)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["sim", "--help"], ["--version"]], ids=" ".join)
def test_help_imports_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    loaded = loaded_by(Shell(tmp_path, None), *arguments)
    assert loaded & HEAVY == set()
    assert len(loaded) < MODULES_MAX


def test_schema_is_printed_without_a_driver(tmp_path: Path) -> None:
    assert loaded_by(Shell(tmp_path, None), "db", "sql") & HEAVY <= {"asyncio"}


@pytest.mark.parametrize(
    "arguments",
    [["turn", "list"], ["run", "list"], ["signal", "tail"], ["db", "doctor"], ["run", "press.py:app"]],
    ids=" ".join,
)
def test_no_command_imports_an_unneeded_model_or_terminal_library(
    tmp_path: Path, database_url: str, arguments: list[str]
) -> None:
    assert not loaded_by(open_shell(tmp_path, database_url), *arguments) & {"pydantic_ai", "rich", "nats"}


def test_long_command_name_runs_the_same_program(tmp_path: Path) -> None:
    def help_of(program: Path) -> str:
        return subprocess.run([program, "--help"], env=Shell(tmp_path, None).environment, text=True, check=True,
                              capture_output=True).stdout  # fmt: skip

    assert help_of(HELIO) == help_of(HELIO.with_name("heliograph"))


def test_help_names_every_command_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    shell = Shell(tmp_path, None)
    text = shell.helio("--help").stdout
    assert shell.helio().stdout == text
    assert all(f"\n    {name} " in text for name in ("run", "call", "worker", "turn", "signal", "db", "sim"))
    for command in ("helio --help", "helio db sql"):
        done = shell.bash(f"{command} | true; echo ${{PIPESTATUS[0]}}")
        assert (done.stdout, done.stderr) == ("0\n", "")


def parsers_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers_of(below)


def leaves() -> list[argparse.ArgumentParser]:
    """The parsers of commands, without those of nouns."""
    return list({id(each): each for each in parsers_of(command_parser()) if each.get_default("call")}.values())


def test_each_example_in_help_is_a_valid_command() -> None:
    examples = {each.epilog for each in parsers_of(command_parser()) if (each.epilog or "").startswith("example: ")}
    assert len(examples) > 10
    for example in examples:
        program, *arguments = shlex.split(str(example).removeprefix("example: "))
        assert program == "helio"
        command_parser().parse_args(with_verb(arguments))


def test_reference_names_each_command_and_no_other() -> None:
    """The table of docs/reference/cli.md."""
    page = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text(encoding="utf-8")
    documented: set[str] = set()
    for row in page.partition("| Command |")[2].partition("Three options")[0].splitlines():
        noun = ""
        for code in re.findall(r"`([^`]+)`", row.partition(") | ")[0]):
            words = [word for word in code.split() if re.fullmatch("[a-z][a-z-]*", word)]
            noun = words[1] if words[0] == "helio" and len(words) > 1 else noun
            verbs = words[2:] if words[0] == "helio" else words
            documented |= {f"{noun} {' '.join(verbs)}".strip()}
    assert documented - {""} == {each.prog.removeprefix("helio ") for each in leaves()}


@pytest.mark.parametrize(
    ("command", "option"), [("run fork", "--at SIGNAL"), ("run retry", "--app FILE.py:app"), ("worker list", "--check")]
)
def test_help_of_a_verb_that_follows_a_command_is_its_own(tmp_path: Path, command: str, option: str) -> None:
    assert option in Shell(tmp_path, None).helio(*command.split(), "--help").stdout


@pytest.mark.more
@pytest.mark.parametrize("command", ["helio --help", "helio db sql", "helio turn list", "helio run press.py:app"])
@pytest.mark.parametrize("closed", mostly_more([">&-", "2>&-", "<&- >&- 2>&-"], {2}))
def test_closed_stream_causes_no_error(tmp_path: Path, database_url: str, command: str, closed: str) -> None:
    done = open_shell(tmp_path, database_url).bash(f"{command} {closed} | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == "0\n"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "2> /dev/full"])
def test_error_on_a_closed_stderr_keeps_its_exit_code(tmp_path: Path, closed: str) -> None:
    done = Shell(tmp_path, None).bash(f"helio turn lst --json {closed} | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == "2\n"
    assert "Traceback" not in done.stderr


FULL = "error: the output could not be written: No space left on device\n"


@pytest.mark.more
@pytest.mark.parametrize("command", ["helio --help", "helio db sql", "helio sim --help", "helio sim replay 5"])
def test_full_disk_is_named_in_the_error(tmp_path: Path, command: str) -> None:
    done = Shell(tmp_path, None).bash(f"{command} > /dev/full; echo $?")
    assert (done.stdout, done.stderr) == ("1\n", FULL)


@pytest.mark.more
@pytest.mark.parametrize("option", ["", "--json"])
def test_run_on_a_full_disk_exits_with_1_and_names_the_disk(tmp_path: Path, database_url: str, option: str) -> None:
    done = open_shell(tmp_path, database_url).bash(f"helio run press.py:app {option} > /dev/full; echo $?")
    assert done.stdout == "1\n"
    assert done.stderr.endswith(FULL)
    assert "Traceback" not in done.stderr


def test_unwritable_log_is_dropped_silently(capsys: pytest.CaptureFixture[str]) -> None:
    with kept_logging(), open("/dev/full", "w") as full:
        show_logs(logging.INFO, full)
        logging.getLogger("heliograph").info("worker started")
        logging.getLogger("heliograph").info("worker stopped")
    assert capsys.readouterr() == ("", "")


def test_global_option_is_accepted_before_and_after_the_command(tmp_path: Path, database_url: str) -> None:
    shell = Shell(tmp_path, None)
    assert os.environ.get("HELIOGRAPH_PROJECT") is None
    for arguments in (("--database-url", database_url, "run", "list"), ("run", "list", "--database-url", database_url)):
        done = shell.helio(*arguments)
        assert (done.returncode, done.stdout) == (0, "")
        assert "no runs yet" in done.stderr


def test_everything_after_sim_belongs_to_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    simulator = ModuleType("heliograph.testing.simulator.cli")

    def simulate(arguments: list[str], kind: type[Parser]) -> int:
        assert kind is Parser
        given.append(arguments)
        return 3

    monkeypatch.setattr(simulator, "main", simulate, raising=False)
    monkeypatch.setitem(sys.modules, "heliograph.testing.simulator.cli", simulator)
    monkeypatch.setenv("HELIOGRAPH_PROJECT", "before")
    rest = ["run", "--seeds", "5", "--json", "--project", "theirs", "one", "--help"]
    assert main(["--project", "ours", "sim", *rest]) == 3
    assert given == [rest]
    assert os.environ["HELIOGRAPH_PROJECT"] == "ours"


def test_worker_collects_garbage_rarely_and_restores_the_settings_of_its_process() -> None:
    gc.unfreeze()  # the items of pytest, see tests/conftest.py
    before = gc.get_threshold(), gc.get_freeze_count()
    with tuned_garbage_collection():
        assert gc.get_threshold()[0] > before[0][0]
        assert gc.get_freeze_count() > before[1]
    assert (gc.get_threshold(), gc.get_freeze_count()) == before
    gc.freeze()
