"""Where test servers keep their data: in memory where there is room. A database is 400 files, and a disk makes them slowly."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from heliograph.ledger.embedded_process import Lock

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  what lies there is ours alone, or the embedded server refuses it
FREE_BYTES_MIN = 4 * 1024**3  # the log of one server may come to 2 GiB
_PREFIX = "heliograph-tests-"
_USERS = "users"  # the lock file in each folder: shared by the processes of a run while they live
_PATIENCE_SECONDS = 10.0


@contextmanager
def memory_folder(run: Path, memory: Path = SHARED_MEMORY) -> Iterator[Path | None]:
    """A folder in memory for all processes that name the same `run`; the last one that leaves removes it.

    None where there is no memory file system, or less than 4 GiB of it. What a killed run has left is removed by the next.
    """
    if not _has_room(memory):
        yield None
        return
    for other in memory.glob(f"{_PREFIX}*"):
        _remove_unused(other)
    folder = memory / f"{_PREFIX}{sha256(os.fsencode(run)).hexdigest()[:16]}"
    users = _enter(folder)
    try:
        yield folder
    finally:
        users.close()
        _remove_unused(folder)


def _has_room(memory: Path) -> bool:
    try:
        room = os.statvfs(memory)
    except OSError:
        return False
    return os.access(memory, os.W_OK | os.X_OK) and room.f_bavail * room.f_frsize >= FREE_BYTES_MIN


def _enter(folder: Path) -> Lock:
    """Make the folder, or join those that use it. Whoever is removing it is waited for."""
    while True:
        folder.mkdir(mode=0o711, exist_ok=True)
        users = _lock_of(folder)
        if users is not None and users.take_shared() and _is_still_there(folder, users):
            return users
        if users is not None:
            users.close()
        time.sleep(0.02)


def _remove_unused(folder: Path) -> None:
    """Remove it if nobody uses it. Its servers are stopped by their guards meanwhile, and may still write for a moment."""
    users = _lock_of(folder)
    if users is None:
        return
    try:
        until = time.monotonic() + _PATIENCE_SECONDS
        while users.take_exclusive() and folder.exists() and time.monotonic() < until:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.02)
    finally:
        users.close()


def _lock_of(folder: Path) -> Lock | None:
    """None for a folder that is somebody else's, or is being removed."""
    try:
        return Lock(folder / _USERS)
    except OSError:
        return None


def _is_still_there(folder: Path, users: Lock) -> bool:
    try:
        return os.path.samestat(os.fstat(users.fd), (folder / _USERS).stat())
    except OSError:
        return False
