"""Reserve, spend and settle budgets in memory, like 13_budgets.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.circuit_breakers import release_trials, unopen
from heliograph.testing.kernel.jsonb import ABSENT, SqlError, get, get_text
from heliograph.testing.kernel.limits import rejection
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction

_KINDS = ("micros", "model_calls", "tokens", "tool_calls")
_NOTHING = dict.fromkeys(_KINDS, 0)
_MOST = 10**15


def wrong_amounts(what: str, amounts: Any) -> str | None:
    if amounts is None or amounts is ABSENT or (isinstance(amounts, dict) and amounts and _are_amounts(amounts)):
        return None
    return f"{what} has one or more of tokens, micros, model_calls and tool_calls, each a whole number from 0 to 1e15"


def _are_amounts(amounts: Row) -> bool:
    return all(kind in _KINDS and isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= _MOST
               for kind, n in amounts.items())  # fmt: skip


def check_amounts(items: list[Any], key: str) -> None:
    for item in items:
        if (wrong := wrong_amounts(key, get(item, key))) is not None:
            raise SqlError("22023", wrong)


def open_budgets(tx: Transaction, activations: list[Row]) -> list[Row]:
    opened = []
    for item in activations:
        own, owners = get(item, "budget"), get(item, "budgets")
        if isinstance(own, dict):
            turn_id = get_text(item, "turn_id")
            for kind in sorted(own):
                tx.insert(tx.tables.budgets, (turn_id, kind), {
                    "turn_id": turn_id, "kind": kind, "amount_max": own[kind], "reserved": 0, "used": 0, "overspent": 0})  # fmt: skip
            item = j.joined(item, {"budgets": [*(owners if isinstance(owners, list) else ()), turn_id]})  # noqa: PLW2901
        opened.append(item)
    return opened


def budget_of(tx: Transaction, turn_id: str) -> Row:
    return {row["kind"]: row["amount_max"] for row in tx.tables.budgets.of(turn_id)}


def reserve(tx: Transaction, items: list[Any], answers: list[Row], opened: set[int]) -> None:
    """Reserve the maximum amounts of calls that begin. opened: the places of calls that this transaction has opened."""
    rejections: dict[Any, Row] = {}
    for n, (item, answer) in enumerate(zip(items, answers, strict=True)):
        asked, call = get(item, "reserve"), (answer["turn_id"], answer["call_id"])
        rejected = rejections.get(call) if answer["outcome"] != "stale" else None
        if rejected is None and isinstance(asked, dict) and answer["outcome"] in ("fresh", "again"):
            rejected = _reserve_call(tx, call, asked, is_again=answer["outcome"] == "again")
        if rejected is None:
            continue
        if n in opened or answer["outcome"] == "again":
            release_trials(tx, call[0], [{"call_id": call[1], "circuit": tx.tables.waits[call]["circuit"]}])
            unopen(tx, call, is_new=n in opened)
            rejections[call] = rejected
        answer.pop("circuit", None)
        answer |= rejected  # noqa: PLW2901


def _reserve_call(tx: Transaction, call: Any, asked: Row, *, is_again: bool) -> Row | None:
    wait, turn = tx.tables.waits[call], tx.tables.turns[call[0]]
    if turn["budgets"] is None or (wait["reserved"] and not is_again):
        return None
    if is_counted := wait["reserved"] is not None:
        settle(tx, call, {})
        asked = {kind: amount for kind, amount in asked.items() if kind != "tool_calls"}
    if (rejected := _shortfall(tx, turn["budgets"], asked)) is not None:
        if is_counted:
            tx.set(wait, reserved={})
        return rejected
    for row in _rows(tx, turn["budgets"]):
        if row["kind"] in asked:
            tx.update(tx.tables.budgets, row, reserved=row["reserved"] + asked[row["kind"]])
    tx.set(wait, reserved=asked)
    return None


def _rows(tx: Transaction, owners: list[str]) -> list[Row]:
    return [row for owner in sorted(set(owners), key=str.encode)
            for row in sorted(tx.tables.budgets.of(owner), key=lambda row: str(row["kind"]))]  # fmt: skip


def _shortfall(tx: Transaction, owners: list[str], asked: Row) -> Row | None:
    """Reject a reservation if a budget of these owners has too little left. Bug: reserve_ignored."""
    for row in _rows(tx, owners):
        held = row["reserved"] if "reserve_ignored" in tx.bugs else 0
        if row["kind"] in asked and asked[row["kind"]] > _left_of(row) + held:
            message = (f"the budget of turn {row['turn_id']} has {max(_left_of(row), 0)} of {row['amount_max']} {row['kind']} left; "
                       f"this call needs {asked[row['kind']]}: start the turn with a larger budget")  # fmt: skip
            budget = {key: row[key] for key in ("turn_id", "kind", "amount_max", "used", "reserved", "overspent")}
            return {**rejection("BUDGET_EXCEEDED", message), "budget": budget}
    return None


def _left_of(row: Row) -> int:
    return int(row["amount_max"] - row["used"] - row["reserved"] - row["overspent"])


def remaining(tx: Transaction, owners: list[str]) -> Row:
    found: Row = {}
    for row in _rows(tx, owners):
        found[row["kind"]] = min(max(_left_of(row), 0), found.get(row["kind"], _MOST))
    return found


def reject_commands(tx: Transaction, item: Any) -> Row | None:
    owners, count = tx.tables.turns[str(get_text(item, "turn_id"))]["budgets"], _new_commands(tx, item)
    return _shortfall(tx, owners, {"tool_calls": count}) if owners is not None and count else None


def spend_commands(tx: Transaction, items: list[Any]) -> None:
    """Count the external calls of a round of suspend in the budgets of their turns. Bug: commands_free."""
    for item in items:
        owners, count = tx.tables.turns[str(get_text(item, "turn_id"))]["budgets"], _new_commands(tx, item)
        for row in _rows(tx, owners or []):
            if row["kind"] == "tool_calls" and count and "commands_free" not in tx.bugs:
                tx.update(tx.tables.budgets, row, used=row["used"] + count)


def _new_commands(tx: Transaction, item: Any) -> int:
    turn_id = get_text(item, "turn_id")
    return sum(
        get_text(call, "kind") == "tool" and (turn_id, get_text(call, "call_id")) not in tx.tables.waits
        for call in j.elements(get(item, "calls"))
    )


def settle(tx: Transaction, call: Any, used: Row) -> None:
    wait, owners = tx.tables.waits[call], tx.tables.turns[call[0]]["budgets"] or ()
    held = wait["reserved"] or {}
    for row in [row for owner in owners for row in tx.tables.budgets.of(owner)]:
        before, amount = held.get(row["kind"], 0), used.get(row["kind"], held.get(row["kind"], 0))
        taken = min(amount, row["amount_max"] - row["used"] - row["reserved"] + before)
        tx.update(tx.tables.budgets, row, reserved=row["reserved"] - before, used=row["used"] + taken,
                  overspent=row["overspent"] + amount - taken)  # fmt: skip
    tx.set(wait, reserved=None)


def used_of(item: Any) -> Row:
    """Read the amounts that record_call reports as used."""
    used = get(item, "used")
    return {**(_NOTHING if get_text(item, "status") == "canceled" else {}), **(used if isinstance(used, dict) else {})}


def settle_ended(tx: Transaction, turn_ids: list[str]) -> None:
    """Settle the remaining reservations of ended turns. Bug: reserve_kept."""
    for turn_id in sorted(turn_ids):
        for wait in tx.tables.waits.of(turn_id):
            if wait["reserved"] is not None and "reserve_kept" not in tx.bugs:
                settle(tx, (turn_id, wait["tool_call_id"]), {})
