"""The functions of 82_boxes and 83_box_contents.sql for the in-memory kernel, under the same names without the underscore."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from heliograph.testing.kernel import jsonb as j
from heliograph.testing.kernel.contexts import is_there, refuse_context, writer_of
from heliograph.testing.kernel.endings import get_raw
from heliograph.testing.kernel.head import owns
from heliograph.testing.kernel.ids import check, wrong_id
from heliograph.testing.kernel.jsonb import Refusal, get, get_text
from heliograph.testing.kernel.limits import content_of, limits, put_card, refuse_content, rejection, store_content
from heliograph.testing.kernel.tables import DELIVERABLE, Row, Transaction, timestamp


def put_boxes(tx: Transaction, items: Any) -> list[Row]:
    limited, listed = limits(tx), j.elements(items)
    for item in listed:
        _check_box(get_text(item, "box_id"))
    for item in listed:
        for card in j.elements(get(item, "cards")):
            _check_box_card(card)
    return _in_order(listed, lambda item: _put_box(tx, item, limited))


def _in_order(items: list[Any], put: Any) -> list[Row]:
    """The answers in the order of the items, made in that of the boxes' ids."""
    answers: list[Row] = [{"box_id": get_raw(item, "box_id")} for item in items]
    for n in sorted(range(len(items)), key=lambda n: str(get_text(items[n], "box_id"))):
        answers[n] |= put(items[n])
    return answers


def _put_box(tx: Transaction, item: Any, limited: Row) -> Row:
    box_id, cards = str(get_text(item, "box_id")), get_raw(item, "cards")
    cards = [] if cards is None else cards
    content_hash = sha256(j.written(cards).encode()).hexdigest()
    for card in cards:
        if (refusal := refuse_content(get(card, "content"), limited)) is not None:
            return refusal
    box = tx.tables.boxes.get(box_id)
    if box is not None:
        return {"outcome": "duplicate" if box["hash"] == content_hash else "conflict"}
    taken = sorted(str(card_id) for card in cards if (card_id := get_text(card, "card_id")) in tx.tables.cards)
    if taken:
        return rejection("card_exists", f"there is a card {taken[0]} already")
    _insert_box(tx, box_id, "context", content_hash=content_hash)
    for n, card in enumerate(cards, 1):
        card_id = get_text(card, "card_id")
        card_id = f"card:{box_id}:{n}" if card_id is None else card_id
        if not put_card(
            tx,
            card_id,
            box_id,
            None,
            None,
            get_text(card, "kind"),
            store_content(tx, get(card, "content"), limited["card_bytes_max"]),
        ):
            raise Refusal("23505", f"there is a card {card_id} already")
    return {"outcome": "put"}


def _insert_box(
    tx: Transaction, box_id: str, kind: str, *, content_hash: str | None = None, base: tuple[str, int] | None = None,
    writer: str | None = None,
) -> None:  # fmt: skip
    tx.insert(tx.tables.boxes, box_id, {
        "box_id": box_id, "kind": kind, "base_box_id": None if base is None else base[0],
        "base_position": None if base is None else base[1], "writer_turn_id": writer, "hash": content_hash,
        "created_at": tx.now,
    })  # fmt: skip


def _check_box(box_id: str | None) -> None:
    check(wrong_id("a box id", box_id))
    if str(box_id).startswith("box_"):
        raise Refusal("22023", f"a box id does not begin with box_, not {box_id}: those are the turns' own")


def _check_box_card(card: Any) -> None:
    card_id, kind = get_text(card, "card_id"), get_text(card, "kind")
    if card_id is not None:
        check(wrong_id("a card id", card_id))
    if kind in (None, DELIVERABLE) or len(str(kind).encode()) > 200:
        raise Refusal("22023", "a card has a kind of at most 200 bytes, and only an ending writes a task.deliverable")
    if get(card, "content") is j.ABSENT:
        raise Refusal("22023", "a card has content")


def fork_boxes(tx: Transaction, items: Any) -> list[Row]:
    listed = j.elements(items)
    for item in listed:
        _check_box(get_text(item, "box_id"))
    return _in_order(listed, lambda item: _fork_box(tx, item))


def _fork_box(tx: Transaction, item: Any) -> Row:
    box_id, base_id, writer = (get_text(item, key) for key in ("box_id", "base_box_id", "writer_turn_id"))
    if base_id is None or not is_there(tx, base_id):
        return {"outcome": "unknown_box"}
    if writer is not None and tx.tables.turns.get(writer, {"state": "done"})["state"] == "done":
        return {"outcome": "unknown_turn"}
    known, base = tx.tables.boxes.get(box_id), tx.tables.boxes.get(base_id)
    if known is not None:
        is_same = (known["base_box_id"], known["writer_turn_id"]) == (base_id, writer)
        return {"outcome": "duplicate" if is_same else "conflict"}
    inherited = 0 if base is None or base["base_position"] is None else base["base_position"]
    position = max((int(c["position"]) for c in tx.tables.cards.of(base_id)), default=inherited)
    _insert_box(tx, str(box_id), "context" if writer is None else "output", base=(base_id, position), writer=writer)
    return {"outcome": "forked"}


def replace_boxes(tx: Transaction, items: Any) -> list[Row]:
    answer = []
    for item in j.elements(items):
        verdict: Row = {"outcome": "stale"}
        if owns(tx, item):
            verdict = _refuse_boxes(tx, item) or {"outcome": "ok"}
        if verdict["outcome"] == "ok":
            turn, output = tx.tables.turns[str(get_text(item, "turn_id"))], get_text(item, "output_box_id")
            tx.set(turn, output_box_id=turn["output_box_id"] if output is None else output,
                   context_box_id=get_text(item, "context_box_id") if "context_box_id" in item else turn["context_box_id"])  # fmt: skip
        answer.append({"turn_id": get_raw(item, "turn_id"), **verdict})
    return answer


def _refuse_boxes(tx: Transaction, item: Any) -> Row | None:
    output = get_text(item, "output_box_id")
    if output is not None and not is_there(tx, output):
        return rejection("unknown_box", f"there is no box {output}")
    if output is not None and writer_of(tx, output) != get_text(item, "turn_id"):
        return rejection("box_not_writable", f"box {output} is not this turn's: fork it with writer_turn_id")
    return refuse_context(tx, item)


def read_box(tx: Transaction, box_id: str, after: int | None, limit: int) -> list[Row]:
    if not 1 <= limit <= 1000:
        raise Refusal("22023", f"limit must be between 1 and 1000, not {limit}")
    seen: list[Row] = []
    for level, up_to in reversed(_chain(tx, box_id)):
        cards = sorted(tx.tables.cards.of(level), key=lambda c: int(c["position"]))
        seen += [c for c in cards if (after or 0) < c["position"] and (up_to is None or c["position"] <= up_to)]
    return [{
        "position": c["position"], "card_id": c["card_id"], "kind": c["kind"], "content": content_of(tx, c["content"]),
        "turn_id": c["agent_turn_id"], "epoch": c["turn_epoch"], "created_at": timestamp(c["created_at"]),
    } for c in seen[:limit]]  # fmt: skip


def _chain(tx: Transaction, box_id: str) -> list[tuple[str, int | None]]:
    """`_box_chain`: the box and its bases, each with the position up to which it is seen; None for all of it."""
    chain: list[tuple[str, int | None]] = [(box_id, None)]
    while (box := tx.tables.boxes.get(chain[-1][0])) is not None and box["base_box_id"] is not None:
        before = chain[-1][1]
        chain.append(
            (box["base_box_id"], box["base_position"] if before is None else min(before, box["base_position"]))
        )
    return chain
