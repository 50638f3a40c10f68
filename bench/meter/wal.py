"""The write-ahead log between two positions, read with the server's own pg_waldump.

Full pages are those that the server writes after a checkpoint, to repair a torn page: they depend on the time since the
checkpoint more than on the work, so they are apart.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+) \[.*?\]\s+(\d+) \[", re.MULTILINE)
_RECORD = re.compile(
    rb"^rmgr: (\S+)\s+len \(rec/tot\):\s*(\d+)/\s*(\d+),.*?desc: (\S+)(?:.*?blkref #0: rel \d+/(\d+)/(\d+))?", re.M
)


@dataclass(frozen=True, slots=True)
class Wal:
    """The bytes of the log without its full pages, and those of the full pages."""

    bytes: int
    full_page_bytes: int


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the log: as PostgreSQL prints it, and the file in which the next record lies."""

    lsn: str
    file: str


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a server on this machine. bin: the folder of `pg_waldump`. data: the server's folder."""

    bin: Path
    data: Path

    async def size(self, start: Position, end: Position) -> Wal:
        """Add up the records from one position to another."""
        output = (await self._dump(start, end, "--stats=rmgr")).decode()
        total = _TOTAL.search(output)
        if total is None:
            raise RuntimeError(f"pg_waldump printed no total: {output[-800:]}")
        return Wal(int(total[1]), int(total[2]))

    async def by_relation(
        self, start: Position, end: Position, relations: Mapping[tuple[int, int], str]
    ) -> dict[str, int]:
        """Add up the same bytes without full pages by relation. relations: names by database and file. Records of no relation have the
        name of their kind, those of other relations are of "other relations"."""
        found: Counter[str] = Counter()
        for kind, record, _, _, database, file in _RECORD.findall(await self._dump(start, end)):
            name = relations.get((int(database), int(file)), "other relations") if file else kind.decode()
            found[name] += int(record)
        return dict(found.most_common())

    async def _dump(self, start: Position, end: Position, *options: str) -> bytes:
        process = await asyncio.create_subprocess_exec(
            str(self.bin / "pg_waldump"), "--path", str(self.data / "pg_wal"), "--start", start.lsn, "--end", end.lsn, *options,
            start.file, end.file,  # without them, pg_waldump reads the size of a file from any, even one that is prepared and empty
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate()
        if process.returncode:
            raise RuntimeError(f"pg_waldump failed: {errors.decode()[-800:]}")
        return output
