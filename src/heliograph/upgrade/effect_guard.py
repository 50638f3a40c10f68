"""Forbid effects of the code of a checked turn: no network, no other process, no change of a file."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

if sys.platform != "win32":
    import fcntl

_FORBIDDEN = frozenset((
    "socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname",
    "socket.gethostbyaddr", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
    "os.startfile", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.kill", "os.killpg", "os.utime", "os.chflags", "os.setxattr", "os.removexattr", "signal.pthread_kill", "sqlite3.connect",
))  # fmt: skip
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class EffectForbidden(PermissionError):
    """The code of a checked turn attempted an effect."""


class EffectGuard:
    """Forbids effects from now on: Python removes no audit hook, and a thread of a checked turn may outlive its check.

    attempt: the first forbidden event of the current check.
    """

    def __init__(self) -> None:
        self.attempt: str | None = None
        self._earlier: set[int | None] = set()
        sys.dont_write_bytecode = True  # modules may be imported late
        with suppress(ImportError):  # on Windows
            import _posixsubprocess

            launcher: Any = _posixsubprocess
            launcher.fork_exec = partial(self._forbid, "fork_exec")  # `multiprocessing` calls it without an event
        sys.addaudithook(self._on_event)

    def begin(self) -> None:
        """A check begins. Its attempts are those of this thread, and of the threads that it starts."""
        self.attempt = None
        self._earlier = {each.ident for each in threading.enumerate()} - {threading.get_ident()}

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN or (event == "open" and _is_write(args)):
            self._forbid(event)

    def _forbid(self, event: str, *_: Any) -> NoReturn:
        if threading.get_ident() not in self._earlier:
            self.attempt = self.attempt or event
        raise EffectForbidden(f"a check of turns allows no effect, and the code attempted {event}")


def cut_connections(kept: Collection[int]) -> None:
    """Cut off what the application has opened while it was loaded: writes to connections and files cause no audit event.

    A connection is broken, a file for reading and writing is one for reading, and what is written to any other file is dropped. Pipes
    within the process stay. kept: file descriptors that stay as they are.
    """
    if sys.platform == "win32":
        return
    ours, theirs = socket.socketpair()
    theirs.close()  # so a write to the other end fails
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for fd in {int(each) for each in os.listdir("/dev/fd")} - {0, 1, 2, *kept, ours.fileno(), nowhere}:
        with suppress(OSError):  # of the listing itself, which is closed by now
            _cut(fd, ours.fileno(), nowhere)
    ours.close()
    os.close(nowhere)


def _cut(fd: int, broken: int, nowhere: int) -> None:
    about = os.fstat(fd)
    if stat.S_ISSOCK(about.st_mode):
        with socket.socket(fileno=os.dup(fd)) as connection:
            if connection.getpeername():  # that of a pair within the process has no name
                os.dup2(broken, fd, inheritable=False)
    elif stat.S_ISREG(about.st_mode) and about.st_nlink:  # nobody else can see one without a name
        access = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
        if access == os.O_RDWR and sys.platform == "linux":
            place, reader = os.lseek(fd, 0, os.SEEK_CUR), os.open(f"/dev/fd/{fd}", os.O_RDONLY)
            os.lseek(reader, place, os.SEEK_SET)
            os.dup2(reader, fd, inheritable=False)
            os.close(reader)
        elif access != os.O_RDONLY:
            os.dup2(nowhere, fd, inheritable=False)


def _is_write(args: tuple[Any, ...]) -> bool:
    path, mode, flags = args
    if path == os.devnull:
        return False
    return any(each in mode for each in "wax+") if isinstance(mode, str) else bool(flags & _WRITES)
