"""Run an application with a recording: record it, or replay it in place of running it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput, NotFound
from heliograph.key_patterns import without_secrets
from heliograph.reactive.workflow import Workflow
from heliograph.recording.file import read_recording
from heliograph.recording.policy import ReplayPolicy
from heliograph.recording.recording import Recording
from heliograph.recording.replay_recording import ReplayResult, replay_recording
from heliograph.run_result import RunResult, result_of_run

Mode = Literal["live", "record", "replay", "auto"]
MODES: tuple[Mode, ...] = ("live", "record", "replay", "auto")


class ReplayDiverged(HeliographError):
    """The code does something else than its recording. `result` has the divergences."""

    default_code = "replay_diverged"

    def __init__(self, result: ReplayResult):
        super().__init__("\n".join(result.lines()))
        self.result = result


def chosen_mode(mode: str, path: os.PathLike[str] | str | None, environment: Mapping[str, str]) -> Mode:
    """The mode of a run: `auto` replays a recording that exists, and otherwise records, except in CI.

    Raises InvalidInput (`unknown_mode`, `required_field`), NotFound (`unknown_recording`).
    """
    if mode not in MODES:
        raise InvalidInput(f"a run has no mode {safe_repr(mode)}; the modes are {', '.join(MODES)}", code="unknown_mode",
                           path="/mode")  # fmt: skip
    if mode in ("replay", "auto") and path is None:
        raise InvalidInput(f"mode {mode} needs a file: give its path as record", code="required_field", path="/record")
    exists = path is not None and Path(path).exists()
    if mode == "replay" and not exists:
        raise NotFound(
            f"there is no recording {path}; record the run first, with mode record", code="unknown_recording"
        )
    if mode == "auto" and exists:
        return "replay"
    if mode == "auto":
        if is_in_ci(environment):
            raise NotFound(f"there is no recording {path}, and CI records none; record the run on your machine and commit the file",
                           code="unknown_recording")  # fmt: skip
        return "record"
    return mode


def is_in_ci(environment: Mapping[str, str]) -> bool:
    """Whether the variable CI is set, as all services for CI do. There, nothing is recorded."""
    return environment.get("CI", "").lower() not in ("", "0", "false")


def replay_run(
    recording: Recording | str | os.PathLike[str], workflow: Workflow, state: Any = None, policy: ReplayPolicy | None = None
) -> RunResult:  # fmt: skip
    """Replay a recording in place of a run: return its result. state: the state that the run is given; it must be that of the recording.

    Raises ReplayDiverged, and the errors of `read_recording`.
    """
    found = recording if isinstance(recording, Recording) else read_recording(recording)
    start = found.start
    document = workflow.shape.dump({} if state is None else state)
    if start is not None and start.data["state"] not in (document, without_secrets(document)):
        raise InvalidInput(f"the recording of run {found.header.run_id} began with another state: {safe_repr(start.data['state'])}; "
                           "give the run that state, or record it again", code="other_state", path="/state")  # fmt: skip
    result = replay_recording(found, workflow, policy)
    if not result.is_same:
        raise ReplayDiverged(result)
    return result_of_run(found.header.run_id, workflow, result.signals)
