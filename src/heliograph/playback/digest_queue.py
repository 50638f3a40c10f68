"""A queue of digests whose memory does not grow with its length: what is in the middle is in a temporary file.

A comparison of two logs keeps the digests of an agent that is ahead on one side. In memory are at most the chunk from which a queue is
read and the one to which it is written, 24 kB for each agent.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from typing import IO, Self

from heliograph.errors import InvalidInput

DIGEST_BYTES = 12
CHUNK_BYTES = 1024 * DIGEST_BYTES


class ChunkFile:
    """Chunks in a temporary file, which the first one creates by `open_file`. The place of a chunk that was read is used again."""

    def __init__(self, open_file: Callable[[], IO[bytes]]) -> None:
        self._open_file = open_file
        self._file: IO[bytes] | None = None
        self._free = array("Q")
        self.chunk_count = 0  # the most that were in the file at once

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, chunk: bytes | bytearray) -> int:
        """Store a chunk of `CHUNK_BYTES`; return its place. Raises InvalidInput (`unwritable_file`)."""
        try:
            if self._file is None:
                self._file = self._open_file()
            place = self._free.pop() if self._free else self.chunk_count
            self._file.seek(place * CHUNK_BYTES)
            self._file.write(chunk)
            self._file.flush()
        except OSError as error:
            raise InvalidInput(f"a temporary file cannot be written: {error.strerror}; free some space, or set TMPDIR to another folder",
                               code="unwritable_file") from error  # fmt: skip
        self.chunk_count = max(self.chunk_count, place + 1)
        return place

    def take(self, place: int) -> bytes:
        """Read a chunk that `write` has stored, once."""
        assert self._file is not None
        self._file.seek(place * CHUNK_BYTES)
        self._free.append(place)
        return self._file.read(CHUNK_BYTES)


class DigestQueue:
    """Digests, first in, first out."""

    def __init__(self, file: ChunkFile):
        self._file = file
        self._head: bytes | bytearray = b""
        self._read = 0  # how much of the head was read
        self._places: deque[int] = deque()  # of the chunks between head and tail
        self._tail = bytearray()

    def __bool__(self) -> bool:
        return self._read < len(self._head) or bool(self._tail)

    @property
    def memory_bytes(self) -> int:
        """The size of the digests in memory."""
        return len(self._head) + len(self._tail)

    def append(self, digest: bytes) -> None:
        if len(self._tail) == CHUNK_BYTES:
            self._places.append(self._file.write(self._tail))
            self._tail.clear()
        self._tail += digest

    def popleft(self) -> bytes:
        if self._read == len(self._head):
            if self._places:
                self._head = self._file.take(self._places.popleft())
            else:
                self._head, self._tail = self._tail, bytearray()
            self._read = 0
        self._read += DIGEST_BYTES
        return bytes(self._head[self._read - DIGEST_BYTES : self._read])
