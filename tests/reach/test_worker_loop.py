"""A chosen part of the suite on the event loop of `helio worker`: connections, processes, and servers that freeze or disappear."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from heliograph.testing.database import TestServer

ROOT = Path(__file__).parent.parent.parent
PLUGIN = "tests.worker_loop"
CHOSEN = (
    "tests/reach/test_worker_loop.py", "tests/reach/test_post.py", "tests/reach/test_doorbell_postgres.py",
    "tests/reach/test_mcp_answers.py", "tests/reach/test_mcp_peers.py", "tests/reach/test_status_listener.py",
    "tests/reach/test_status_attacks.py", "tests/reach/test_span_export.py", "tests/runtime/test_closing.py",
    "tests/runtime/test_outages.py", "tests/runtime/test_callbacks.py", "tests/runtime/test_slow_gateways.py",
    "tests/runtime/test_stop.py", "tests/runtime/test_transactional_tools.py",
)  # fmt: skip


async def test_loop_of_a_test_is_the_one_of_the_plugin(request: pytest.FixtureRequest) -> None:
    expected = "uvloop" if request.config.pluginmanager.hasplugin(PLUGIN) else "asyncio"
    assert type(asyncio.get_running_loop()).__module__.partition(".")[0] == expected


@pytest.mark.more
def test_chosen_tests_pass_on_the_event_loop_of_a_worker(postgres: TestServer) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", PLUGIN,
               "-m", "not more and not long", *CHOSEN]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["HELIOGRAPH_TEST_DATABASE_URL"] = postgres.admin_url
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " passed" in ran.stdout
