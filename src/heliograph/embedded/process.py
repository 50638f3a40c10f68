"""Run programs for the embedded server, and detect by locks whether they are alive.

Process ids are reused after a restart of the machine or the container, but a lock ends exactly with the last process that has it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heliograph.errors import SetupError

if sys.platform != "win32":
    import fcntl
    import pwd

LAUNCHER = Path(__file__).with_name("launch.py")
# The server outlives its caller and serves every process with the password, so it must not inherit the keys in the caller's
# environment. The PG... variables of libpq would change its behaviour.
KEPT_ENVIRONMENT = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
FIXED_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}
UNPRIVILEGED_ACCOUNTS = ("postgres", "nobody")
SECONDS_TO_CHECK = 10


class Lock:
    """An open lock file; the kernel releases the lock however the process ends."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _open_locks.add(self)

    def take_exclusive(self) -> bool:
        """Take the lock if it is free; never waits."""
        return self._take(fcntl.LOCK_EX)

    def take_shared(self) -> bool:
        """Take the lock unless another process has it exclusively; never waits."""
        return self._take(fcntl.LOCK_SH)

    def close(self) -> None:
        """Release the lock. A child process that inherited the descriptor keeps it."""
        _open_locks.discard(self)
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _take(self, operation: int) -> bool:
        try:
            fcntl.flock(self.fd, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_open_locks: set[Lock] = set()


def _close_locks_in_child() -> None:
    # A forked child shares the lock: unless it closes its copy, the lock outlives the parent.
    for lock in tuple(_open_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_locks_in_child)


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of PostgreSQL: an argument of `launch.py`, and the owner of its files if it is another account."""

    word: str
    owner: tuple[int, int] | None = None


def choose_identity(data: Path, to_reach: Sequence[Path]) -> Identity:
    """Choose the identity of PostgreSQL: the current user, or another one for root.

    Existing data belong to their owner, who then runs it. An identity must be able to reach every path of `to_reach`
    without wider permissions. Raises SetupError if root finds no such identity.
    """
    if os.geteuid() != 0:
        return Identity("self")
    refusals = []
    for identity in _identities_for_root(data):
        checked = launch(identity, "check", to_reach, timeout_seconds=SECONDS_TO_CHECK)
        if checked.returncode == 0:
            return identity
        refusals.append(f"{identity.word}: {checked.stdout.strip()}")
    raise SetupError(
        "PostgreSQL refuses to run as root, and there is no other way to run it here "
        f"({'; '.join(refusals) or 'no unprivileged account'}); "
        "run as an ordinary user, or set HELIOGRAPH_DATABASE_URL"
    )


def _identities_for_root(data: Path) -> Iterator[Identity]:
    owner = data.stat() if data.exists() else None
    if owner is not None and owner.st_uid != 0:
        yield _account(owner.st_uid, owner.st_gid)
        return
    # PostgreSQL looks up its user by id, so even a mapped id needs an account on the machine
    known = next((entry.pw_uid for entry in pwd.getpwall() if entry.pw_uid != 0), None)
    if sys.platform == "linux" and known is not None:
        yield Identity(f"mapped:{known}")
    if owner is None:
        for name in UNPRIVILEGED_ACCOUNTS:
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                yield _account(entry.pw_uid, entry.pw_gid)


def _account(uid: int, gid: int) -> Identity:
    return Identity(f"account:{uid}:{gid}", owner=(uid, gid))


def launch(
    identity: Identity,
    mode: Literal["wait", "detach", "check"],
    command: Sequence[str | Path],
    *,
    timeout_seconds: float,
    keep: Sequence[int] = (),
    stdin: str = "",
    log: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` under `identity`; see `launch.py` for the modes.

    keep: descriptors that the program inherits, for example a lock that lasts as long as the program.
    log: the descriptor for the output, required for a detached program; without it, the result has the output.
    """
    arguments = [str(LAUNCHER), identity.word, mode, *(str(part) for part in command)]
    return run_script(arguments, timeout_seconds=timeout_seconds, keep=keep, stdin=stdin, log=log)


def run_script(
    arguments: Sequence[str],
    *,
    timeout_seconds: float,
    keep: Sequence[int] = (),
    stdin: str = "",
    log: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a script of this package in isolated Python; kill it and raise subprocess.TimeoutExpired after the timeout."""
    return subprocess.run(  # noqa: S603 - our own scripts, and no shell
        [sys.executable, "-I", "-S", *arguments],
        input=stdin or None,
        stdin=None if stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE if log is None else log,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ} | FIXED_ENVIRONMENT,
        cwd="/",
        pass_fds=tuple(keep),
        timeout=timeout_seconds,
        check=False,
    )
