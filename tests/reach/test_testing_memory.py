"""The folder in memory that test servers lie in is one for all processes of a run, and is gone after it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.testing import memory
from heliograph.testing.memory import memory_folder

RUN = Path("/a/run")
STAY = """
import sys
from pathlib import Path
from heliograph.testing import memory
memory.FREE_BYTES_MIN = 0
with memory.memory_folder(Path("/a/run"), Path(sys.argv[1])) as folder:
    (folder / "mine").touch()
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def any_room_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FREE_BYTES_MIN", 0)


def entered(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STAY, folder], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(str(folder))
    return process


def test_all_processes_of_a_run_have_one_folder_and_the_last_removes_it(tmp_path: Path) -> None:
    with memory_folder(RUN, tmp_path) as folder:
        assert folder is not None
        other = entered(tmp_path)
        assert (folder / "mine").exists()
        other.communicate()
        assert folder.exists()
    assert list(tmp_path.iterdir()) == []


def test_other_runs_have_other_folders(tmp_path: Path) -> None:
    with memory_folder(RUN, tmp_path) as one, memory_folder(Path("/another"), tmp_path) as two:
        assert one != two


def test_what_a_killed_run_left_is_removed_by_the_next_and_what_is_in_use_is_not(tmp_path: Path) -> None:
    killed = entered(tmp_path)
    with memory_folder(Path("/another"), tmp_path):
        assert len(list(tmp_path.iterdir())) == 2
    killed.kill()
    killed.communicate()
    with memory_folder(Path("/another"), tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


def test_without_room_in_memory_there_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_folder(RUN, tmp_path / "nowhere") as folder:
        assert folder is None
    monkeypatch.setattr(memory, "FREE_BYTES_MIN", 1 << 62)
    with memory_folder(RUN, tmp_path) as folder:
        assert folder is None
