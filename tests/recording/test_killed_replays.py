"""A replay whose process is killed in its middle writes nothing, and the next one reproduces the run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph import Context, Heliograph
from heliograph.recording.file import lines_of, read_recording, write_recording
from heliograph.recording.replay_recording import replay_recording
from tests.recording.simulated import record_simulated

ROOT = Path(__file__).parent.parent.parent
SCRIPT = """
import os, signal, sys
from pathlib import Path
from heliograph.recording.replay_recording import replay_recording
from heliograph.recording.file import read_recording
from tests.recording.test_killed_replays import app_of

replay_recording(read_recording(sys.argv[1]), app_of(lambda: os.kill(os.getpid(), signal.SIGKILL)).workflow)
"""


def app_of(between: Callable[[], object] = lambda: None) -> Heliograph:
    """Two agents. between: runs between two steps of the second one."""
    app = Heliograph("interrupted")

    @app.agent(activate_on=["workflow:start"], updates="one")
    async def first(ctx: Context) -> int:
        return await ctx.step("a", lambda: 1)

    @app.agent(activate_on=["state:one:changed"], updates="two")
    async def second(ctx: Context) -> int:
        found = await ctx.step("b", lambda: 2)
        between()
        return found + await ctx.step("c", lambda: 3)

    return app


@pytest.mark.more
@pytest.mark.proves("SIG-04")
def test_replay_after_a_killed_one_reproduces_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_recording(record_simulated(app_of(), 1, state={}), path)
    before = path.read_bytes()
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    killed = subprocess.run([sys.executable, "-c", SCRIPT, str(path)], cwd=tmp_path, env=environment, check=False)
    assert killed.returncode == -9
    assert [each.name for each in tmp_path.iterdir()] == ["run.jsonl"]
    assert path.read_bytes() == before
    recording = read_recording(path)
    result = replay_recording(recording, app_of().workflow)
    assert result.is_same, list(result.lines())
    assert list(lines_of(result.recording)) == list(lines_of(recording))
