"""Append cards and signals of running turns in memory, like 41_append.sql, under the same names."""

from __future__ import annotations

from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.drafts import reject_drafts
from heliograph.testing.kernel.head import log, owns, rounds, run_of
from heliograph.testing.kernel.ids import check, check_phase, wrong_card
from heliograph.testing.kernel.jsonb import ABSENT, get, get_text
from heliograph.testing.kernel.limits import (
    content_of,
    limits,
    over_limit,
    put_card,
    reject_content,
    reject_signals,
    rejection,
    store_content,
)
from heliograph.testing.kernel.recordings import recording_of
from heliograph.testing.kernel.tables import Row
from heliograph.testing.kernel.transaction import Transaction


def append(tx: Transaction, items: Any) -> list[Row]:
    """Append cards and signals to turns that their owners run. Bug: ungated_append."""
    limited, listed = limits(tx), j.elements(items)
    for item in listed:
        check_phase(item)
        for column in ("cards", "signals"):
            j.length(get(item, column))  # raises also for an item of a caller without a turn
    answers: dict[int, Row] = {}
    for places in rounds(run_of(get_text(item, "agent_id")) for item in listed):
        for place in places:
            answers[place] = _append(tx, listed[place], limited)
    return [answers[place] for place in range(len(listed))]


def _append(tx: Transaction, item: Any, limited: Row) -> Row:
    row: Row = {"turn_id": get_text(item, "turn_id"), "outcome": "stale"}
    if owns(tx, item) or "ungated_append" in tx.bugs:
        rejected = reject_cards_and_signals(tx, item, limited)
        if rejected is None and j.length(get(item, "cards")):
            rejected = _put_cards(tx, item, limited)
        row |= {"outcome": "ok", "first_seq": append_drafts(tx, item)} if rejected is None else rejected
    return row


def reject_cards_and_signals(tx: Transaction, item: Any, limited: Row) -> Row | None:
    """Reject cards or signals that are too large, too many, or have reserved names. Bug: cards_unbounded."""
    if rejected := reject_names(item):
        return rejected
    if rejected := reject_signals(get(item, "signals"), limited):
        return rejected
    cards = get(item, "cards")
    for card in cards if isinstance(cards, list) else ():
        if rejected := reject_content(get(card, "content"), limited):
            return rejected
    count, turn = j.length(cards), tx.tables.turns.get(get_text(item, "turn_id"))
    if (
        count
        and turn is not None
        and turn["card_count"] + count > limited["cards_max"]
        and "cards_unbounded" not in tx.bugs
    ):
        return over_limit("too_many_cards", f"the turn would have {turn['card_count'] + count} cards", limited["cards_max"],
                          "put the content into fewer cards", "cards_max")  # fmt: skip
    return reject_own_drafts(tx, item)


def reject_own_drafts(tx: Transaction, item: Any) -> Row | None:
    run = tx.tables.runs.get(run_of(get_text(item, "agent_id")))
    return None if run is None else reject_drafts(run, get(item, "signals"))


def reject_names(item: Any) -> Row | None:
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


def append_drafts(tx: Transaction, item: Any) -> int | None:
    """Append a turn's new signals to the log of its run, each once. Returns the position of the first, or None.

    Bugs: append_repeats, terminates_forgotten.
    """
    agent_id, turn_id, epoch = get_text(item, "agent_id"), get_text(item, "turn_id"), j.get_whole(item, "epoch")
    check_phase(item)
    head, phase = tx.tables.heads.get(agent_id), get_text(item, "phase")
    if head is not None and phase is not None and head["phase"] is not None and head["phase"] != phase:
        tx.update(tx.tables.heads, head, phase=phase)
    if head is not None and get(item, "terminates") is True and "terminates_forgotten" not in tx.bugs:
        tx.update(tx.tables.heads, head, terminates=True)
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
    first = log(tx, str(run_of(agent_id)), turn_id, j.elements(drafts), recording_of(item))
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
    return rejection("card_exists", f"another card has the id {other}: choose another id")


def put_cards(tx: Transaction, item: Any, cards: list[Any], limited: Row) -> str | None:
    """Write new cards; return the id of the first one that another card has, or None."""
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
