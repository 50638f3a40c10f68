"""The budgets of turns: open calls hold every reservation, and no budget exceeds its limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from heliograph.testing.kernel.tables import Row

Blame = Callable[[str, str], None]


def check_reservations(blame: Blame, tables: Mapping[str, list[Row]]) -> None:
    """Compare the reservations of calls with the budgets that they draw on."""
    owners = {turn["agent_turn_id"]: turn["budgets"] or () for turn in tables["agent_turns"]}
    held: Counter[tuple[str, str]] = Counter()
    for wait in tables["turn_waiting_tools"]:
        if wait["reserved"] is None:
            continue
        if wait["state"] != "open" or wait["kind"] != "inline":
            blame(
                "reservation_kept",
                f"{wait['agent_turn_id']} {wait['tool_call_id']} is {wait['state']}, and holds {wait['reserved']}",
            )
        for owner in owners.get(wait["agent_turn_id"], ()):
            held.update({(owner, kind): amount for kind, amount in wait["reserved"].items()})
    for row in tables["budgets"]:
        turn_id, kind = row["turn_id"], row["kind"]
        if row["reserved"] != held[turn_id, kind]:
            blame(
                "reservation_unheld",
                f"{turn_id} {kind}: {row['reserved']} reserved, open calls hold {held[turn_id, kind]}",
            )
        if row["used"] + row["reserved"] > row["amount_max"]:
            blame(
                "over_budget",
                f"{turn_id} {kind}: {row['used']} used and {row['reserved']} reserved of {row['amount_max']}",
            )
