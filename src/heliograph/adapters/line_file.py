"""A file of lines that several processes append to, each of which may be killed in the middle of a line."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from contextlib import suppress

import msgspec

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe without a reader does not block
_START = b'{"id":"'  # of each line: a last line without an end that starts otherwise belongs to somebody else
_CHUNK = 65_536
_LINE_MAX = 33_554_432  # bytes; a longer line without an end is a part, because no signal is that large


class LineFile:
    """Appends whole lines. A part of a line that a killed process has left is removed before the next line.

    The writers of a file exclude each other by a lock of the operating system, which the end of a process releases. All methods block.
    """

    def __init__(self, path: str):
        self._path = path
        self._lock = threading.Lock()  # between the threads of this process
        self._descriptor: int | None = None
        self._is_closed = False

    def append(self, lines: bytes) -> None:
        """Append lines, and wait until they are on the disk; after an error, none of them are in the file. Raises OSError."""
        with self._lock:
            if self._is_closed:
                raise OSError(errno.EBADF, "it is closed")
            descriptor = self._locked()
            try:
                start = _end_of_lines(descriptor)
                try:
                    _write(descriptor, lines)
                    os.fsync(descriptor)
                except OSError:
                    with suppress(OSError):
                        os.ftruncate(descriptor, start)
                    raise
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, unless a write is in progress: that one ends first, and the end of the process closes it."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _locked(self) -> int:
        """Lock the file that has the path now, and return its descriptor."""
        while True:
            descriptor = self._opened()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self._has_path(descriptor):
                return descriptor
            self._close()

    def _opened(self) -> int:
        if self._descriptor is not None and not self._has_path(self._descriptor):
            self._close()
        if self._descriptor is None:
            descriptor = os.open(self._path, _FLAGS, 0o666)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "it is no regular file")
            self._descriptor = descriptor
        return self._descriptor

    def _has_path(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _end_of_lines(descriptor: int) -> int:
    """Make the file end with a whole line; return its size."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    start = _start_of_last_line(descriptor, size)
    head = os.pread(descriptor, len(_START), start)
    if _START.startswith(head) and not _is_whole(descriptor, start, size):
        os.ftruncate(descriptor, start)
        return start
    _write(descriptor, b"\n")
    return size + 1


def _is_whole(descriptor: int, start: int, size: int) -> bool:
    """Whether the last line lacks only its end: another program may have written it, and nothing that is whole is removed."""
    if size - start > _LINE_MAX:
        return False
    try:
        msgspec.json.decode(os.pread(descriptor, size - start, start))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _start_of_last_line(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - _CHUNK)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
