"""A request of each function of the kernel, and how it is rejected."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import asyncpg

from heliograph.errors import KernelRejected
from heliograph.requests import WITH_CLAIM
from tests.kernel.filled import BREAKER, RATE
from tests.kernel.kit import TARGET, Item, Kernel, draft, ending, message, run_item, stopping, turn_item
from tests.kernel.waits import child, command

MORE: dict[str, list[Any]] = {
    "claim": ["worker", 1, 30.0],
    "finish_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "start_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "report_and_claim": [[{"target": TARGET}], "worker", 1, 30.0],
    "renew": [30.0],
    "take_commands": [1, 1.0],
    "take_halts": [1, 1.0],
    "sweep_pending_reactions": [1],
}
CLAIM_KEYS = dict(WITH_CLAIM.values())  # the key of the answers of functions that also claim
CARD = {"card_id": "card_1", "kind": "note", "content": {}}
# The SQLSTATE of a rejected call, or the code of a rejected item.
CODES = {"22023", "22P02", "invalid_signal"}  # 22P02: of a column that is no JSON


def requests(claimed: Item) -> dict[str, Item]:
    """A request of each function, with every object that it may contain."""
    call: Item = {"step_id": "s", "tool": "t", "effect": "once"}
    end = ending(claimed, wakes={"turn_x": "critic"}, stops={"turns": "all", "reason": "enough"})
    end["reaction"]["activations"][0]["cause"] = {"seq": 1}
    started = run_item("run_n", ["writer"], {"turn_n": "writer"}, cause={"seq": 1})
    started["reaction"]["stops"] = {"turns": "all", "reason": "enough"}
    started["signals"][0]["parent"] = "sig_run_a_2"
    started["fork"] = {"run_id": "run_a", "seq": 2, "turns": [{"turn_id": "turn_b", "origin": "turn_a"}]}
    part = {"recording": {"body": "{}", "name": "n", "tags": ["t"]}}
    return {
        "start_runs": started | part,
        "start_and_claim": started | part,
        "enqueue": message("run_a", "critic", "turn_m"),
        "claim": {"target": TARGET},
        "take_commands": {"tool": "search"},
        "fail_unclaimable": {"target": TARGET},
        "renew": turn_item(claimed),
        "release": turn_item(claimed, failure={"code": "C", "message": "m"}),
        "append": turn_item(claimed, draft("note", claimed["activation_id"]), cards=[CARD]) | part,
        "begin_call": turn_item(claimed, call_id="c1", circuit_breaker=BREAKER, rates=[RATE], **call),
        "record_call": turn_item(claimed, draft("note", claimed["activation_id"]), call_id="c2", status="success", result=1,
                              open_as={"step_id": "s", "tool": "t"},
                              intents=[{"call_id": "c5", "circuit_breaker": BREAKER, "rates": [RATE], **call}]) | part,
        "suspend": turn_item(claimed, draft("note", claimed["activation_id"]), cards=[CARD], calls=[
            command("c3", circuit_breaker=BREAKER, rates=[RATE]) | {"command": {"subject": "s", "body": {}}}, child("c4", "critic", "turn_c", 0, cause={"seq": 1})]) | part,
        "defer": turn_item(claimed, reason="later", delay_seconds=1.0),
        "finish": end | {"recording": "{}"},
        "finish_and_claim": end | {"recording": "{}"},
        "stop": stopping("turn_a"),
        "stop_runs": stopping("run_a"),
        "react": {"run_id": "run_a", "version": end["version"], "signals": end["signals"], "reaction": end["reaction"]} | part,
        "report": {"turn_id": "turn_a", "call_id": "c9", "status": "success", "result": 1},
        "report_and_claim": {"turn_id": "turn_a", "call_id": "c9", "status": "success", "result": 1},
        "record_callbacks": {"callback_id": "callback_1", "attempt": 1, "state": "delivered"},
        "put_boxes": {"box_id": "b", "cards": [CARD]},
        "fork_boxes": {"box_id": "b", "base_box_id": "box_turn_a"},
        "replace_boxes": turn_item(claimed, context_box_id=None),
        "remember": {"memory_id": "m", "text": "t"},
        "forget": {"memory_id": "m"},
        "beat": {"worker": "w"},
        "deregister": {"worker": "w"},
        "record_positions": {"name": "s", "subscriber": "w", "run_id": "run_a", "position": 1},
    }  # fmt: skip


def with_value(item: Item, path: tuple[Any, ...], value: Any) -> Item:
    """A copy of a request with another value at a path of keys and indexes."""
    changed = deepcopy(item)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


async def rejection(kernel: Kernel, function: str, item: Any) -> tuple[str, str]:
    """The code and the message of a rejected call, or of a rejected item."""
    try:
        answers = await kernel.call(function, [item], *MORE.get(function, []))
        [answer] = answers_of(function, answers)
    except asyncpg.PostgresError as error:
        return str(error.sqlstate), str(error)
    except KernelRejected as error:  # the items of this function are typed columns
        return error.message[-6:-1], error.message[:-8]
    return answer.get("code", answer["outcome"]), answer.get("message", "")


def answers_of(function: str, answer: Any) -> Any:
    """The answers about the items."""
    return answer[CLAIM_KEYS[function]] if function in CLAIM_KEYS else answer
