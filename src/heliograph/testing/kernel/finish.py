"""Finish turns by their owners in memory, like 51_finish.sql, under the same names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.drafts import reject_drafts
from heliograph.testing.kernel.endings import terminal
from heliograph.testing.kernel.following_endings import following, log_followed
from heliograph.testing.kernel.head import (
    add_bells,
    dispatch_next,
    is_owner,
    rounds,
    run_of,
)
from heliograph.testing.kernel.jsonb import SqlError, get, get_raw, get_text
from heliograph.testing.kernel.limits import (
    limits,
    reject_activations,
    reject_content,
    reject_signals,
    rejection,
)
from heliograph.testing.kernel.reactions import activated, commit_reactions, run_view
from heliograph.testing.kernel.tables import OUTCOMES, Row, end_of
from heliograph.testing.kernel.transaction import Transaction


def finish(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), [_without_null(item, "signals") for item in j.elements(items)]
    activated(items)
    answers: list[Row] = [{"turn_id": get_text(item, "turn_id")} for item in listed]
    runs = [run_of(get_text(item, "agent_id")) for item in listed]
    steps, ahead = following(listed, runs)
    turns_ended: set[str | None] = set()
    woken: list[str] = []
    for places in rounds(runs, steps):
        for n in places:
            answers[n] |= _judge(tx, listed[n], limited, turns_ended, steps[n], ahead[n])
        rejected = [] if "follows_rejected" in tx.bugs else _after_rejected(places, runs, steps, answers)
        ended = [listed[n] for n in places if answers[n]["outcome"] == "ok" and n not in rejected]
        if ended:
            turns_ended |= {get_text(item, "turn_id") for item in ended}
            terminal(tx, ended)
            woken += dispatch_next(tx, [str(get_text(item, "agent_id")) for item in ended])
            woken += commit_reactions(tx, log_followed(tx, ended), 1)
        for n in rejected:
            answers[n] = {"turn_id": answers[n]["turn_id"], **_conflict(tx, tx.tables.runs[str(runs[n])])}
    return add_bells(tx, answers, woken)


def _without_null(item: Any, key: str) -> Any:
    return {name: value for name, value in item.items() if name != key or value is not None}


def _after_rejected(
    places: list[int], runs: Sequence[str | None], steps: Sequence[int], answers: Sequence[Row]
) -> list[int]:
    """The places of endings that follow one which was not accepted, and that would have been judged by their reaction."""
    rejected: list[int] = []
    failed: set[str | None] = set()
    for n in places:
        outcome = answers[n]["outcome"]
        if steps[n] and runs[n] in failed and outcome not in ("stale", "duplicate"):
            rejected.append(n)
        elif outcome != "ok":
            failed.add(runs[n])
    return rejected


def _conflict(tx: Transaction, run: Row) -> Row:
    return {"outcome": "conflict", "run": run_view(tx, run)}


def _judge(tx: Transaction, item: Any, limited: Row, turns_ended: Collection[str | None], step: int, ahead: int) -> Row:
    """Decide whether an ending is accepted: its owner, the version of the run, sizes and fields. step, ahead: see `following`.

    Bugs: finish_no_gate, no_version_guard, follows_unchecked, result_fields_unchecked.
    """
    head, turn_id = tx.tables.heads.get(get_text(item, "agent_id")), get_text(item, "turn_id")
    is_own = is_owner(tx, item)
    if "finish_no_gate" in tx.bugs:
        is_own = head is not None and turn_id is not None and head["active_agent_turn_id"] == turn_id
    if not is_own:
        card = None if turn_id is None else tx.tables.cards.get(end_of(turn_id))
        return {
            "outcome": "duplicate" if card is not None and card["turn_epoch"] == j.get_whole(item, "epoch") else "stale"
        }
    run, turn = tx.tables.runs[str(run_of(get_text(item, "agent_id")))], tx.tables.turns[str(turn_id)]
    reaction, follows = get(item, "reaction"), get_text(item, "follows")
    if run["version"] + step != j.get_whole(item, "version") and "no_version_guard" not in tx.bugs:
        return _conflict(tx, run)
    if not isinstance(reaction, dict):
        return _conflict(tx, run)
    if follows is not None and not step and follows not in turns_ended and "follows_unchecked" not in tx.bugs:
        return _conflict(tx, run)
    woken = get(reaction, "activations")
    return (
        _reject_deliverable(item)
        or _reject_ending(item, limited)
        or (None if "result_fields_unchecked" in tx.bugs else _reject_fields(item, turn["result_fields"]))
        or (
            (reject_activations(tx, run["run_id"], woken, limited) or _reject_taken(tx, woken))
            if j.elements(woken)
            else None
        )
        or reject_drafts(run, get(item, "signals"), ahead)
        or {"outcome": "ok"}
    )


def _reject_deliverable(item: Any) -> Row | None:
    content = get(item, "content")
    if get_text(item, "content") is None:
        raise SqlError("22023", "a deliverable must have content")
    if not isinstance(get(content, "text"), str) and not isinstance(get(content, "fields"), list):
        return rejection("invalid_content", "the content of a deliverable must have text, a string, or fields, a list")
    if get_text(item, "outcome") not in OUTCOMES:
        raise SqlError("22023", "outcome must be success, partial, failed, timeout or canceled")
    return None


def _reject_taken(tx: Transaction, woken: Any) -> Row | None:
    ids = [turn_id for item in j.elements(woken) if (turn_id := get_text(item, "turn_id")) is not None]
    taken = sorted(turn_id for turn_id in ids if turn_id in tx.tables.turns or ids.count(turn_id) > 1)
    return rejection("id_conflict", f"turn {taken[0]} exists") if taken else None


def _reject_ending(item: Any, limited: Row) -> Row | None:
    return reject_signals(get(item, "signals"), limited) or reject_content(get(item, "content"), limited)


def _reject_fields(item: Any, fields: Any) -> Row | None:
    if fields is None or get_text(item, "outcome") != "success":
        return None
    given = get(get(item, "content"), "fields")
    names = [get(field, "name") for field in given] if isinstance(given, list) else []
    lacking = [
        f"number {n} of result_fields, which has no name" if (name := get_text(field, "name")) is None else name
        for n, field in enumerate(j.elements(fields), 1)
        if j.parse_boolean(get_text(field, "required")) is not False and get_raw(field, "name") not in names
    ]
    if not lacking:
        return None
    return rejection("result_fields", f"the deliverable of turn {get_text(item, 'turn_id') or ''} lacks the required fields "
                     f"{', '.join(lacking)}: add them, or end the turn as partial or failed")  # fmt: skip
