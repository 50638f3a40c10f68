"""A recorded run whose workers are killed with `kill -9`, on PostgreSQL 16, and replayed in another process."""

from __future__ import annotations

import asyncio
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from heliograph.recording.export import export_recording
from heliograph.recording.options import RecordingOptions
from tests.journeys.kit import forked
from tests.reach.embedded_kit import eventually
from tests.recording import killed_app
from tests.recording.test_killed_workers import assert_whole
from tests.runtime.kit import Rig

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.more
@pytest.mark.proves("SIG-04")
@pytest.mark.parametrize("postgres", [16], indirect=True)
async def test_run_of_two_workers_of_which_some_are_killed_is_replayed(rig: Rig, tmp_path: Path) -> None:
    """The other tests of recordings on PostgreSQL use version 18."""
    log = tmp_path / "log"
    environment = {**os.environ, "HELIOGRAPH_DATABASE_URL": rig.url, "HELIOGRAPH_PROJECT": rig.runtime.settings.project,
                   "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "KILLED_LOG": str(log)}  # fmt: skip

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(forked("tests.recording.killed_app"), env=environment, cwd=ROOT)

    def has_lines(count: int) -> bool:
        return log.exists() and len(log.read_text().split()) >= count

    rig.ends_with_open_work = True  # the last workers are killed before they publish their outbox
    app = killed_app.app_of(lambda name: None)
    run_id, _ = await rig.runtime.start(app.workflow, {"text": "hello"}, record=RecordingOptions())
    workers = [begin(), begin()]
    try:
        for kill, effects in enumerate((2, 6)):
            await asyncio.to_thread(eventually, partial(has_lines, effects), 60)
            workers[kill % 2].kill()
            workers[kill % 2].communicate()
            workers[kill % 2] = begin()
        signals = await rig.ended(run_id)
    finally:
        for process in workers:
            process.kill()
            process.communicate()
    found = await export_recording(rig.runtime.reader, run_id)
    assert list(found.signals) == signals
    assert len([part for part in found.parts if "claimed" in part.data]) > 3, "turns were claimed again"
    assert_whole(found, app)
