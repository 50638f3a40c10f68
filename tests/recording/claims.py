"""A claimed turn, made by hand."""

from __future__ import annotations

from typing import Any

from heliograph.records import Cause, Claimed, InboxRow, RunView

RUN, TURN = "run_a", "turn_a"
MEMORY: dict[str, Any] = {"turns": 1, "joins": {}, "agents": ["ann"]}


def claim(cause: Cause, **options: Any) -> Claimed:
    run = RunView(RUN, "running", 1, {"n": 1}, MEMORY, 1, 0, 1)
    return Claimed(
        f"{RUN}/ann", "ann", RUN, "app", TURN, 1, 1, 0, 5, 60.0, None, f"box_{TURN}", f"sig_{RUN}_2", cause,
        [InboxRow("turn", cause.id)], run, **options,
    )  # fmt: skip
