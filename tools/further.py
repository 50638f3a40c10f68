"""Run the quick half of the suite on every further interpreter that this machine has, from Python 3.11 on.

    python -m tools.further [ARGUMENT...]    arguments for pytest
    python -m tools.further --make           only make the environments

A further interpreter has another version than the one that runs this. Each gets its own environment (`.venv-3.13`), built from the
same lock, and runs the parts of the suite that depend on the interpreter: pure code, asyncio, sockets, processes, drivers.
The exit code is 1 as soon as one of them fails. A version for which the lock has no wheels is skipped with a message.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMISED = ((3, 11), (3, 12), (3, 13))  # the lock must install on these
MINORS = range(11, 20)
QUICK = (
    "tests/rules", "tests/test_public_names.py",
    "tests/kernel/test_start.py", "tests/kernel/test_fencing.py", "tests/kernel/test_finish.py",
    "tests/reach/test_nats_confirms.py", "tests/reach/test_post.py", "tests/reach/test_doorbell_postgres.py",
    "tests/reach/test_tools.py", "tests/reach/test_mcp_answers.py",
    "tests/reach/test_harness_ends.py",
    "tests/simulator/test_sim_loop.py", "tests/simulator/test_determinism.py",
    "tests/runtime/test_steps.py", "tests/runtime/test_halt.py", "tests/runtime/test_closing.py",
    "tests/runtime/test_whole_runs.py", "tests/runtime/test_tools.py", "tests/runtime/test_secrets.py",
    "tests/faces/test_interrupts.py", "tests/reach/test_worker_start.py",
)  # fmt: skip
IGNORED = ("--ignore=tests/rules/test_model.py",)  # a search in plain Python: nothing of it depends on the interpreter


def interpreters() -> dict[tuple[int, int], str]:
    """Find the further interpreters by version: on the PATH, and among those that pyenv has installed."""
    found: dict[tuple[int, int], str] = {}
    for minor in MINORS:
        for candidate in _candidates(minor):
            if minor != sys.version_info[1] and _runs_as(candidate, minor):
                found.setdefault((3, minor), candidate)
    return found


def _candidates(minor: int) -> Iterator[str]:
    if (on_path := shutil.which(f"python3.{minor}")) is not None:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python3.{minor}"), reverse=True))


def _runs_as(candidate: str, minor: int) -> bool:
    """Whether a command starts this version of Python with venv; a shim of pyenv may lead nowhere."""
    probe = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    done = subprocess.run([candidate, "-c", probe], capture_output=True, text=True, check=False)
    return done.returncode == 0 and re.fullmatch(rf"3 {minor}\s*", done.stdout) is not None


def main() -> int:
    arguments = sys.argv[1:]
    found, wheelless = interpreters(), list[tuple[int, int]]()
    making = {
        version: subprocess.Popen([each, "tools/bootstrap.py", "further"], cwd=ROOT) for version, each in found.items()
    }
    for version, process in making.items():
        if process.wait() != 0:
            if version in PROMISED:
                return 1
            print("Python {}.{} is skipped: requirements.lock does not install there".format(*version), flush=True)
            wheelless.append(version)
    if arguments == ["--make"]:
        return 0
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda version: _run(version, arguments), found.keys() - wheelless))
    return max(runs, default=0)


def _run(version: tuple[int, int], arguments: list[str]) -> int:
    """Run the quick half and print its output at its end, because the interpreters run at the same time; return 0 or 1."""
    name = "{}.{}".format(*version)
    python = str(ROOT / f".venv-{name}" / "bin" / "python")
    command = [python, "-m", "pytest", "-q", "-n", "1", "-m", "not more and not long"]
    # the time limit holds for `make test`, on one Python
    command += ["-p", "no:tests.time_limit", "-p", "no:cacheprovider", *IGNORED, *arguments, *QUICK]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"The quick half of the suite on Python {name}:\n{done.stdout}", flush=True)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main())
