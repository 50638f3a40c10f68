"""The list of tasks in the report of a test that did not end (tests/waiting_tasks.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEST = """
import asyncio
import pytest
import pytest_asyncio

async def forgotten():
    await asyncio.Event().wait()

@pytest_asyncio.fixture
async def others():
    yield
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()

@pytest_asyncio.fixture
async def wait(others):
    IN_TEARDOWN
    await asyncio.create_task(forgotten(), name="the forgotten one")
    IN_SETUP

@pytest.mark.timeout(0.2)
async def test_waits(wait):
    pass
"""


@pytest.mark.more  # a pytest of its own
@pytest.mark.parametrize("phase", ["IN_SETUP", "IN_TEARDOWN"])
def test_report_of_a_test_that_does_not_end_names_each_task_and_its_place(tmp_path: Path, phase: str) -> None:
    (tmp_path / "test_hung.py").write_text(
        TEST.replace(phase, "yield").replace("IN_SETUP", "").replace("IN_TEARDOWN", "")
    )
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "tests.waiting_tasks",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, capture_output=True)
    [line] = [each for each in done.stdout.splitlines() if each.startswith("the forgotten one: ")]
    place, wait = line.partition(": ")[2].split(" > ")
    assert place.startswith("forgotten (")
    assert place.endswith("test_hung.py:7)")
    assert wait.startswith("wait (")
