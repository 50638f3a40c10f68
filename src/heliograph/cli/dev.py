"""`helio dev FILE.py:app`: serve an application, and start its worker again whenever one of its files is saved."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path

from heliograph.cli.load_application import file_of
from heliograph.cli.output import note
from heliograph.error_text import counted, safe_repr

POLL_SECONDS = 0.3
STOP_SECONDS = 15.0
_SUFFIXES = (".py", ".yaml", ".yml", ".json", ".toml")
_FILES_MAX = 5000

Times = Mapping[Path, int]  # of the files below a folder: when each was changed, in nanoseconds


def dev(options: Namespace) -> int:
    """Serve until interrupted. Raises the errors of the reference before it starts a worker."""
    signal.signal(signal.SIGTERM, _exit_after_the_worker)
    folder = file_of(options.app).resolve().parent
    command = [sys.executable, "-m", "heliograph", "worker", "start", options.app, "--grace", "1"]
    note(f"helio dev: watches the files of {safe_repr(str(folder), 300)}; Ctrl-C ends it")
    before = times_of(folder)
    worker = subprocess.Popen(command)  # noqa: S603  our own program
    try:
        while True:
            time.sleep(POLL_SECONDS)
            after = times_of(folder)
            if saved := changed(before, after):
                names = ", ".join(sorted(path.name for path in saved)[:3])
                note(
                    f"helio dev: {counted(len(saved), 'file')} saved ({safe_repr(names, 200)}); the worker starts again"
                )
                _stop(worker)
                worker = subprocess.Popen(command)  # noqa: S603  our own program
            before = after
    finally:
        _stop(worker)


def _exit_after_the_worker(number: int, _frame: object) -> None:
    """Exit, so that the cleanup of `dev` stops the worker: by default, SIGTERM ends this process alone."""
    raise SystemExit(128 + number)


def times_of(folder: Path) -> Times:
    """When the sources below a folder were changed; without hidden folders and those of environments."""
    found: dict[Path, int] = {}
    folders = [folder]
    while folders and len(found) < _FILES_MAX:
        for path in folders.pop().iterdir():
            if path.name.startswith((".", "__pycache__", "node_modules")) or path.is_symlink():
                continue
            if path.is_dir():
                folders.append(path)
            elif path.suffix in _SUFFIXES:
                found[path] = path.stat().st_mtime_ns
    return found


def changed(before: Times, after: Times) -> set[Path]:
    """The files that are new, gone, or saved since."""
    return {path for path in {*before, *after} if before.get(path) != after.get(path)}


def _stop(
    worker: subprocess.Popen[bytes], kill: Callable[[subprocess.Popen[bytes]], None] = subprocess.Popen.kill
) -> None:
    """End the worker; its turns continue in the next one."""
    if worker.poll() is None:
        worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        kill(worker)
        worker.wait()
