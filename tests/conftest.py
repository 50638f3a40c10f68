"""Rules for all tests: `proves` marks name real requirements, properties have no deadline, and nothing outlives its test."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, is_hypothesis_test, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from heliograph.ledger.pool import Database
from heliograph.testing.database import TestServer, open_test_server
from heliograph.testing.plugin import SERVER_FIXTURES
from heliograph.testing.starting_server import server_of
from heliograph.world.cancellation import cancel
from tests.faces.cli_support import Running

pytest_plugins = ["tests.time_limit", "tests.waiting_tasks"]  # the plugin of Heliograph is an entry point

SERVER_FIXTURES.add("postgres")

ROOT = Path(__file__).resolve().parent.parent
TEMPORARY = Path(tempfile.gettempdir()).resolve()
REQUIREMENTS = ROOT / "docs" / "internals" / "requirements.tsv"

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and let it pass over the items afterwards: ten thousand of them live to the end.

    Hypothesis draws constants of all modules that are loaded, and its plugin has read them by now. Modules that tests load later
    are not read: they differ between the processes of a run, and so would the examples.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        providers._get_local_constants = lambda: providers._local_constants
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Reject a `proves` mark with an unknown requirement: with a typing error, the requirement would stay unproven.

    A long test without a limit of its own has half an hour: the usual limit catches what hangs, and minutes of work are no hang.
    """
    known = {line.partition("\t")[0] for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()[1:]}
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))
        for mark in item.iter_markers("proves"):
            if unknown := [identifier for identifier in mark.args if identifier not in known]:
                raise pytest.UsageError(f"{item.nodeid} proves {unknown}, not in docs/internals/requirements.tsv")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    needed = {
        "no_task_left": inspect.iscoroutinefunction(metafunc.function),
        "hypothesis_tables": is_hypothesis_test(metafunc.function),
    }
    metafunc.fixturenames[:0] = [name for name, is_so in needed.items() if is_so and name not in metafunc.fixturenames]


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestServer]:
    """The server of the test processes: PostgreSQL 18, unless an indirect parameter gives another version."""
    version = getattr(request, "param", 18)
    if version == 18:
        yield server_of(request.config)
        return
    shared = tmp_path_factory.getbasetemp()
    with open_test_server(shared.parent if hasattr(request.config, "workerinput") else shared, version) as server:
        yield server


@pytest.fixture(scope="session")
def heliograph_postgres(postgres: TestServer) -> TestServer:
    """The fixtures of the plugin use the server of the parameter."""
    return postgres


@pytest.fixture
def database_url(heliograph_database_url: str) -> str:
    """The URL of an empty database with the schema installed."""
    return heliograph_database_url


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """An open pool on `database_url`."""
    opened = await Database.open(database_url, size=4)
    yield opened
    await opened.close()


@pytest.fixture(autouse=True)
def no_module_left() -> Iterator[None]:
    """Forget the modules that a test loaded from a temporary folder, because others use the same names, as `app` and `desk`."""
    path, count = sys.path[:], len(sys.modules)
    yield
    sys.path[:] = path
    for name in list(sys.modules)[count:]:  # the last ones are those that came last
        file = Path(getattr(sys.modules[name], "__file__", None) or ROOT).resolve()
        if file.is_relative_to(TEMPORARY) and not file.is_relative_to(ROOT):
            del sys.modules[name]


@pytest_asyncio.fixture
async def no_task_left() -> AsyncIterator[None]:
    """Cancel the remaining tasks of a test after it, because all tests share an event loop. Fails if one does not end."""
    yield
    unfinished = asyncio.all_tasks() - {asyncio.current_task()}
    await cancel(unfinished, again_seconds=2.0)
    assert not {task for task in unfinished if not task.done()}


@pytest.fixture(scope="session")
def hypothesis_tables() -> None:
    """Load the character tables and constants of Hypothesis, which takes seconds, before the first test that needs them."""

    @settings(max_examples=1)
    @given(st.text())
    def draw(_: str) -> None: ...

    draw()


@pytest.fixture(scope="session")
def clients_of_providers() -> None:
    """Import the clients of both providers: Python compiles them at their first import, which takes seconds and belongs to no test."""
    importlib.import_module("pydantic_ai.models.anthropic")
    importlib.import_module("pydantic_ai.models.openai")


@pytest.fixture
def started() -> Iterator[list[Running]]:
    """A list of command-line processes, which are killed after the test."""
    running: list[Running] = []
    yield running
    for each in running:
        each.process.kill()
        each.end()
