"""Give the turns of a fork the calls that their origins made before it, in memory, like 31_fork_calls.sql."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.jsonb import get, get_text
from heliograph.testing.kernel.limits import put_card
from heliograph.testing.kernel.run_forks import turns_of
from heliograph.testing.kernel.tables import Row, result_of
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import inbox_row

# what the open call of another turn had and a recorded result does not have
_CLEARED: Row = {
    "deadline": None, "token_hash": None, "fails_fast": False, "duplicates": 0, "reserved": None, "circuit": None, "rate": None,
}  # fmt: skip
_MESSAGE = "the call had begun before the signal at which its run was forked, and had no result by then"


def copy_calls(tx: Transaction, item: Any, seq: int) -> None:
    """Copy the calls of each turn that starts again in the fork `item`, see `_copy_calls`."""
    fork = get(item, "fork")
    repeats_failed = bool(j.parse_boolean(get_text(fork, "repeats_failed")))
    for pair in sorted(turns_of(fork), key=lambda pair: str(get_text(pair, "turn_id"))):
        turn = tx.tables.turns.get(get_text(pair, "turn_id"))
        if turn is not None and turn["run_id"] == get_text(item, "run_id"):
            calls = _calls_before(tx, str(get_text(pair, "origin")), seq, repeats_failed=repeats_failed)
            copies = [
                _copy(tx, turn, wait, place, seq, is_known=is_known) for place, (wait, is_known) in enumerate(calls, 1)
            ]
            for row in sorted(copies, key=lambda row: int(row["position"])):
                row["position"] = tx.next("wait_position")
                tx.insert(tx.tables.waits, (row["agent_turn_id"], row["tool_call_id"]), row)


def _calls_before(tx: Transaction, turn_id: str, seq: int, *, repeats_failed: bool) -> list[tuple[Row, bool]]:
    """The calls that a turn of a fork has to know and whether each has its result, the resolved ones first, in the order of their results.

    Bugs: fork_forgets_results, fork_forgets_calls, fork_has_later_results.
    """
    upto = seq + repeats_failed
    begun = [wait for wait in tx.tables.waits.of(turn_id) if wait["opened_seq"] <= upto]
    if "fork_has_later_results" in tx.bugs:
        upto = 2**63
    has_results, has_unknown = "fork_forgets_results" not in tx.bugs, "fork_forgets_calls" not in tx.bugs
    kept = [
        wait for wait in begun if (has_results if _is_known(wait, upto) else has_unknown and _may_have_happened(wait))
    ]
    if repeats_failed:
        last = max((int(w["position"]) for w in begun if w["status"] != "failed"), default=-1)
        kept = [w for w in kept if not (_is_known(w, upto) and w["status"] == "failed" and int(w["position"]) > last)]
    # a null sorts last, as in SQL
    kept.sort(
        key=lambda w: (
            not _is_known(w, upto),
            w["resolved_position"] is None,
            w["resolved_position"] or 0,
            w["position"],
        )
    )
    return [(wait, _is_known(wait, upto)) for wait in kept]


def _is_known(wait: Row, upto: int) -> bool:
    return bool(wait["state"] == "resolved" and wait["resolved_seq"] <= upto)


def _may_have_happened(wait: Row) -> bool:
    return wait["effect"] != "pure" and wait["tool"] != "model" and wait["kind"] in ("inline", "tool", "child")


def _copy(tx: Transaction, turn: Row, wait: Row, place: int, seq: int, *, is_known: bool) -> Row:
    """Write what belongs to a copied call, and return its row, with the position of the original."""
    turn_id, call_id, kind = turn["agent_turn_id"], wait["tool_call_id"], wait["kind"]
    head = tx.tables.heads[turn["agent_id"]]
    card = tx.tables.cards.get(result_of(wait["agent_turn_id"], call_id))
    content = card["content"] if is_known and card is not None else {
        "call_id": call_id, "tool": wait["tool"], "status": "unknown", "trust": "trusted",
        "error": {"code": "IN_DOUBT", "recoverable": False, "message": _MESSAGE},
    }  # fmt: skip
    put_card(tx, result_of(turn_id, call_id), f"box_{turn_id}", turn_id, head["turn_epoch"], "tool.result", content)
    status = wait["status"] if is_known else "unknown"
    if kind != "inline":
        inbox_id = tx.next("inbox_id")
        tx.insert(tx.tables.inbox, (turn_id, inbox_id), inbox_row(
            tx, turn, inbox_id, "tool_result", "consumed", call_id, turn_epoch=head["turn_epoch"], applied=True,
            report_status=status, consumed_at=tx.now))  # fmt: skip
    return {
        **wait, "agent_turn_id": turn_id, "state": "resolved", "epoch": head["turn_epoch"], "status": status, "resolved_position": place,
        "opened_at": tx.now, "resolved_at": tx.now, "opened_seq": seq + 1, "resolved_seq": seq + 1, **_CLEARED,
    }  # fmt: skip
