"""Commit the reactions of runs in memory: 60_react.sql and 30_runs.sql."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from heliograph.requests import React
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.checkpoints import checkpoint
from heliograph.testing.kernel.drafts import reject_drafts
from heliograph.testing.kernel.head import (
    bells,
    insert_signals,
    run_of,
)
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.keys import wrong_keys
from heliograph.testing.kernel.limits import limits, reject_activations, reject_signals, rejection
from heliograph.testing.kernel.outbox import stop_open_turns
from heliograph.testing.kernel.recordings import recording_of
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import enqueue_turns


def run_view(tx: Transaction, run: Row) -> Row:
    """Return the view of a run from which workers compute reactions.

    Bug: ends_with_open_turns (the view shows one open turn at most).
    """
    keys = ("run_id", "status", "version", "state", "memory", "open_turns", "pending_reactions", "activations")
    view = {key: run[key] for key in keys}
    if "ends_with_open_turns" in tx.bugs:
        view["open_turns"] = min(view["open_turns"], 1)
    return view


def commit_reactions(tx: Transaction, items: Iterable[Any], closed: int) -> list[str]:
    """Commit reactions of different runs. Bugs: open_turns_miscounted, message_clears_taint."""
    reacting, activations = [], list[Row]()
    listed = j.records(list(items))
    for item in listed:
        run_id = get_text(item, "run_id")
        run = tx.tables.runs.get(run_of(get_text(item, "agent_id")) if run_id is None else run_id)
        if run is not None and run["status"] != "ended":
            reacting.append((run, item))
    for run, item in reacting:
        signals, reaction, base = get(item, "signals"), get(item, "reaction"), run["signal_seq"]
        written, woken = j.length(signals), get(reaction, "activations")
        if written:
            insert_signals(
                tx, run["run_id"], base + 1, get_text(item, "turn_id"), signals, recording=recording_of(item)
            )
        count = j.length(woken)
        state, memory, status = get(reaction, "state"), get(reaction, "memory"), get_text(reaction, "status")
        if j.has(reaction, "is_message"):
            kept = run["memory"]
            if "message_clears_taint" in tx.bugs:
                kept = {key: value for key, value in kept.items() if key != "untrusted_keys"}
            memory = j.joined(kept, {"activations_before": run["activations"]})
        elif j.has(reaction, "keeps_taint") and isinstance(get(run["memory"], "untrusted_keys"), list):
            memory = j.joined(memory, {"untrusted_keys": get(run["memory"], "untrusted_keys")})
        elif j.has(memory, "join_base") and get(memory, "join_base") is None:
            memory = j.joined(memory, {"join_base": base})
        tx.update(
            tx.tables.runs, run, signal_seq=base + written, version=run["version"] + 1,
            open_turns=run["open_turns"] - closed + count, activations=run["activations"] + count,
            state=run["state"] if state is ABSENT else state, memory=run["memory"] if memory is ABSENT else memory,
            status=run["status"] if status is None else status, outcome=get_text(reaction, "outcome"),
            ended_at=tx.now if status == "ended" else None, updated_at=tx.now,
        )  # fmt: skip
        settles_from = get(item, "settles_from")
        checkpoint(tx, run["run_id"], base if settles_from in (ABSENT, None) else settles_from - 1)
        if count:
            activations += [j.joined(a, {"run_id": run["run_id"], "base": base}) for a in j.elements(woken)]
    if len(reacting) < len(listed):
        changed = {run["run_id"] for run, _ in reacting}
        ids = [get_text(item, "run_id") or run_of(get_text(item, "agent_id")) for item in listed]
        ended = min((str(run_id) for run_id in ids if run_id not in changed), default="")
        raise SqlError("23514", f"run {ended} has ended, and a run ends only once: start a run with another id")
    activations.sort(key=lambda a: str(get(a, "run_id")))
    awake = enqueue_turns(tx, activations) if activations else []
    for run, item in sorted(reacting, key=lambda each: str(each[0]["run_id"])):
        stop_open_turns(tx, run["run_id"], get(get(item, "reaction"), "stops"))
    return awake


def activated(items: Any) -> None:
    """Read the activations of endings before anything else, like `_check_reactions`. Raises 22023 unless they are arrays."""
    for item in j.elements(items):
        j.elements(get(get(item, "reaction"), "activations"))


def react(tx: Transaction, items: Any) -> list[Row]:
    """Commit reactions that workers have computed, unless the run has changed since. Bug: react_unguarded."""
    limited, answer = limits(tx), []
    for item in j.elements(items):
        run_id = get_text(item, "run_id")
        run = tx.tables.runs.get(run_id)
        verdict, awake = {"outcome": "conflict"}, list[str]()
        version = j.get_whole(item, "version")
        wrong = wrong_keys(React, item) or _wrong_activations(get(item, "reaction"))
        if wrong is not None:
            verdict = rejection("22023", wrong)
        elif (
            run is not None
            and run_id is not None
            and (
                (run["version"] == version and isinstance(get(item, "reaction"), dict)) or "react_unguarded" in tx.bugs
            )
        ):
            woken = get(get(item, "reaction"), "activations")
            verdict = (
                reject_signals(get(item, "signals"), limited)
                or reject_activations(tx, run_id, [] if woken is ABSENT else woken, limited)
                or reject_drafts(run, get(item, "signals"))
                or {"outcome": "ok"}
            )
            if verdict["outcome"] == "ok":
                verdict, awake = _pay(tx, run, item)
        if verdict["outcome"] == "rejected" and run is not None:
            tx.set(run, rejections=run["rejections"] + 1)
        answer.append({"run_id": run_id, **bells(tx, awake), **verdict})
    return answer


def _wrong_activations(reaction: Any) -> str | None:
    """Return the problem of activations that are no array."""
    woken = get(reaction, "activations")
    return None if woken is ABSENT or isinstance(woken, list) else "p_items[].reaction.activations is an array"


def _pay(tx: Transaction, run: Row, item: Any) -> tuple[Row, list[str]]:
    """Commit one reaction in a savepoint, so a rejected one leaves nothing behind."""
    savepoint = tx.savepoint()
    try:
        settled = [row for row in tx.tables.signals.of(run["run_id"]) if row["is_pending"]]
        for row in settled:
            tx.set(row, is_pending=False)
        tx.update(tx.tables.runs, run, pending_reactions=0, rejections=0)
        item = j.joined(item, {"settles_from": settled[0]["seq"] if settled else None})
        return {"outcome": "ok"}, commit_reactions(tx, [item], 0)
    except SqlError as error:
        tx.rollback(savepoint)
        return rejection(error.state, error.message), []
