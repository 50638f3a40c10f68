"""The warm `helio` whose forks stand for processes in the tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.faces.cli_support import Shell
from tests.faces.warm_helio import WarmHelio
from tests.reach.embedded_kit import eventually


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def has_ended(process: int) -> bool:
    """Whether a process is gone, or only waits to be reaped."""
    stat = Path(f"/proc/{process}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.more  # it imports Heliograph
def test_forks_end_with_a_warm_process_that_is_killed() -> None:
    warm = WarmHelio(Shell(Path(), None).environment)
    server = warm._process
    with subprocess.Popen(warm.client("-m", "asyncio"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as client:  # fmt: skip
        eventually(lambda: bool(children_of(server.pid)))
        [fork] = children_of(server.pid)
        server.kill()
        eventually(lambda: has_ended(fork))
        client.communicate()
    warm.close()
