"""Check and enqueue delegated turns in memory, like 45_children.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.boxes import reject_context
from heliograph.testing.kernel.budgets import wrong_amounts
from heliograph.testing.kernel.head import run_of
from heliograph.testing.kernel.ids import wrong_id, wrong_url
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.limits import over_limit, rejection
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction
from heliograph.testing.kernel.turn_queue import enqueue_turns


def has_children(items: Any) -> bool:
    """Whether `_child_agents` finds any. Raises 22023 unless the calls are an array."""
    calls = [call for item in j.elements(items) for call in j.elements(get(item, "calls"))]
    return any(get_text(call, "kind") == "child" for call in calls)


def wrong_child(child: Any, drafts: int) -> str | None:
    agent, instance, turn_id = (get_text(child, key) for key in ("agent", "instance", "turn_id"))
    if agent is None or not 1 <= len(agent.encode()) <= 200 or "/" in agent:
        return "the agent of a child must have 1 to 200 bytes and no slash"
    if instance is not None and (wrong := wrong_id("the instance of a child", instance)):
        return wrong
    if "/" in (instance or ""):
        return "the instance of a child must not contain a slash"
    if wrong := wrong_id("the turn id of a child", turn_id):
        return wrong
    if wrong := wrong_url(child):
        return wrong
    if wrong := wrong_amounts("the budget of a child", get(child, "budget")):
        return wrong
    if len((get_text(child, "context_box_id") or "").encode()) > 200:
        return "the context_box_id of a child must have at most 200 bytes"
    activation, cause = j.get_whole(child, "activation"), get(child, "cause")
    if activation is None or not 0 <= activation < drafts:
        return "the activation of a child must be the index of a signal of the same item"
    if (
        isinstance(cause, int | float)
        and not isinstance(cause, bool)
        and not 0 <= (j.get_whole(child, "cause") or 0) < drafts
    ):
        return 'the cause of a child must be the index of a signal of the same item, or {"seq": n}'
    return None


def _agent_of(run_id: str | None, child: Any) -> str:
    return "/".join(
        part for part in (run_id, get_text(child, "agent"), get_text(child, "instance")) if part is not None
    )


def reject_children(tx: Transaction, item: Any, limited: Row) -> Row | None:
    """Reject the children of a turn: too many or too deep, a delegation cycle, an unknown agent, a run that stops.

    Bugs: depth_unbounded, cycles_allowed, stopped_run_wakes.
    """
    turn_id, run_id = str(get_text(item, "turn_id")), run_of(get_text(item, "agent_id"))
    asked = [call for call in j.elements(get(item, "calls")) if get_text(call, "kind") == "child"]
    if not asked:
        return None
    if len(asked) > limited["fan_out_max"]:
        return over_limit("fan_out", f"the turn would start {len(asked)} children at once", limited["fan_out_max"],
                          "start them in several rounds", "fan_out_max")  # fmt: skip
    children = [get(call, "child") for call in asked if (turn_id, get_text(call, "call_id")) not in tx.tables.waits]
    ids = [get_text(child, "turn_id") for child in children]
    for n, turn_id_asked in enumerate(ids):
        if turn_id_asked in tx.tables.turns:
            return rejection("id_conflict", f"turn {turn_id_asked} exists")
        if turn_id_asked in ids[:n]:
            return rejection("id_conflict", f"two children have the turn id {turn_id_asked}")
    agents = [_agent_of(run_id, child) for child in children]
    for child in children:
        if f"{run_id}/{get_text(child, 'agent')}" not in tx.tables.heads:
            return rejection("unknown_agent", f"the run has no agent {run_id}/{get_text(child, 'agent')}")
    return _reject_agents(tx, turn_id, str(run_id), agents, limited) or next(
        (rejected for child in children if (rejected := reject_context(tx, child)) is not None), None
    )


def reject_duplicates(tx: Transaction, items: list[Any], n: int) -> Row | None:
    """Reject a child of the n-th item that has the turn id of a child of an earlier item."""
    before = {
        get_text(get(call, "child"), "turn_id") for item in items[:n] for call in j.elements(get(item, "calls"))
    } - {None}
    for call in j.elements(get(items[n], "calls")):
        is_new = (get_text(items[n], "turn_id"), get_text(call, "call_id")) not in tx.tables.waits
        if (
            is_new
            and get_text(call, "kind") == "child"
            and (taken := get_text(get(call, "child"), "turn_id")) in before
        ):
            return rejection("id_conflict", f"two children have the turn id {taken}")
    return None


def _reject_agents(tx: Transaction, turn_id: str, run_id: str, agents: list[str], limited: Row) -> Row | None:
    ancestors = _ancestors(tx, turn_id)
    for agent_id in agents:
        if agent_id in ancestors and "cycles_allowed" not in tx.bugs:
            return rejection("delegation_cycle", f"agent {agent_id} waits for this turn itself; a turn that it would have to do "
                           "first could never begin: give the child an instance of its own")  # fmt: skip
    for agent_id in agents:
        queued, more = len(tx.tables.queued(agent_id)), agents.count(agent_id)
        if queued + more > limited["queue_max"]:
            return over_limit("queue_full", f"agent {agent_id} has {queued} turns waiting", limited["queue_max"],
                              "delegate less to it at once", "queue_max")  # fmt: skip
    depth = tx.tables.turns[turn_id]["depth"] + 1
    if agents and depth > limited["depth_max"] and "depth_unbounded" not in tx.bugs:
        return over_limit("recursion_depth_exceeded", f"the turn would be {depth} delegations deep", limited["depth_max"],
                          "do the work without a further delegation", "depth_max")  # fmt: skip
    run = tx.tables.runs[run_id]
    is_stopping = run["status"] != "running" and (
        not j.has(run["memory"], "session") or j.has(run["memory"], "stopped_by")
    )
    if agents and is_stopping and "stopped_run_wakes" not in tx.bugs:
        return rejection("run_stopping", f"run {run_id} is being stopped: it wakes no more agents")
    return None


def _ancestors(tx: Transaction, turn_id: str) -> set[str]:
    found, turn = set[str](), tx.tables.turns.get(turn_id)
    while turn is not None:
        found.add(turn["agent_id"])
        turn = tx.tables.turns.get(turn["parent_turn_id"])
    return found


def enqueue_children(tx: Transaction, items: list[Any], firsts: dict[str, int]) -> list[str]:
    activations = []
    for item in items:
        turn = tx.tables.turns[str(get_text(item, "turn_id"))]
        for call in j.elements(get(item, "calls")):
            child = get(call, "child")
            wait = tx.tables.waits.get((turn["agent_turn_id"], get_text(call, "call_id")))
            is_new = wait is not None and wait["child_turn_id"] == get_text(child, "turn_id") not in tx.tables.turns
            if get_text(call, "kind") == "child" and is_new:
                activations.append(_activation(tx, turn, call, child, firsts))
    if not activations:
        return []
    for run_id in {str(a["run_id"]) for a in activations}:
        run, more = tx.tables.runs[run_id], sum(a["run_id"] == run_id for a in activations)
        tx.update(tx.tables.runs, run, open_turns=run["open_turns"] + more, activations=run["activations"] + more,
                  version=run["version"] + 1, updated_at=tx.now)  # fmt: skip
    return enqueue_turns(tx, activations)


def _activation(tx: Transaction, turn: Row, call: Any, child: Any, firsts: dict[str, int]) -> Row:
    cause, first = get(child, "cause"), firsts.get(turn["agent_turn_id"])
    is_told = cause is not None and cause is not ABSENT
    row = {
        **child, "cause": cause if is_told else {"seq": turn["activation_seq"]}, "run_id": turn["run_id"],
        "base": None if first is None else first - 1, "parent_turn_id": turn["agent_turn_id"],
        "parent_call_id": get_text(call, "call_id"), "depth": turn["depth"] + 1, "budgets": turn["budgets"],
        "starts_at": get_text(get(call, "rate"), "starts_at"),
    }  # fmt: skip
    if get_text(child, "instance") is not None:
        row["target"] = tx.tables.heads[turn["agent_id"]]["target"]
    return row
