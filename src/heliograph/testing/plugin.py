"""The pytest plugin. pytest loads it in every project where Heliograph is installed, so it imports nothing until a test needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from heliograph.testing.database import TestServer
    from heliograph.testing.prepared_databases import PreparedDatabases
    from heliograph.testing.recorded_run import RecordedRun
    from heliograph.testing.recording_files import RecordingFiles
    from heliograph.testing.served_application import ApplicationServer

# A test with one of these uses the server. A project may add a fixture of its own that returns heliograph.testing.starting_server.server_of(...)
SERVER_FIXTURES = {"heliograph_postgres"}
_FILES = pytest.StashKey["RecordingFiles"]()
_UNUSED = pytest.StashKey[set[str]]()  # in a process that shows the summary: what every test process has found
_WRITTEN = "heliograph_recording"  # the property of a test that has written its recording


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("heliograph")
    group.addoption(
        "--heliograph-record", action="store_true", help="run tests with heliograph_recording with the real models and tools, and write their recordings"
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "heliograph_recording(path): the file of the test's recording, relative to that of the test"
    )
    if config.getoption("heliograph_record"):
        from heliograph.recording.modes import is_in_ci

        if is_in_ci(os.environ):
            raise pytest.UsageError("--heliograph-record is for your machine: the variable CI is set, and CI records nothing; record there, and "
                                    "commit the files")  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before -k, -m and others deselect tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any("heliograph_recording" in getattr(item, "fixturenames", ()) for item in items):
        is_whole = not any("::" in arg for arg in config.args) and not config.getoption("lf", False)
        _files(config).collect(items, is_whole=is_whole)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    if not session.config.option.collectonly and any(map(_needs_server, session.items)):
        from heliograph.testing.starting_server import start

        start(session.config)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outside of what measures a test
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _needs_server(item):
        from heliograph.testing.starting_server import wait

        wait(item.config)
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if "heliograph.testing.starting_server" in sys.modules:
        from heliograph.testing.starting_server import close

        close(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    files = session.config.stash.get(_FILES, None)
    found = [] if files is None else [str(path) for path in files.unused()]
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:  # of a test process of xdist
        output["heliograph_unused_recordings"] = found
    elif files is not None:
        session.config.stash[_UNUSED] = set(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Read what a test process of xdist has found: a file is unused if no process has used it."""
    found = set(getattr(node, "workeroutput", {}).get("heliograph_unused_recordings", ()))
    stash = node.config.stash
    stash[_UNUSED] = found & stash.get(_UNUSED, found)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [report for category in terminalreporter.stats.values() for report in category]
    written = {
        value for report in reports for name, value in getattr(report, "user_properties", ()) if name == _WRITTEN
    }
    for title, paths in (
        ("written recordings", written),
        ("unused recordings: no test has them", config.stash.get(_UNUSED, set())),
    ):
        if paths:
            terminalreporter.section(title)
            for path in sorted(paths):
                terminalreporter.line(os.path.relpath(path, config.rootpath))


def _needs_server(item: pytest.Item) -> bool:
    return not SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def _files(config: pytest.Config) -> RecordingFiles:
    from heliograph.testing.recording_files import RecordingFiles

    return config.stash.setdefault(_FILES, RecordingFiles())


@pytest.fixture(scope="session")
def heliograph_postgres(request: pytest.FixtureRequest) -> TestServer:
    """A PostgreSQL server, shared by all test processes of one run. It starts after the collection, before the first test that needs it.

    The embedded server, or the one at HELIOGRAPH_TEST_DATABASE_URL, whose login must be able to create databases.
    """
    from heliograph.embedded.cluster import NoDatabase
    from heliograph.testing.starting_server import server_of

    try:
        return server_of(request.config)
    except NoDatabase as error:
        pytest.fail(error.message, pytrace=False)


@pytest.fixture(scope="session")
def heliograph_databases(heliograph_postgres: TestServer) -> Iterator[PreparedDatabases]:
    """Makes the database of each test of this process while the test before it runs."""
    from heliograph.testing.prepared_databases import PreparedDatabases

    databases = PreparedDatabases(heliograph_postgres)
    yield databases
    databases.close()


@pytest.fixture
def heliograph_database_url(heliograph_databases: PreparedDatabases) -> Iterator[str]:
    """The URL of an empty database with the schema installed. It is dropped after the test."""
    url = heliograph_databases.take()
    yield url
    heliograph_databases.release(url)


@pytest.fixture
def heliograph_app(heliograph_database_url: str) -> ApplicationServer:
    """Serves applications on a database of the test's own: `async with heliograph_app(app) as served`. See `heliograph.testing.serve`."""
    from heliograph.testing.served_application import ApplicationServer

    return ApplicationServer(heliograph_database_url)


@pytest.fixture
def heliograph_recording(request: pytest.FixtureRequest) -> Iterator[RecordedRun]:
    """Replays the recording of the test: `await heliograph_recording.run(app, state)`. `pytest --heliograph-record` writes it."""
    from heliograph.errors import InvalidInput
    from heliograph.testing.recorded_run import RecordedRun
    from heliograph.testing.recording_files import id_of

    try:
        path = _files(request.config).file_of(request.node)
    except InvalidInput as error:
        pytest.fail(error.message, pytrace=False)
    records = request.config.getoption("heliograph_record")
    recorded = RecordedRun(
        path, id_of(request.node), request.getfixturevalue("heliograph_database_url") if records else None
    )
    yield recorded
    if recorded.is_written:
        request.node.user_properties.append((_WRITTEN, str(path)))
