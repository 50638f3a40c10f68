from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from heliograph.cli.main import main
from tests.faces.cli_support import HELIO, Shell, open_shell

HEAVY = ["asyncpg", "pydantic", "pydantic_ai", "rich", "asyncio", "nats"]

PROBE = """
import sys
from heliograph.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sorted(set(sys.modules) & {%s}), file=sys.stderr)
sys.exit(code)
"""


def loaded_by(shell: Shell, *arguments: str) -> set[str]:
    """Which of the heavy libraries a command has imported."""
    probe = PROBE % ", ".join(map(repr, HEAVY))
    done = subprocess.run([sys.executable, "-c", probe, *arguments], cwd=shell.folder, env=shell.environment, text=True,
                          check=False, capture_output=True, timeout=30)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].removeprefix("loaded:").split())


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"]], ids=" ".join)
def test_help_loads_nothing_heavy(tmp_path: Path, arguments: list[str]) -> None:
    assert loaded_by(Shell(tmp_path, None), *arguments) == set()


def test_the_schema_is_printed_without_a_driver(tmp_path: Path) -> None:
    assert loaded_by(Shell(tmp_path, None), "db", "sql") <= {"asyncio"}


def test_help_answers_at_once(tmp_path: Path) -> None:
    best = min(_seconds(Shell(tmp_path, None)) for _ in range(5))
    assert best < 0.15, f"helio --help took {best:.3f} s"


@pytest.mark.parametrize(
    "arguments",
    [["turn", "list"], ["runs"], ["signal", "tail"], ["db", "doctor"], ["run", "press.py:app"]],
    ids=" ".join,
)
def test_no_command_loads_a_model_library_or_a_terminal_for_nothing(
    tmp_path: Path, database_url: str, arguments: list[str]
) -> None:
    assert not loaded_by(open_shell(tmp_path, database_url), *arguments) & {"pydantic_ai", "rich", "nats"}


def test_the_long_name_is_the_same_program(tmp_path: Path) -> None:
    def help_of(program: Path) -> str:
        return subprocess.run([program, "--help"], env=Shell(tmp_path, None).environment, text=True, check=True,
                              capture_output=True).stdout  # fmt: skip

    assert help_of(HELIO) == help_of(HELIO.with_name("heliograph"))


def _seconds(shell: Shell) -> float:
    before = time.perf_counter()
    subprocess.run([HELIO, "--help"], env=shell.environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def test_help_names_every_command_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    shell = Shell(tmp_path, None)
    text = shell.helio("--help").stdout
    assert all(f"\n    {name} " in text for name in ("run", "runs", "worker", "turn", "signal", "db", "sim"))
    for command in ("helio --help", "helio db sql"):
        done = shell.bash(f"{command} | true; echo ${{PIPESTATUS[0]}}")
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_an_option_for_everywhere_stands_before_or_after_the_command(tmp_path: Path, database_url: str) -> None:
    shell = Shell(tmp_path, None)
    assert os.environ.get("HELIOGRAPH_PROJECT") is None
    for arguments in (("--database-url", database_url, "runs"), ("runs", "--database-url", database_url)):
        done = shell.helio(*arguments)
        assert (done.returncode, done.stdout) == (0, "")
        assert "no runs yet" in done.stderr


def test_everything_after_sim_belongs_to_the_simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []
    simulator = ModuleType("heliograph.testing.sim_cli")

    def simulate(arguments: list[str]) -> int:
        given.append(arguments)
        return 3

    monkeypatch.setattr(simulator, "main", simulate, raising=False)
    monkeypatch.setitem(sys.modules, "heliograph.testing.sim_cli", simulator)
    monkeypatch.setenv("HELIOGRAPH_PROJECT", "before")
    rest = ["run", "--seeds", "5", "--json", "--project", "theirs", "one", "--help"]
    assert main(["--project", "ours", "sim", *rest]) == 3
    assert given == [rest]
    assert os.environ["HELIOGRAPH_PROJECT"] == "ours"
