"""Marks in files: what really happened, whatever any table says of it, and dice that fall the same way each time.

How many are slow (CHAOS_SLOW percent), and around what (CHAOS_LEASE seconds), the environment says.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from heliograph import Context

LEASE_SECONDS = float(os.environ.get("CHAOS_LEASE", "1"))
SLOW_PERCENT = int(os.environ.get("CHAOS_SLOW", "6"))


def append_line(path: Path | str, line: str) -> None:
    """In one write, so that it is there whole even if this process dies in the next moment."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def append_mark(what: str, key: str, note: str) -> None:
    """An effect in the outer world: a line in the file CHAOS_EFFECTS. key: what it must not happen twice for."""
    append_line(os.environ["CHAOS_EFFECTS"], f"{what} {key} {note} {os.getpid()}")


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def chance(ctx: Context, what: str) -> float:
    """Between 0 and 1; the same for every attempt of a run's agent."""
    return chance_of(f"{ctx.run_id} {ctx.agent} {what}")


def chance_of(text: str) -> float:
    return zlib.crc32(text.encode()) % 1000 / 1000


def is_slow(ctx: Context, what: str = "slow", times: float = 1.0) -> bool:
    """times: more often than others."""
    return chance(ctx, what) * 100 < times * SLOW_PERCENT
