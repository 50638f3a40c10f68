"""Rules for every test: a `proves` mark names an existing requirement, properties run without a clock, and no process
outlives the test that started it."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, is_hypothesis_test, settings
from hypothesis import strategies as st

from tests.faces.cli_support import Running

pytest_plugins = ["heliograph.testing.plugin", "tests.time_limit"]

REQUIREMENTS = Path(__file__).resolve().parent.parent / "docs" / "internals" / "requirements.tsv"

# The machine is shared, so a slow example is no failure. A gate must give the same result twice, so examples are
# derived from the test and not drawn. `--hypothesis-profile=explore` draws new ones, and more of them.
QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile("gate", deadline=None, derandomize=True, database=None, suppress_health_check=QUIET)
settings.register_profile("explore", deadline=None, max_examples=2_000, suppress_health_check=QUIET)
settings.load_profile("gate")


# A test process, and each process that it starts, reads compiled modules: without them, half of the time is compiling.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Started in the background by a shell, this process ignores SIGINT, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject a mark with an unknown requirement: a misspelt id would remain open forever."""
    known = {line.partition("\t")[0] for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()[1:]}
    for item in items:
        for mark in item.iter_markers("proves"):
            if unknown := [identifier for identifier in mark.args if identifier not in known]:
                raise pytest.UsageError(f"{item.nodeid} proves {unknown}, not in docs/internals/requirements.tsv")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    needed = {
        "no_task_left": inspect.iscoroutinefunction(metafunc.function),
        "hypothesis_tables": is_hypothesis_test(metafunc.function),
    }
    metafunc.fixturenames[:0] = [name for name, is_so in needed.items() if is_so and name not in metafunc.fixturenames]


@pytest_asyncio.fixture
async def no_task_left() -> AsyncIterator[None]:
    """All tests share an event loop. The tasks that a test leaves behind end with it."""
    yield
    unfinished = asyncio.all_tasks() - {asyncio.current_task()}
    for task in unfinished:
        task.cancel()
    await asyncio.gather(*unfinished, return_exceptions=True)


@pytest.fixture(scope="session")
def hypothesis_tables() -> None:
    """Let Hypothesis read its tables of characters and our constants: some seconds, which are not the first test's."""

    @settings(max_examples=1)
    @given(st.text())
    def draw(_: str) -> None: ...

    draw()


@pytest.fixture
def started() -> Iterator[list[Running]]:
    """Processes of the command line; those put in here are killed after the test."""
    running: list[Running] = []
    yield running
    for each in running:
        each.process.kill()
        each.end()
