"""Slow flushes of the disk, by a small library that the server loads before libc.

The fault requires Linux and a C compiler. The report lists it as unavailable where either is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class SlowFsync:
    """why_not: the reason why flushes cannot be slowed, or None. environment: variables of the server."""

    def __init__(self, folder: Path, *, is_enabled: bool):
        self._switch = folder / "fsync_us"
        self.environment: Mapping[str, str] = {}
        self.why_not = self._compile(folder / "slow_fsync.so") if is_enabled else "it is not enabled"
        if self.why_not is None:
            self.set(0)
            self.environment = {"LD_PRELOAD": str(folder / "slow_fsync.so"), "CHAOS_FSYNC": str(self._switch)}

    def set(self, microseconds: int) -> None:
        """Delay every further flush by this time."""
        self._switch.write_text(f"{microseconds}\n")
        self._switch.chmod(0o644)  # the server may run as another account

    def _compile(self, library: Path) -> str | None:
        if sys.platform != "linux":
            return "it needs Linux's LD_PRELOAD"
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            return "it needs a C compiler, and there is none"
        ended = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return None if ended.returncode == 0 else f"{compiler}: {ended.stderr.strip()[-200:]}"
