"""Helpers of the sandbox tests: workers that run as this user or as an ordinary user."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import heliograph
from tests.reach import sandbox_attacks as attacks

ROOT = Path(__file__).parents[2]
NOBODY = 65534
ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="these numbers are those of x86_64")


class Worker:
    """A worker process whose installed packages belong to its user."""

    def __init__(self, folder: Path, python: str, user: int | None, *args: str, under: tuple[str, ...] = ()):
        venv = folder / "venv"
        if not venv.exists():
            subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", str(venv)], check=True)
            self._own(venv, user)
        (self.packages,) = venv.glob("lib/python*/site-packages")
        (self.packages / "victim.py").write_text("WHO = 'victim'\n")
        for each in (self.packages, self.packages / "victim.py"):
            each.chmod(0o777)  # root's sandbox is another user: no permission of a file protects these
        self._own(folder, user)
        account: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        installed = [sysconfig.get_paths()["purelib"], str(Path(heliograph.__file__).parents[1]), str(ROOT)]
        self.process = subprocess.Popen(
            [*under, str(venv / "bin" / "python"), "-m", "tests.reach.sandbox_worker", *args], text=True, cwd="/",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"PYTHONPATH": ":".join(installed), "PATH": os.environ["PATH"], "TMPDIR": str(folder)}, **account,
        )  # fmt: skip

    @staticmethod
    def _own(folder: Path, user: int | None) -> None:
        if user is not None:
            for each in [folder, *folder.rglob("*")]:
                os.chown(each, user, user, follow_symlinks=False)

    def send(
        self, code: str, *, limits: dict[str, int] | None = None, seconds: float | None = None, **options: bool
    ) -> None:
        program = attacks.PRELUDE + code.replace("WORKER", str(self.process.pid))
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"code": program, "limits": limits or {}, "options": options, "seconds": seconds}) + "\n"
        )
        self.process.stdin.flush()

    def run(self, code: str, **options: Any) -> dict[str, Any]:
        self.send(code, **options)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        answer: dict[str, Any] = json.loads(line)
        return answer

    def attack(self, code: str, **options: Any) -> Any:
        """Run a program and return its printed JSON. Afterwards the worker must live, with unchanged packages."""
        before = self.fingerprint()
        answer = self.run(code, **options)
        assert self.process.poll() is None
        assert self.fingerprint() == before
        assert answer.get("exit_code") == 0, answer
        return json.loads(answer["stdout"])

    def fingerprint(self) -> list[tuple[str, int, int, int]]:
        found = [self.packages, *sorted(self.packages.iterdir()), *sorted(Path(self.packages).parent.iterdir())]
        return [(str(each), each.lstat().st_mtime_ns, each.lstat().st_mode, each.lstat().st_uid) for each in found]

    def close(self) -> None:
        """Kill the worker, and remove the cgroups that the next sandbox would remove after a minute."""
        opened = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                opened.append(os.pidfd_open(pid))
        self.process.kill()
        self.process.communicate()
        for descriptor in opened:
            select.select([descriptor], [], [], 30)
            os.close(descriptor)
        for folder, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
            if f"/heliograph-sandbox-{self.process.pid}-" in folder:
                os.rmdir(folder)


def python_for(user: int | None) -> str | None:
    """Return an interpreter that the user may run, of the version for which the packages are installed."""
    base = getattr(sys, "_base_executable", sys.executable)
    for found in (base, f"/usr/bin/python3.{sys.version_info.minor}"):
        account: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
        path = f"{sysconfig.get_paths()['purelib']}:{Path(heliograph.__file__).parents[1]}"
        try:
            ran = subprocess.run([found, "-c", "import asyncpg, pydantic, heliograph"], capture_output=True, cwd="/", check=False,
                                 env={"PYTHONPATH": path}, **account)  # fmt: skip
        except OSError:
            continue
        if ran.returncode == 0:
            return found
    return None


def descendants(of: int) -> list[int]:
    stats = {
        int(pid): read(f"/proc/{pid}/stat").rpartition(")")[2].split() for pid in os.listdir("/proc") if pid.isdigit()
    }
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat}
    found = [of]
    for each in found:
        found += [pid for pid, parent in parents.items() if parent == each]
    return found[1:]


def read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except OSError:
        return ""


@pytest.fixture(name="start", scope="module", params=["as we are", pytest.param("nobody", marks=pytest.mark.more)])
def start_fixture(request: pytest.FixtureRequest) -> Iterator[Callable[..., Worker]]:
    user = NOBODY if request.param == "nobody" else None
    if user is not None and os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    if (python := python_for(user)) is None:
        pytest.skip("no Python here that an ordinary user may run")
    folder, started = Path(tempfile.mkdtemp(prefix="sandbox-test-", dir="/tmp")), []

    def begin(*args: str, **options: Any) -> Worker:
        started.append(Worker(folder, python, user, *args, **options))
        return started[-1]

    yield begin
    for each in started:
        each.close()
    shutil.rmtree(folder)


@pytest.fixture(name="worker", scope="module")
def worker_fixture(start: Callable[..., Worker]) -> Worker:
    made = start()
    if "refused" in (answer := made.run("pass")):
        pytest.skip(answer["message"])
    return made
