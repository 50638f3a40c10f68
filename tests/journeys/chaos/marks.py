"""Marks in files, which record effects independently of any table, and reproducible dice.

The environment sets the share of slow agents (CHAOS_SLOW percent) and the lease (CHAOS_LEASE seconds).
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

from heliograph import Context

LEASE_SECONDS = float(os.environ.get("CHAOS_LEASE", "1"))
SLOW_PERCENT = int(os.environ.get("CHAOS_SLOW", "6"))


def append_line(path: Path | str, line: str) -> None:
    """Append in one write, so that the line is complete even if this process dies right after."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def append_mark(what: str, key: str, note: str) -> None:
    """Record an effect as a line in the file CHAOS_EFFECTS. key: must not occur twice for a `once` effect."""
    append_line(os.environ["CHAOS_EFFECTS"], f"{what} {key} {note} {os.getpid()}")


def read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def chance(ctx: Context, what: str) -> float:
    """Return a number between 0 and 1 that is the same for every attempt of a run's agent."""
    return chance_of(f"{ctx.run_id} {ctx.agent} {what}")


def chance_of(text: str) -> float:
    return zlib.crc32(text.encode()) % 1000 / 1000


def is_slow(ctx: Context, what: str = "slow", times: float = 1.0) -> bool:
    """Return whether this agent is slow in this run. times: factor on the share of slow ones."""
    return chance(ctx, what) * 100 < times * SLOW_PERCENT
