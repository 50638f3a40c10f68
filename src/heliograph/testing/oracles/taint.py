"""The oracle of taint: it computes the taint of a run's state from the log and compares it with the run's record.

The reads of a turn decide the mark of its end, its end and the reducers decide the marks of the changes that it makes, and
the newest change of each key decides whether the run records the key as untrusted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from heliograph.reactive.state_taint import untrusted_keys
from heliograph.reactive.workflow import Workflow
from heliograph.testing.kernel.tables import Row
from heliograph.testing.oracles.records import Books
from heliograph.testing.oracles.trace import FORK_NAME

Blame = Callable[[str, str], None]
_RESULTS = ("tool:result", "delegation_response")


def check_state_taint(blame: Blame, run: Row, log: list[Row], workflow: Workflow) -> None:
    """Compare the marks of all changes, and the untrusted keys of the run, with the ends of turns in its log."""
    marked: set[str] = set()
    before: frozenset[str] = frozenset()  # as the newest end of a turn found them
    is_read = False
    for signal in log:
        first, _, rest = signal["name"].partition(":")
        if signal["name"] == "agent:completed":
            is_read, before = signal["is_untrusted"], frozenset(marked)
        elif signal["name"] == FORK_NAME and "state" in signal["payload"]:
            marked.clear()
        elif first == "state":
            key, agent = rest.removesuffix(":changed"), workflow.agents[signal["agent"]]
            # a reducer reads the old value of its key; a value that no agent has returned may be made of any key
            old = before & {key} if key in workflow.reducers else frozenset()
            is_untrusted = is_read or bool(old if key in agent.updates else before)
            if signal["is_untrusted"] != is_untrusted:
                blame("taint_of_change", f"{key} of {run['run_id']} at {signal['seq']} is untrusted: "
                      f"{signal['is_untrusted']}; expected from its turn and its reducer: {is_untrusted}")  # fmt: skip
            (marked.add if is_untrusted else marked.discard)(key)
    recorded = untrusted_keys(run["memory"])
    if recorded != marked:
        blame("taint_of_state", f"{run['run_id']} records {sorted(recorded)} as untrusted, its log {sorted(marked)}")


def check_turn_taint(blame: Blame, books: Books, log: list[Row]) -> None:
    """Compare the mark of each end of a turn with the content that the turn may have read and must have read."""
    results: dict[str, dict[str, bool]] = defaultdict(dict)  # by turn and call, whether it is untrusted
    is_marked: dict[str, bool] = {}  # by signal: whether the signal, or the cause of an activation, is untrusted
    has_marked_keys = False
    for signal in log:
        turn_id = signal["agent_turn_id"]
        if signal["name"] == FORK_NAME:
            results.update({line["new_turn_id"]: dict(results[line["turn_id"]]) for line in signal["payload"]["turns"]
                            if "new_turn_id" in line})  # fmt: skip
        signal_id = f"sig_{signal['run_id']}_{signal['seq']}"
        # an activation stands for its cause
        is_marked[signal_id] = signal["is_untrusted"] or (
            signal["name"] == "agent:activated" and is_marked.get(signal["parent_id"], False)
        )
        has_marked_keys |= signal["name"].startswith("state:") and signal["is_untrusted"]
        if signal["name"] in _RESULTS and signal["payload"].get("status") != "in_progress":
            results[turn_id][signal["payload"]["id"]] = signal["is_untrusted"]
        elif signal["name"] == "agent:completed":
            read, waits = results[turn_id], books.turns[turn_id].waits.values()
            # a call that a fork takes over without a result is trusted
            delivered = [
                read.get(wait.call_id, False) for wait in waits if wait.is_delivered and wait.kind in ("tool", "child")
            ]
            may = any(read.values()) or has_marked_keys or is_marked[signal["parent_id"]]
            must = bool(delivered) and all(delivered)
            if not must <= signal["is_untrusted"] <= may:
                blame("taint_of_turn", f"{turn_id} ended untrusted: {signal['is_untrusted']}; it may have read untrusted "
                      f"content: {may}, it must have: {must}")  # fmt: skip
