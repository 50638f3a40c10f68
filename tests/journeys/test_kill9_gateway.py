"""`kill -9` of a worker that sends a call to another deployment: the task runs once, and its result arrives."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from heliograph.testing.database import TestServer
from tests.journeys.kit import forked
from tests.reach.embedded_kit import query
from tests.runtime.gateway_kit import SECRET

ROOT = Path(__file__).parent.parent.parent
LIMIT_SECONDS = 60.0


@pytest.mark.proves("RTE-07", "CTL-93")
def test_killed_senders_cause_one_execution_at_the_gateway(
    postgres: TestServer, database_url: str, tmp_path: Path
) -> None:
    other_url = asyncio.run(postgres.create())
    effects = tmp_path / "effects"

    def begin(url: str, what: str, **more: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": url, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
                       "HELIOGRAPH_GATEWAY_SECRETS": SECRET, "KILL9_EFFECTS": str(effects), **more}  # fmt: skip
        return subprocess.Popen(forked("tests.journeys.kill9_gateway_app", what), env=environment, cwd=ROOT,
                                stdout=subprocess.PIPE, text=True)  # fmt: skip

    far = begin(other_url, "serve")
    processes, output = [far], ""
    try:
        assert far.stdout is not None
        url = far.stdout.readline().strip()
        for failpoint in ("before_gateway_post", "before_gateway_report", "-"):  # the commit is made; the task has run
            processes.append(begin(database_url, failpoint, KILL9_GATEWAY=url, HELIOGRAPH_EGRESS_ALLOW=url))
            output, _ = processes[-1].communicate(timeout=LIMIT_SECONDS)
            assert processes[-1].returncode == (0 if failpoint == "-" else -signal.SIGKILL)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert json.loads(output) == {"answer": "shipped lamp"}
    assert effects.read_text() == "lamp\n"
    assert query(other_url, "select count(*) from heliograph.agent_turns") == 1
    asyncio.run(postgres.drop(other_url))
