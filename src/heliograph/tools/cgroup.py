"""Put a sandbox into a cgroup, if the worker may create one: it limits all memory of the sandbox, its kernel memory included.

A worker may create a cgroup if it is root, or if its own cgroup was delegated to its user. The new cgroup is below the worker's own
or beside it. With cgroups version 2, the controllers must be enabled there; this module enables them in a user's own cgroup.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "heliograph-sandbox-"
_ABANDONED_SECONDS = 60  # an older empty cgroup was left by a worker that was killed
_NEEDED = {"memory", "pids"}
_TCP_BYTES = 64 * 1024 * 1024  # TCP buffers, which version 1 counts separately


@dataclass(frozen=True, slots=True)
class Cgroup:
    """One cgroup. folders: one for version 2, one for each controller for version 1."""

    folders: tuple[Path, ...]

    def add(self, pid: int) -> None:
        """Move a process into the cgroup. If the kernel does not allow it, the process runs without one."""
        with contextlib.suppress(OSError):
            for folder in self.folders:
                (folder / "cgroup.procs").write_text(str(pid))

    def has_killed(self) -> bool:
        """Whether the kernel has killed one of its processes at the memory limit; False if the kernel does not count that."""
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            for folder in self.folders:
                with contextlib.suppress(OSError):
                    counts = dict(line.split() for line in (folder / name).read_text("ascii").splitlines())
                    if int(counts.get("oom_kill", 0)) > 0:
                        return True
        return False

    def try_remove(self) -> bool:
        """Remove the cgroup if all of its processes have ended; return whether it is removed. A second call does nothing."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not any(folder.exists() for folder in self.folders)


def open_cgroup(memory_bytes: int, processes: int, root: str = "/proc/self") -> Cgroup | None:
    """Create a cgroup with these limits; None if this process lacks the permission. root: replaced by tests."""
    name = f"{_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
    for parents in _places(Path(root)):
        cgroup = Cgroup(tuple(parent / name for parent in parents.values()))
        try:
            for controllers, parent in parents.items():
                _remove_abandoned(parent)
                (parent / name).mkdir()
                _limit(parent / name, controllers, memory_bytes, processes)
        except OSError:
            cgroup.try_remove()
            continue
        return cgroup
    return None


def _limit(folder: Path, controllers: str, memory_bytes: int, processes: int) -> None:
    if controllers == "":  # version 2 has one hierarchy for all
        (folder / "memory.max").write_text(str(memory_bytes))
        (folder / "pids.max").write_text(str(processes))
        optional = {"memory.swap.max": 0}
    elif controllers == "memory":
        (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))
        optional = {"memory.memsw.limit_in_bytes": memory_bytes, "memory.kmem.tcp.limit_in_bytes": _TCP_BYTES}
    else:
        (folder / "pids.max").write_text(str(processes))
        return
    for name, value in optional.items():  # only where the kernel accounts for swap, or for TCP
        if (folder / name).exists():
            (folder / name).write_text(str(value))


def _remove_abandoned(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_ctime < time.time() - _ABANDONED_SECONDS:
                folder.rmdir()  # fails while a process is in it


def _places(root: Path) -> Iterator[dict[str, Path]]:
    """Yield the folders in which cgroups may be created, by controller; version 2 has one folder, with an empty key."""
    try:
        mounts = [line.split() for line in (root / "mounts").read_text("utf-8").splitlines()]
        own = {
            names: path
            for _, names, path in (line.split(":", 2) for line in (root / "cgroup").read_text("utf-8").splitlines())
        }
    except (OSError, ValueError):
        return
    paths = {name: path for names, path in own.items() for name in names.split(",")}
    for _, where, kind, *_ in mounts:
        if kind == "cgroup2" and "" in paths:
            below = Path(where) / paths[""].lstrip("/")
            for parent in (below, below.parent) if below != Path(where) else (below,):
                if _has_controllers(parent):
                    yield {"": parent}
    single = {
        name: Path(where) / paths[name].lstrip("/")
        for _, where, kind, options, *_ in mounts
        if kind == "cgroup"
        for name in _NEEDED & set(options.split(",")) & set(paths)
    }
    if set(single) == _NEEDED and all(os.access(folder, os.W_OK) for folder in single.values()):
        yield single


def _has_controllers(parent: Path) -> bool:
    try:
        if parent.stat().st_uid == os.geteuid() != 0:
            (parent / "cgroup.subtree_control").write_text("+memory +pids")
        return set((parent / "cgroup.subtree_control").read_text("ascii").split()) >= _NEEDED
    except OSError:
        return False
