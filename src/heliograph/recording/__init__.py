"""Record and replay a run."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.recording.api import replay
    from heliograph.recording.file import read_recording, write_recording
    from heliograph.recording.modes import ReplayDiverged
    from heliograph.recording.options import RecordingOptions
    from heliograph.recording.recording import Recording
    from heliograph.recording.replay_recording import ReplayResult

__all__ = [
    "Recording",
    "RecordingOptions",
    "ReplayDiverged",
    "ReplayResult",
    "read_recording",
    "replay",
    "write_recording",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.recording.api": ("replay",),
            "heliograph.recording.file": ("read_recording", "write_recording"),
            "heliograph.recording.modes": ("ReplayDiverged",),
            "heliograph.recording.options": ("RecordingOptions",),
            "heliograph.recording.recording": ("Recording",),
            "heliograph.recording.replay_recording": ("ReplayResult",),
        },
    )
