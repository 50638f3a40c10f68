"""The functions of 40_claim and 41_append.sql for the in-memory kernel, under the same names without the underscore."""

from __future__ import annotations

from typing import Any

from heliograph.ids import signal_id
from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.budgets import remaining
from heliograph.testing.kernel.drafts import refuse_drafts
from heliograph.testing.kernel.head import log, owns, run_of, signal_at
from heliograph.testing.kernel.ids import check, check_phase, wrong_card
from heliograph.testing.kernel.jsonb import ABSENT, Refusal, get, get_text
from heliograph.testing.kernel.limits import (
    content_of,
    limits,
    put_card,
    refuse_content,
    refuse_signals,
    rejection,
    store_content,
)
from heliograph.testing.kernel.reactions import run_view
from heliograph.testing.kernel.tables import Row, Transaction, interval, timestamp


def claim(tx: Transaction, targets: Any, worker: str, limit: int, lease_seconds: float) -> list[Row]:
    """Bug: running_unbounded."""
    _check_lease(lease_seconds)
    if worker is None or not 1 <= len(worker.encode()) <= 200:
        raise Refusal("22023", "a worker has a name of 1 to 200 bytes")
    if not 1 <= limit <= 1000:
        raise Refusal("22023", f"limit must be between 1 and 1000, not {limit}")
    running_max = limits(tx)["running_max"]
    if running_max is not None and "running_unbounded" not in tx.bugs:
        limit = max(0, min(limit, running_max - sum(h["status"] == "running" for h in tx.tables.heads.values())))
    dispatched = [h for h in tx.tables.heads.values() if h["status"] == "dispatched"]
    ready: list[Row] = []
    for target in _distinct_targets(targets):
        found = [h for h in dispatched if _is_wanted(h, target)]
        ready += sorted((h for h in found if h["due_at"] is None), key=_place_in_line)[:limit]
        due = (h for h in found if h["due_at"] is not None and h["due_at"] <= tx.now)
        ready += sorted(due, key=_place_in_line)[:limit]
    ready.sort(key=_place_in_line)
    taken = {h["agent_id"]: h for h in ready[:limit]}
    inbox = {agent_id: _take(tx, head, worker, lease_seconds) for agent_id, head in taken.items()}
    return [_claimed(tx, h, inbox[h["agent_id"]]) for h in sorted(taken.values(), key=_place_in_line)]


def _place_in_line(head: Row) -> tuple[Any, ...]:
    return -head["priority"], head["ready_at"], head["agent_id"]


def _distinct_targets(targets: Any) -> list[tuple[str | None, Any, str | None]]:
    found: list[tuple[str | None, Any, str | None]] = []
    for item in j.elements(targets):
        is_object = isinstance(item, dict)
        key = (get_text(item, "target") if is_object else j.text(item), get(item, "agents"), get_text(item, "run_id"))
        if key not in found:
            found.append(key)
    return found


def _is_wanted(head: Row, target: tuple[str | None, Any, str | None]) -> bool:
    name, agents, run_id = target
    return (
        head["target"] == name
        and (agents is ABSENT or j.has(agents, head["agent_name"]))
        and run_id in (None, head["run_id"])
    )


def _take(tx: Transaction, head: Row, worker: str, lease_seconds: float) -> list[Row]:
    """The inbox rows that are due for it now. Bug: no_bump."""
    bump = 0 if "no_bump" in tx.bugs else 1
    tx.update(
        tx.tables.heads, head, status="running", turn_epoch=head["turn_epoch"] + bump, owner=worker,
        phase="init" if head["phase"] is None else head["phase"], lease_until=tx.now + interval(lease_seconds), due_at=None,
        moved_at=max(tx.now, head["moved_at"]),
    )  # fmt: skip
    agent_id, epoch = head["agent_id"], head["turn_epoch"]
    tx.insert(tx.tables.leases, (agent_id, epoch), {
        "agent_id": agent_id, "turn_epoch": epoch, "agent_turn_id": head["active_agent_turn_id"], "owner": worker,
        "started_at": head["moved_at"], "ended_at": None, "signals_emitted": 0, "last_append_seq": None,
    })  # fmt: skip
    taken = []
    for row in tx.tables.inbox.of(head["active_agent_turn_id"]):
        is_due = row["status"] in ("pending", "deferred") and row["next_retry_at"] <= head["moved_at"]
        if is_due and row["payload"] is None:
            tx.set(row, status="processing", turn_epoch=epoch)
            taken.append(row)
    taken.sort(key=lambda row: (row["next_retry_at"], row["created_at"], row["inbox_id"]))
    return [{key: row[key] for key in ("message_type", "correlation_id")} for row in taken]


