"""Every example in README.md and docs/ is run, in the order in which a reader meets it.

How to write one is in CONTRIBUTING.md, "Examples in the documentation". All blocks of a file share one
temporary folder, one namespace and one database; nothing of it is left behind.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from heliograph.embedded.server import open_embedded
from heliograph.testing.database import TestServer
from tests.faces.cli_support import HELIO, warm

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?P<indent> *)(?P<ticks>```+)(?P<language>\w*) *(?P<note>.*)")
# they begin without a database, as a new user does
FIRST_STEPS = [page for page in PAGES if page.name in ("README.md", "cli.md") or page.parent.name == "learn"]
SHELLS = ("console", "sh")
COMMAND_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `note` is what follows the language, `line` the number of its first line of text."""

    language: str
    note: str
    line: int
    text: str

    @property
    def is_run(self) -> bool:
        return "no-run" not in self.note


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order, without the indentation of the fence."""
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        opened = FENCE.fullmatch(line)
        if opened is None:
            continue
        body = []
        for _, inner in lines:
            if inner.strip() == opened["ticks"]:
                break
            body.append(inner.removeprefix(opened["indent"]))
        yield Block(opened["language"], opened["note"], number + 1, "".join(f"{each}\n" for each in body))


def run_python(block: Block, page: Path, namespace: dict[str, object], runner: asyncio.Runner) -> None:
    """Run a block as the script that it reads as; `await` may stand at its top level."""
    padded = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
    code = compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    outcome = eval(code, namespace)  # noqa: S307 - the text is our own documentation
    if inspect.iscoroutine(outcome):
        runner.run(outcome)


@dataclass(frozen=True, slots=True)
class Command:
    """One `$ ` line with its continuations, and the lines of output shown below it."""

    text: str
    expected: tuple[str, ...]


def commands(text: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = next(i for i, line in enumerate(lines, 1) if not line.endswith("\\"))
        yield Command("\n".join(lines[:length]), tuple(line for line in lines[length:] if line.strip()))


def matches(expected: tuple[str, ...], output: str) -> bool:
    """Whether the lines shown are the output: `...` is any text, alone on its line any lines; spaces count once."""
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "..." else ".*".join(map(re.escape, squeeze(line).split("..."))) + r"\n"
        for line in expected
    )
    lines = [squeeze(line) + "\n" for line in output.splitlines() if line.strip()]
    return re.fullmatch(pattern, "".join(lines)) is not None


def squeeze(line: str) -> str:
    return " ".join(line.split())


def run_console(block: Block, page: Path) -> None:
    """Run each command with bash; it must exit with 0 or the code of `exit=`, and print the lines of the page."""
    wanted = int(block.note.removeprefix("exit=") or 0)
    for command in commands(block.text):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
        where = f"{page.relative_to(ROOT)}:{block.line}: $ {command.text}"
        assert done.returncode == wanted, f"{where}\nended with {done.returncode}, not {wanted}:\n{done.stdout}"
        if command.expected:
            assert matches(command.expected, done.stdout), f"{where}\nprints something else:\n{done.stdout}"


@pytest.fixture(scope="session")
def prepared_home() -> Iterator[Path]:
    """A home with a stopped database: to make one takes three seconds, and to copy it a third of a second."""
    made = Path(tempfile.mkdtemp(prefix="helio-docs-"))
    with open_embedded(made / "home") as server:
        migrate = [sys.executable, "-m", "heliograph.cli.main", "db", "install"]
        subprocess.run(
            migrate, env={**os.environ, "HELIOGRAPH_HOME": str(made / "home")}, check=True, capture_output=True
        )
    assert server.wait_stopped(60)
    yield made / "home"
    shutil.rmtree(made, ignore_errors=True)


def make_command(path: Path, script: str) -> None:
    """Make a command that forks a warm process: a start takes longer than most commands."""
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty working folder that is also the home of the data; its path is short, for the database's socket."""
    made = Path(tempfile.mkdtemp(prefix="helio-docs-"))
    monkeypatch.chdir(made)
    monkeypatch.syspath_prepend(made)
    monkeypatch.setenv("HELIOGRAPH_HOME", str(made / ".heliograph"))
    make_command(tmp_path / "helio", f'exec {shlex.join(warm().client(str(HELIO)))} "$@"')
    pytest_in_fork = f'[ "$1 $2" = "-m pytest" ] && shift && exec {shlex.join(warm().client("-m"))} "$@"'
    make_command(tmp_path / "python", f'{pytest_in_fork}\nexec {shlex.quote(sys.executable)} "$@"')
    # the fork has imported modules that pytest would rewrite; no page uses Hypothesis, whose import takes as long as pytest
    monkeypatch.setenv("PYTEST_ADDOPTS", "-W ignore::pytest.PytestAssertRewriteWarning -p no:hypothesispytest")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), str(Path(sys.prefix) / "bin"), os.environ["PATH"]]))
    for name in ("HELIOGRAPH_DATABASE_URL", "CI"):  # a reader has neither; with CI, mode `auto` refuses to record
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.more
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_example_runs(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "heliograph_app" in page.read_text(
        encoding="utf-8"
    ):  # the page's test runs use the server of this run, and make none
        server: TestServer = request.getfixturevalue("postgres")
        monkeypatch.setenv("HELIOGRAPH_TEST_DATABASE_URL", server.admin_url)
    if page not in FIRST_STEPS and any(block.is_run for block in blocks(page.read_text(encoding="utf-8"))):
        # made by the first page that needs it; a copy keeps the owner of the files, and the permissions
        subprocess.run(["cp", "-a", request.getfixturevalue("prepared_home"), folder / ".heliograph"], check=True)
    module = ModuleType("__main__")  # type hints can resolve the names that a block defines
    monkeypatch.setitem(sys.modules, "__main__", module)
    with asyncio.Runner() as runner:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.language == "python":
                if name := re.match(r"[\w/]+\.py", block.note):
                    (folder / name[0]).parent.mkdir(parents=True, exist_ok=True)
                    (folder / name[0]).write_text(block.text, encoding="utf-8")
                if block.is_run:
                    run_python(block, page, module.__dict__, runner)
            elif block.language in SHELLS and block.is_run:
                run_console(block, page)


def test_unexecuted_example_has_a_reason() -> None:
    skipped = [
        (page, block) for page in PAGES for block in blocks(page.read_text(encoding="utf-8")) if not block.is_run
    ]
    assert [(page.name, block.line) for page, block in skipped if not re.search(r": \S+", block.note)] == []


def test_page_is_parsed_as_it_is_rendered() -> None:
    page = """
        Text.

        ```python hello.py
        x = await thing()
        ```

          ```console exit=2
          $ helio nonsense \\
              --json
          ...
          error: ... nonsense
          $ true
          ```

        ```sh no-run: it asks for a password
        $ sudo reboot
        ```
        """
    first, second, third = blocks(textwrap.dedent(page))
    assert (first.language, first.note, first.line, first.text) == ("python", "hello.py", 5, "x = await thing()\n")
    with_output, quiet = commands(second.text)
    assert with_output == Command("helio nonsense \\\n    --json", ("...", "error: ... nonsense"))
    assert quiet == Command("true", ())
    assert not third.is_run


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        (("a  b",), "a b\n", True),
        (("a b",), "a c\n", False),
        (("took ... ms",), "took 12.5 ms\n", True),
        (("first", "...", "last"), "first\nsecond\nthird\nlast\n", True),
        (("first", "..."), "first\n", True),
        (("first",), "first\nsecond\n", False),
        (("a.c",), "abc\n", False),
    ],
)
def test_three_dots_match_anything(expected: tuple[str, ...], output: str, same: bool) -> None:
    assert matches(expected, output) is same


@pytest.mark.parametrize("text", ["$ exit 3\n", "$ echo one\ntwo\n"])
def test_failing_command_or_different_output_is_found(text: str, folder: Path) -> None:
    with pytest.raises(AssertionError, match=r"README\.md:7"):
        run_console(Block("console", "", 7, text), ROOT / "README.md")


def test_python_blocks_may_wait_and_fail_at_their_own_line() -> None:
    namespace: dict[str, object] = {}
    page = ROOT / "README.md"
    with asyncio.Runner() as runner:
        run_python(
            Block("python", "", 3, "import asyncio\nx = await asyncio.sleep(0, 'done')\n"), page, namespace, runner
        )
        with pytest.raises(ZeroDivisionError) as failed:
            run_python(Block("python", "", 9, "\n1 / 0\n"), page, namespace, runner)
    assert namespace["x"] == "done"
    assert failed.traceback[-1].lineno == 9  # counted from 0
