"""The records that `heliograph.Client` returns."""

from __future__ import annotations

from heliograph.lazy_names import lazy_names

TYPE_CHECKING = False  # type checkers assume True

if TYPE_CHECKING:
    from heliograph.client.budgets import Budget
    from heliograph.client.followed_run import FollowedRun
    from heliograph.client.human_tasks import HumanTask
    from heliograph.client.replies import Command, StopResult
    from heliograph.client.session import PendingReply, TextPiece
    from heliograph.records import Card
    from heliograph.run_result import EndedRun

__all__ = [
    "Budget",
    "Card",
    "Command",
    "EndedRun",
    "FollowedRun",
    "HumanTask",
    "PendingReply",
    "StopResult",
    "TextPiece",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "heliograph.client.budgets": ("Budget",),
            "heliograph.client.followed_run": ("FollowedRun",),
            "heliograph.client.human_tasks": ("HumanTask",),
            "heliograph.client.replies": ("Command", "StopResult"),
            "heliograph.client.session": ("PendingReply", "TextPiece"),
            "heliograph.records": ("Card",),
            "heliograph.run_result": ("EndedRun",),
        },
    )
