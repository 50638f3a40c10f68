"""`heliograph.recording.replay`: replay a recording with an application."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from heliograph.recording.file import read_recording
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import ReplayResult, replay_recording

if TYPE_CHECKING:
    from heliograph.app import Heliograph


def replay(
    recording: Recording | str | os.PathLike[str], app: Heliograph, *, accept: Collection[str] = (),
    renamed_tools: Mapping[str, str] | None = None, edited: bool = False,
) -> ReplayResult:  # fmt: skip
    """Replay a recording with the present code of its application; compare everything that it does with the recording.

    No model, tool, network or database is used. accept: changes of the code that are no divergence: `prompts` and `agents`.
    renamed_tools: the new names of tools, by their recorded names. edited: accept a file that was changed by hand.
    Raises InvalidInput for a file that is no recording, and for one of another application.
    """
    found = recording if isinstance(recording, Recording) else read_recording(recording, edited=edited)
    return replay_recording(found, app.workflow, ReplayPolicy(accept, renamed_tools or {}))
