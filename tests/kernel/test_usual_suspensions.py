"""The short check of a usual call accepts nothing that the long one rejects."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from heliograph.errors import KernelRejected
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
    [{**CARD, "more": 1}], [CARD, "card"], {}, "card", None,
)  # fmt: skip
WRONG_ITEMS: dict[str, tuple[Any, ...]] = {
    "cards": WRONG_CARDS, "join": ("any",), "phase": ("rest",), "terminates": ("true", 1), "more": (1,), "recording": ("body",),
    "calls": ([CALL, CALL], {}, "call", [[CALL]], ["call"], None), "signals": ({}, "signal", None),
}  # fmt: skip


async def is_usual(kernel: Kernel, call: Any) -> bool:
    return bool(await kernel.connection.fetchval("select heliograph._is_usual_wait($1)", call))


@pytest.mark.parametrize("kind", ["tool", "human"])
async def test_usual_suspension_needs_no_long_check(kernel: Kernel, kind: str) -> None:
    claimed = await kernel.running()
    call = {**CALL, "kind": kind}
    assert await is_usual(kernel, call)
    assert await is_usual(kernel, {"call_id": "c1", "tool": "search", "kind": kind})
    item = turn_item(claimed, calls=[call], cards=[CARD], phase="act", join="all", seen=0, terminates=False)
    assert (await kernel.call("suspend", [item]))[0]["outcome"] == "suspended"


async def test_suspension_with_a_wrong_field_is_rejected(kernel: Kernel) -> None:
    claimed = await kernel.running()
    wrong = [{**CALL, key: value} for key, values in WRONG_CALLS.items() for value in values]
    assert [call for call in wrong if await is_usual(kernel, call)] == []
    items = [turn_item(claimed, calls=[call]) for call in wrong]
    items += [
        turn_item(claimed, calls=[CALL]) | {key: value} for key, values in WRONG_ITEMS.items() for value in values
    ]
    for item in items:
        with pytest.raises((asyncpg.PostgresError, KernelRejected)) as raised:
            await kernel.call("suspend", [item])
        state = raised.value.sqlstate if isinstance(raised.value, asyncpg.PostgresError) else str(raised.value)[-6:-1]
        assert state == ("22P02" if "terminates" in item else "22023"), item
