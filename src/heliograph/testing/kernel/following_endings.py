"""Endings that follow each other, in memory: 50_following_endings.sql."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.head import insert_signals, run_of
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.recordings import recording_of
from heliograph.testing.kernel.transaction import Transaction


def following(items: Sequence[Any], runs: Sequence[str | None]) -> tuple[list[int], list[int]]:
    """Of each ending, how many of its round come before it in its run, and how many signals these have."""
    steps, ahead = [0] * len(items), [0] * len(items)
    if len(items) == 1 or all(get_text(item, "follows") is None for item in items):
        return steps, ahead
    newest: dict[str | None, int] = {}
    agents: set[str | None] = set()
    written = [j.length(get(item, "signals")) for item in items]
    for n, item in enumerate(items):
        before, agent_id = newest.get(runs[n]), get_text(item, "agent_id")
        if before is not None and agent_id not in agents and _joins(items[before], item):
            steps[n] = steps[before] + 1
            ahead[n] = ahead[before] + written[before]
        newest[runs[n]] = n
        agents.add(agent_id)
    return steps, ahead


def _joins(first: Any, second: Any) -> bool:
    """Whether an ending joins the round of the one before it in its run."""
    before, after, follows = get(first, "reaction"), get(second, "reaction"), get_text(second, "follows")
    return (
        follows is not None and follows == get_text(first, "turn_id") and _is_quiet(before) and _is_quiet(after)
        and isinstance(before, dict) and not before.keys() & {"status", "stops"}
        and isinstance(after, dict) and "memory" in after and not after.keys() & {"keeps_taint", "is_message"}
    )  # fmt: skip


def _is_quiet(reaction: Any) -> bool:
    activations = get(reaction, "activations")
    return not (isinstance(activations, list) and activations)


def log_followed(tx: Transaction, items: Sequence[Any]) -> list[Any]:
    """Write the endings of a round that another one of their run follows. Returns the last ending of each run."""
    last: dict[str | None, Any] = {run_of(get_text(item, "agent_id")): item for item in items}
    base = {run_id: tx.tables.runs[str(run_id)]["signal_seq"] for run_id in last}
    for item in items:
        run_id = run_of(get_text(item, "agent_id"))
        if item is last[run_id]:
            continue
        run, signals = tx.tables.runs[str(run_id)], get(item, "signals")
        if written := j.length(signals):
            insert_signals(tx, run["run_id"], run["signal_seq"] + 1, get_text(item, "turn_id"), signals,
                           recording=recording_of(item))  # fmt: skip
        state = get(get(item, "reaction"), "state")
        tx.update(tx.tables.runs, run, signal_seq=run["signal_seq"] + written, version=run["version"] + 1,
                  open_turns=run["open_turns"] - 1, state=run["state"] if state is ABSENT else state)  # fmt: skip
    return [
        j.joined(item, {"settles_from": base[run_id] + 1})
        for item in items
        if item is last[run_id := run_of(get_text(item, "agent_id"))]
    ]
