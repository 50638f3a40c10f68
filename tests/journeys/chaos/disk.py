"""A small disk for the server, and a file that fills it.

A file system of a fixed size, mounted from an image file (ext4, so that fsync reaches the real disk) or, without a loop
device, in memory. Mounting requires root. Without root the server uses a plain folder, `fill` is unavailable, and the
report gives the reason.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

MEGABYTE = 1024 * 1024


class SmallDisk:
    """A small disk that contains `home`. megabytes: 0 for a plain folder. why_not: the reason why it cannot be filled, or None."""

    def __init__(self, folder: Path, megabytes: int):
        self.home = folder / "server"
        self._image = folder / "disk.img"
        self._filler = self.home / "filler"
        self._is_mounted = False
        self.home.mkdir()
        self.kind, self.why_not = self._mount(megabytes)

    def fill(self) -> int:
        """Fill all free space, and return the megabytes written."""
        with self._filler.open("wb") as filler:
            size = 0
            for step in (16 * MEGABYTE, MEGABYTE, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        os.posix_fallocate(filler.fileno(), size, step)
                        size += step
        return size // MEGABYTE

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def close(self, keep_at: Path | None = None) -> None:
        """Unmount the disk. keep_at: copy its contents there first."""
        self.free()
        if keep_at is not None and self._is_mounted:
            shutil.copytree(self.home, keep_at, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".s.*", "lost+found"))
        if self._is_mounted:
            self._is_mounted = False
            if _run("umount", str(self.home)) is not None:
                _run("umount", "-l", str(self.home))  # a process that will not die holds it: let go of it when it has
        self._image.unlink(missing_ok=True)

    def _mount(self, megabytes: int) -> tuple[str, str | None]:
        if megabytes == 0:
            return "a folder", "nobody asked for a small disk"
        if os.geteuid() != 0:
            return "a folder", "mounting a small disk needs root"
        with self._image.open("wb") as image:
            image.truncate(megabytes * MEGABYTE)
        refused = _run("mkfs.ext4", "-q", "-m", "0", str(self._image)) or _run(
            "mount", "-o", "loop", str(self._image), str(self.home)
        )
        if refused is None:
            self._is_mounted = True
            return f"ext4 of {megabytes} MB on a loop device", None
        self._image.unlink()
        refused = _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "chaos", str(self.home))
        if refused is None:
            self._is_mounted = True
            return f"tmpfs of {megabytes} MB, where fsync costs nothing", None
        return "a folder", f"no small disk could be mounted: {refused}"


def _run(*command: str) -> str | None:
    """Run a command; return None if it succeeded, else its message."""
    program = shutil.which(command[0], path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None:
        return f"there is no {command[0]}"
    ended = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    return None if ended.returncode == 0 else (ended.stderr.strip() or f"{command[0]} ended with {ended.returncode}")
