"""A disk whose flushes are slow for a while: a small library, compiled here, that the server loads before libc.

Needs Linux and a C compiler; where either is missing the fault is left out and the report says so.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class SlowFsync:
    """why_not: None, or why flushes cannot be slowed. environment: for the server."""

    def __init__(self, folder: Path, *, is_asked_for: bool):
        self._switch = folder / "fsync_us"
        self.environment: Mapping[str, str] = {}
        self.why_not = self._compile(folder / "slow_fsync.so") if is_asked_for else "nobody asked for it"
        if self.why_not is None:
            self.set(0)
            self.environment = {"LD_PRELOAD": str(folder / "slow_fsync.so"), "CHAOS_FSYNC": str(self._switch)}

    def set(self, microseconds: int) -> None:
        """How much longer every flush takes from now on."""
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
