"""Make `.venv` from requirements.lock, once per content of the lock; `make` runs this before anything else.

    python3.11 tools/bootstrap.py

Needs nothing but Python 3.11 with `venv`. The stamp is written last: an environment without one was cut
short and is made again, one whose stamp differs belongs to another lock, interpreter or folder. Two
`make` at once take turns by a lock that the system frees even when its holder is killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "heliograph.stamp"
INSTALL = ["install", "-qq", "--disable-pip-version-check", "--no-input"]
# Wheels only: a source package would fetch build tools that no hash covers.
LOCKED = ["--only-binary", ":all:", "--require-hashes", "--requirement", "requirements.lock"]
OURS = ["--no-index", "--no-deps", "--no-build-isolation", "--editable", "."]


def wanted() -> str:
    """What the environment depends on, as one line: change any of it, and it is made again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packaging = [project["project"], project["build-system"], project["tool"]["hatch"]]
    parts = [(ROOT / "requirements.lock").read_text(encoding="utf-8"), json.dumps(packaging, sort_keys=True)]
    parts += [sys.version, sys.base_prefix, str(ROOT)]  # an environment cannot be moved
    return hashlib.sha256("\0".join(parts).encode()).hexdigest() + "\n"


def make(stamp: str, turn: int) -> None:
    """A new `.venv` in place of whatever is there; raises CalledProcessError when a step fails.

    pip gets the locked descriptor too: should we be killed and pip live on, the next `make` waits for it.
    """
    print("Making .venv from requirements.lock (about a minute, once) ...", flush=True)
    STAMP.unlink(missing_ok=True)
    venv.create(VENV, clear=True, with_pip=True, symlinks=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip"]
    for what in (LOCKED, OURS):
        subprocess.run([*pip, *INSTALL, *what], cwd=ROOT, check=True, pass_fds=[turn])
    STAMP.write_text(stamp, encoding="utf-8")


def main() -> int:
    stamp = wanted()
    with Path(__file__).open("rb") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if STAMP.exists() and STAMP.read_text(encoding="utf-8") == stamp:
            return 0
        try:
            make(stamp, turn.fileno())
        except subprocess.CalledProcessError as failed:
            print(f".venv is not complete: {' '.join(failed.cmd)} ended with {failed.returncode}.", file=sys.stderr)
            print("Next: look at pip's message above; packages come from the index pip is set to.", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