def _claimed(tx: Transaction, head: Row, inbox: list[Row]) -> Row:
    run_id, turn = head["run_id"], tx.tables.turns[head["active_agent_turn_id"]]
    row = {
        "agent_id": head["agent_id"], "agent": head["agent_name"], "run_id": run_id, "target": head["target"],
        "turn_id": turn["agent_turn_id"], "epoch": head["turn_epoch"], "priority": head["priority"],
        "phase": head["phase"], "attempts": turn["attempts"], "max_attempts": turn["max_attempts"],
        "defer_count": turn["defer_count"], "ttl_seconds": (turn["expires_at"] - tx.now) / 1_000_000,
        "context_box_id": turn["context_box_id"], "output_box_id": turn["output_box_id"],
        "activation_id": signal_id(run_id, turn["activation_seq"]), "cause": signal_at(tx, run_id, turn["cause_seq"]),
        "inbox": inbox, "run": run_view(tx, tx.tables.runs[run_id]),
    }  # fmt: skip
    if tx.tables.waits.of(turn["agent_turn_id"]):
        row["waits"] = waits_of(tx, turn["agent_turn_id"])
    if turn["result_fields"] is not None or turn["parent_turn_id"] is not None or turn["message_type"] != "turn":
        row |= {key: turn[key] for key in ("result_fields", "parent_turn_id", "depth", "message_type")}
    if turn["parent_turn_id"] is not None:
        row["has_spoken"] = any(lease["signals_emitted"] > 0 for lease in tx.tables.leases.of(head["agent_id"])
                                if lease["agent_turn_id"] == turn["agent_turn_id"])  # fmt: skip
    if turn["budgets"] is not None:
        row["budget"] = remaining(tx, turn["budgets"])
    return row


def waits_of(tx: Transaction, turn_id: str) -> list[Row] | None:
    """`_waits`."""
    found = []
    for wait in sorted(tx.tables.waits.of(turn_id), key=lambda w: int(w["position"])):
        card = tx.tables.cards.get(wait["result_card_id"])
        found.append({
            "call_id": wait["tool_call_id"], "card_id": wait["result_card_id"],
            "content": None if card is None else content_of(tx, card["content"]),
            **{key: wait[key] for key in ("step_id", "tool", "kind", "effect", "state", "status", "resolved_position",
                                          "after_execution", "may_override", "epoch")},
            **({} if wait["taint"] is None else {"taint": wait["taint"]}),
        })  # fmt: skip
    return found or None


def _check_lease(lease_seconds: float) -> None:
    if not 0.1 <= lease_seconds <= 86_400:
        raise Refusal("22023", f"a lease must last between 0.1 and 86400 seconds, not {lease_seconds}")


def renew(tx: Transaction, items: Any, lease_seconds: float) -> list[Row]:
    """Bug: stop_not_delivered."""
    _check_lease(lease_seconds)
    listed, answer = j.elements(items), []
    for item in listed:
        check_phase(item)
    for item in listed:
        j.get_whole(item, "epoch")
    for item in listed:
        row: Row = {"turn_id": get_text(item, "turn_id"), "outcome": "stale"}
        if owns(tx, item):
            head, phase = tx.tables.heads[get_text(item, "agent_id")], get_text(item, "phase")
            tx.update(
                tx.tables.heads,
                head,
                lease_until=tx.now + interval(lease_seconds),
                phase=head["phase"] if phase is None else phase,
            )
            row["outcome"] = "ok"
            if head["stop_requested_at"] is not None and "stop_not_delivered" not in tx.bugs:
                row["stop"] = {"reason": head["stop_reason"], "requested_at": timestamp(head["stop_requested_at"])}
        answer.append(row)
    return answer


def append(tx: Transaction, items: Any) -> list[Row]:
    """Bug: ungated_append."""
    limited, answer = limits(tx), []
    for item in j.elements(items):
        row: Row = {"turn_id": get_text(item, "turn_id"), "outcome": "stale"}
        if owns(tx, item) or "ungated_append" in tx.bugs:
            refusal = refuse_cards_and_signals(tx, item, limited)
            if refusal is None and j.length(get(item, "cards")):
                refusal = _put_cards(tx, item, limited)
            row |= {"outcome": "ok", "first_seq": append_drafts(tx, item, limited)} if refusal is None else refusal
        answer.append(row)
    return answer


