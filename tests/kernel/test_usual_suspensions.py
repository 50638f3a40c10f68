"""The short check of a usual suspension accepts nothing that the long one rejects."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.kernel.kit import Kernel, turn_item

CALL = {
    "call_id": "c1", "step_id": "s1", "tool": "search", "kind": "tool", "effect": "once", "timeout_seconds": 60.0, "token": "secret",
    "after_execution": "suspend", "may_override": False, "fails_fast": False, "taint": ["web"], "is_trusted": False, "child": None,
    "command": {"subject": "cmd.tool.search", "body": {"a": 1}, "pool": None, "priority": None},
}  # fmt: skip
CARD = {"card_id": "card_1", "kind": "tool.call", "content": None}
WRONG_CALLS: dict[str, tuple[Any, ...]] = {
    "call_id": (None, "", "a:b", "a\x01", "x" * 201), "step_id": ("x" * 201,), "tool": (None, "", "x" * 201), "kind": (None, "inline"),
    "effect": ("twice",), "timeout_seconds": (-1, 31622401), "token": ("", "x" * 1001, 7, {}), "after_execution": ("wait",),
    "taint": ("web", {}), "child": ({}, "critic", []), "command": ("go", [], {"body": []}, {"subject": "x" * 201}, {"subject": 7}, {"pool": "a:b"},
    {"priority": 4}, {"more": 1}), "circuit_breaker": ({"type": "tool"},), "rates": ({},), "more": (1,),
}  # fmt: skip
WRONG_CARDS: tuple[Any, ...] = (
    [{**CARD, "card_id": "a:b"}], [{**CARD, "kind": ""}], [{**CARD, "kind": None}], [{"card_id": "c", "kind": "k"}],
    [{**CARD, "more": 1}], [CARD, "card"], {}, "card",
)  # fmt: skip
WRONG_ITEMS: dict[str, tuple[Any, ...]] = {
    "cards": WRONG_CARDS, "join": ("any",), "phase": ("rest",), "terminates": ("true", 1), "more": (1,), "recording": ("body",),
    "calls": ([CALL, CALL], {}, "call", [[CALL]], ["call"]),
}  # fmt: skip


async def is_usual(kernel: Kernel, item: Any) -> bool:
    return bool(await kernel.connection.fetchval("select heliograph._is_usual_suspension($1)", item))


@pytest.mark.parametrize("kind", ["tool", "human"])
async def test_usual_suspension_needs_no_long_check(kernel: Kernel, kind: str) -> None:
    claimed = await kernel.running()
    item = turn_item(
        claimed, calls=[{**CALL, "kind": kind}], cards=[CARD], phase="act", join="all", seen=0, terminates=False
    )
    assert await is_usual(kernel, item)
    assert await is_usual(kernel, turn_item(claimed, calls=[{"call_id": "c1", "tool": "search", "kind": kind}]))
    assert (await kernel.call("suspend", [item]))[0]["outcome"] == "suspended"


async def test_short_check_of_a_suspension_accepts_no_wrong_field(kernel: Kernel) -> None:
    claimed = await kernel.running()
    items = [
        turn_item(claimed, calls=[{**CALL, key: value}]) for key, values in WRONG_CALLS.items() for value in values
    ]
    items += [
        turn_item(claimed, calls=[CALL]) | {key: value} for key, values in WRONG_ITEMS.items() for value in values
    ]
    for item in items:
        assert not await is_usual(kernel, item), item
        with pytest.raises(asyncpg.PostgresError) as raised:
            await kernel.call("suspend", [item])
        assert raised.value.sqlstate == "22023", item
