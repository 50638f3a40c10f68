"""Play a run back: the situation at any of its signals."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.playback.player import Player
    from heliograph.playback.snapshot import Snapshot

__all__ = ["Player", "Snapshot"]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.playback.player": ("Player",),
            "heliograph.playback.snapshot": ("Snapshot",),
        },
    )
