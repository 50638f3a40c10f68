"""Describe the machine and the versions of a measurement; without them its figures mean nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg

from bench.beside import read_versions

ROOT = Path(__file__).resolve().parent.parent


async def read_header(url: str, seconds: float, reps: int) -> dict[str, Any]:
    """Return the machine's class, the commit, the versions and the settings on which the figures depend."""
    connection = await asyncpg.connect(url)
    try:
        server = {name: await connection.fetchval(f"show {name}")
                  for name in ("server_version", "fsync", "synchronous_commit", "shared_buffers")}  # fmt: skip
    finally:
        await connection.close()
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if _git("status", "--porcelain") else ""),
        "machine": f"{os.cpu_count()} cores, {_memory_gib()} GiB, {_processor()}, {platform.system()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("heliograph", "asyncpg", "msgspec")},
        "peers": read_versions(),
        "postgresql": server,
        "seconds": seconds,
        "repetitions": reps,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