def refuse_cards_and_signals(tx: Transaction, item: Any, limited: Row) -> Row | None:
    """Bug: cards_unbounded."""
    if refusal := refuse_names(item):
        return refusal
    if refusal := refuse_signals(get(item, "signals"), limited):
        return refusal
    cards = get(item, "cards")
    for card in cards if isinstance(cards, list) else ():
        if refusal := refuse_content(get(card, "content"), limited):
            return refusal
    count, turn = j.length(cards), tx.tables.turns.get(get_text(item, "turn_id"))
    if (
        count
        and turn is not None
        and turn["card_count"] + count > limited["cards_max"]
        and "cards_unbounded" not in tx.bugs
    ):
        return rejection("too_many_cards", f"the turn would have {turn['card_count'] + count} cards; at most "
                       f"{limited['cards_max']} are allowed")  # fmt: skip
    return refuse_own_drafts(tx, item)


def refuse_own_drafts(tx: Transaction, item: Any) -> Row | None:
    run = tx.tables.runs.get(run_of(get_text(item, "agent_id")))
    return None if run is None else refuse_drafts(run, get(item, "signals"))


def refuse_names(item: Any) -> Row | None:
    """Find names as the path $.signals[*].name does, which also looks into nested lists."""
    signals = get(item, "signals")
    listed = [
        s
        for one in (signals if isinstance(signals, list) else [signals])
        for s in (one if isinstance(one, list) else [one])
    ]
    if any(isinstance(name := get(s, "name"), str) and name.startswith(("workflow:", "kernel:")) for s in listed):
        return rejection("reserved_name", "no turn emits signals whose names begin with workflow: or kernel:")
    return None


def append_drafts(tx: Transaction, item: Any, limited: Row) -> int | None:
    """Bug: append_repeats."""
    agent_id, turn_id, epoch = get_text(item, "agent_id"), get_text(item, "turn_id"), j.get_whole(item, "epoch")
    check_phase(item)
    head, phase = tx.tables.heads.get(agent_id), get_text(item, "phase")
    if head is not None and phase is not None and head["phase"] is not None and head["phase"] != phase:
        tx.update(tx.tables.heads, head, phase=phase)
    drafts = get(item, "signals")
    if drafts is ABSENT or drafts == []:
        return None
    lease, emitted = tx.tables.leases.get((agent_id, epoch)), j.parse_integer(get_text(item, "signals_emitted"))
    if (
        lease is not None
        and emitted is not None
        and lease["signals_emitted"] > emitted
        and "append_repeats" not in tx.bugs
    ):
        return None if lease["last_append_seq"] is None else int(lease["last_append_seq"])
    first = log(tx, str(run_of(agent_id)), turn_id, j.elements(drafts))
    if lease is not None:
        tx.set(lease, signals_emitted=lease["signals_emitted"] + len(drafts), last_append_seq=first)
    return first


def _put_cards(tx: Transaction, item: Any, limited: Row) -> Row | None:
    before, turn = set(tx.tables.cards), tx.tables.turns[str(get_text(item, "turn_id"))]
    count = turn["card_count"]
    other = put_cards(tx, item, j.elements(get(item, "cards")), limited)
    if other is None:
        return None
    for card_id in set(tx.tables.cards) - before:  # a blob that was put is left to prune
        tx.delete(tx.tables.cards, card_id)
    tx.set(turn, card_count=count)
    return rejection("card_exists", f"there is another card {other} already")


def put_cards(tx: Transaction, item: Any, cards: list[Any], limited: Row) -> str | None:
    """The id of one that is another card's."""
    turn = tx.tables.turns[str(get_text(item, "turn_id"))]
    for card in cards:
        check(wrong_card(card))
    new = sum(
        put_card(tx, get_text(card, "card_id"), turn["output_box_id"], turn["agent_turn_id"], j.get_whole(item, "epoch"),
                 get_text(card, "kind"), store_content(tx, get(card, "content"), limited["card_bytes_max"]))
        for card in cards
    )  # fmt: skip
    if new:
        tx.set(turn, card_count=turn["card_count"] + new)
    return min((str(get_text(card, "card_id")) for card in cards if _is_other(tx, turn, card)), default=None)


def _is_other(tx: Transaction, turn: Row, card: Any) -> bool:
    known = tx.tables.cards[str(get_text(card, "card_id"))]
    is_own = (known["box_id"], known["agent_turn_id"]) == (turn["output_box_id"], turn["agent_turn_id"])
    is_same = (known["kind"], content_of(tx, known["content"])) == (get_text(card, "kind"), get(card, "content"))
    return not (is_own and is_same)
