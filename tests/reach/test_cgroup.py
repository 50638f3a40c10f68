"""A cgroup around the sandbox: made where it may be made, bounded, and removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.tools import cgroup
from heliograph.tools.cgroup import open_cgroup

pytestmark = [
    pytest.mark.proves("S23"),
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux"),
]
MIB = 1024 * 1024


@pytest.fixture
def made() -> cgroup.Cgroup:
    if (found := open_cgroup(64 * MIB, 4)) is None:
        pytest.skip("no cgroup may be made here")
    return found


def test_process_beyond_its_memory_limit_is_killed(made: cgroup.Cgroup) -> None:
    program = "import sys\nsys.stdin.readline()\nx = bytearray(10**6 * int(sys.argv[1]))\n"
    ended = []
    kills = []
    for megabytes in ("10", "300"):
        process = subprocess.Popen([sys.executable, "-c", program, megabytes], stdin=subprocess.PIPE)
        made.add(process.pid)
        process.communicate(b"\n")
        ended.append(process.returncode)
        kills.append(made.has_killed())
    assert made.try_remove()
    assert ended == [0, -9]
    assert kills == [False, True]


def test_tcp_buffers_are_limited_where_they_are_counted_separately(made: cgroup.Cgroup) -> None:
    limits = [folder / "memory.kmem.tcp.limit_in_bytes" for folder in made.folders]
    found = [int(limit.read_text()) for limit in limits if limit.exists()]
    assert made.try_remove()
    if not found:
        pytest.skip("no cgroups of version 1 here")
    assert found == [64 * MIB]


def test_processes_are_counted_and_groups_of_killed_workers_are_removed(
    made: cgroup.Cgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys\nsys.stdin.readline()\nmade = 0\ntry:\n    while made < 9:\n        os.fork() or os._exit(0)\n"
        "        made += 1\nexcept BlockingIOError:\n    [os.wait() for _ in range(made)]\nprint(made)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    made.add(process.pid)
    assert process.communicate(b"\n")[0] == b"3\n"
    monkeypatch.setattr(cgroup, "_ABANDONED_SECONDS", -1)
    other = open_cgroup(64 * MIB, 4)
    assert other is not None
    assert not any(folder.exists() for folder in made.folders)
    assert other.try_remove()


def tree(folder: Path, own: str, *, enabled: str) -> tuple[Path, Path]:
    """The contents of /proc for a process in cgroup `own` of version 2, and the folder of that cgroup."""
    (proc := folder / "proc").mkdir()
    (proc / "mounts").write_text(f"proc /proc proc rw 0 0\ncgroup2 {folder}/cgroup cgroup2 rw 0 0\n")
    (proc / "cgroup").write_text(f"0::{own}\n")
    (ours := folder / "cgroup" / own.lstrip("/")).mkdir(parents=True)
    (ours / "cgroup.subtree_control").write_text("")
    if ours.parent != folder:
        (ours.parent / "cgroup.subtree_control").write_text(enabled)
    return proc, ours


def test_group_is_created_beside_that_of_the_worker_where_controllers_are_enabled(tmp_path: Path) -> None:
    proc, ours = tree(tmp_path, "/app.slice/worker.service", enabled="cpu memory pids\n")
    found = open_cgroup(100 * MIB, 7, str(proc))
    assert found is not None
    (folder,) = found.folders
    assert folder.parent == ours.parent
    assert (folder / "memory.max").read_text() == str(100 * MIB)
    assert (folder / "pids.max").read_text() == "7"


def test_no_group_is_created_without_its_controllers(tmp_path: Path) -> None:
    proc, ours = tree(tmp_path, "/app.slice/worker.service", enabled="cpu pids\n")
    (tmp_path / "mine").mkdir()
    if os.geteuid() == 0:  # a user's own cgroup would get it enabled
        assert open_cgroup(100 * MIB, 7, str(proc)) is None
    assert open_cgroup(100 * MIB, 7, str(tmp_path / "mine")) is None
    assert not list(ours.glob("heliograph-*"))
