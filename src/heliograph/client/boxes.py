"""Create, fork, replace and read boxes. A turn reads cards from its context box, and writes cards to its output box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heliograph.client.arguments import check_id, check_text
from heliograph.error_text import safe_repr
from heliograph.errors import Conflict, HeliographError, InvalidInput, NotFound, Rejected
from heliograph.ledger.reader import OWN_BOX
from heliograph.records import Card
from heliograph.signals.payload import check_json
from heliograph.signals.values import to_json

if TYPE_CHECKING:
    from heliograph.runtime import Runtime

DELIVERABLE = "task.deliverable"


class Boxes:
    """The boxes of one project. See `Client.boxes`."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self._ledger = runtime.ledger

    async def put(self, cards: Sequence[Mapping[str, Any]], *, box_id: str | None = None) -> str:
        """Create a context box with these cards and return its id. The box cannot change later.

        cards: each has `kind` and `content`, and optionally an `id`. A repeated call with the same box_id and the same
        cards has no effect. Raises Rejected (`id_conflict`, `card_exists`), InvalidInput (`payload_too_large`,
        `invalid_card`, `invalid_id`).
        """
        chosen = self._chosen(box_id, "context")
        [result] = await self._ledger.write_boxes("put_boxes", [{"box_id": chosen, "cards": _cards(cards)}])
        if result["outcome"] not in ("put", "duplicate"):
            raise _rejection(result, chosen)
        return chosen

    async def fork(self, base_box_id: str, *, box_id: str | None = None, writer_turn_id: str | None = None) -> str:
        """Create a box that starts with the current cards of another box, without copying them. Returns its id.

        base_box_id: a context box, a fork, or `box_<turn>`, which has the output of that turn so far. writer_turn_id: the turn that
        will write to the fork, after `replace` has assigned it. Raises NotFound (`unknown_box`,
        `unknown_turn`), Rejected (`id_conflict`), InvalidInput (`invalid_id`).
        """
        chosen = self._chosen(box_id, "context" if writer_turn_id is None else "output")
        item = {
            "box_id": chosen, "base_box_id": check_id(base_box_id, "a box id", "/base_box_id"),
            "writer_turn_id": None if writer_turn_id is None else check_id(writer_turn_id, "a turn id", "/writer_turn_id"),
        }  # fmt: skip
        [result] = await self._ledger.write_boxes("fork_boxes", [item])
        if result["outcome"] == "unknown_box":
            raise self._unknown(base_box_id)
        if result["outcome"] == "unknown_turn":
            raise NotFound(
                f"no unfinished turn {safe_repr(writer_turn_id)} that could write to a fork; helio turn list lists turns",
                code="unknown_turn",
            )
        if result["outcome"] not in ("forked", "duplicate"):
            raise _rejection(result, chosen)
        return chosen

    async def replace(
        self, turn_id: str, *, context_box_id: str | None = None, output_box_id: str | None = None
    ) -> None:
        """Replace the boxes of a running turn, to compact its context or to let it continue in a fork.

        A box that is not given remains. The turn writes to its new output box at once. It reads its new context box from its next
        claim on, because a function that runs again must find the same context. Raises NotFound (`unknown_turn`), Rejected
        (`not_running`, `unknown_box`, `box_not_writable`, `box_in_use`), InvalidInput.
        """
        if context_box_id is None and output_box_id is None:
            raise InvalidInput("replace takes context_box_id, output_box_id, or both", code="required_field")
        turn = await self._runtime.reader.turn(check_id(turn_id, "a turn id", "/turn_id"))
        named = {"context_box_id": context_box_id, "output_box_id": output_box_id}
        item = {
            "agent_id": turn.agent_id, "turn_id": turn_id, "epoch": turn.turn_epoch,
            **{key: check_id(value, "a box id", f"/{key}") for key, value in named.items() if value is not None},
        }  # fmt: skip
        [result] = await self._ledger.write_boxes("replace_boxes", [item])
        if result["outcome"] == "stale":
            raise Rejected(f"turn {turn_id} is not running ({turn.outcome or turn.status}); only the boxes of a running turn can be replaced",
                          code="not_running")  # fmt: skip
        if result["outcome"] == "rejected":
            raise Rejected(result["message"], code=result["code"])

    async def read(self, box_id: str) -> list[Card]:
        """Return all cards of a box in order. Raises NotFound (`unknown_box`), InvalidInput (`invalid_id`)."""
        await self._runtime.reader.box(check_id(box_id, "a box id", "/box_id"))
        return await self._runtime.reader.cards_of_box(box_id)

    def _chosen(self, box_id: str | None, kind: str) -> str:
        if box_id is None:
            return self._runtime.world.new_id(kind)
        if check_id(box_id, "a box id", "/box_id").startswith(OWN_BOX):
            raise InvalidInput(f"the box id {safe_repr(box_id)} begins with {OWN_BOX}, which is reserved for turns; choose another one",
                               code="invalid_id", path="/box_id")  # fmt: skip
        return box_id

    def _unknown(self, box_id: str) -> NotFound:
        return NotFound(f"no box {safe_repr(box_id)} in project {self._runtime.settings.project}; helio turn show TURN lists those of "
                        "a turn", code="unknown_box")  # fmt: skip


def _cards(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert cards for the kernel. Raises InvalidInput."""
    if isinstance(cards, str | Mapping) or not isinstance(cards, Sequence):
        raise InvalidInput(f"cards must be a list of objects, not {safe_repr(cards)}", code="wrong_type", path="/cards")
    return [_card(card, f"/cards/{n}") for n, card in enumerate(cards)]


def _card(card: Mapping[str, Any], path: str) -> dict[str, Any]:
    if not isinstance(card, Mapping) or not {"kind", "content"} <= set(card) <= {"id", "kind", "content"}:
        raise InvalidInput(f"a card must have kind and content, and may have an id, not {safe_repr(card)}", code="invalid_card",
                           path=path)  # fmt: skip
    kind = check_text(card["kind"], "the kind of a card", f"{path}/kind")
    if not kind or kind == DELIVERABLE:
        raise InvalidInput(f"a card needs a kind other than {DELIVERABLE}, which only the end of a turn writes", code="invalid_card",
                           path=f"{path}/kind")  # fmt: skip
    converted: dict[str, Any] = {
        "kind": kind,
        "content": check_json(to_json(card["content"], f"{path}/content"), f"{path}/content"),
    }
    if card.get("id") is not None:
        converted["card_id"] = check_id(card["id"], "a card id", f"{path}/id")
    return converted


def _rejection(result: Mapping[str, Any], box_id: str) -> HeliographError:
    if result["outcome"] == "conflict":
        return Conflict(f"box {box_id} exists with other contents; choose another box id", code="id_conflict")
    if result["code"] == "payload_too_large":
        return InvalidInput(result["message"], code=result["code"], path="/cards")
    return Rejected(result["message"], code=result["code"])
