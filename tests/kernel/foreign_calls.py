"""Calls of a login from outside the project, made from the catalog: every public function, with every id of the project.

The name of a parameter determines its value. A parameter that `PARAMETERS` does not list fails the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg

from heliograph.ledger.kernel import KERNEL
from heliograph.ledger.kernel_columns import Column, arrays_of
from heliograph.requests import REQUESTS
from heliograph.testing.kernel.keys import shape_of
from tests.kernel.kit import TARGET, Item, Kernel, activation, draft, encoded

FUNCTIONS = """
select p.proname as name, coalesce(p.proargnames, '{}')::text[] as arguments, p.prosrc as source, p.prosecdef as is_definer,
       coalesce(p.proconfig, '{}') as settings, l.lanname as language, p.proretset as is_set,
       array(select format_type(t, null) from unnest(p.proargtypes) with ordinality a (t, n) order by n) as types
  from pg_proc p join pg_language l on l.oid = p.prolang
 where p.pronamespace = 'heliograph'::regnamespace and p.proname !~ '^_' order by p.proname
"""


ITEMS = ("p_items", "p_messages", "p_runs")


@dataclass(frozen=True, slots=True)
class Known:
    """The ids of a project: an item for each call of each turn, with the keys of every function."""

    items: list[Item]
    keys: list[str]
    boxes: list[str]
    at: Any


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    parameters: tuple[tuple[str, str], ...]
    source: str
    is_definer: bool
    settings: frozenset[str]

    def call(self) -> str:
        """The statement. Each function returns one JSON value, rows or none."""
        given = ", ".join(f"${n}::{kind}" for n, (_, kind) in enumerate(self.parameters, 1))
        return f"select to_jsonb(x) from heliograph.{self.name}({given}) x"

    def tries(self, project: str, known: Known) -> Iterator[tuple[Any, ...]]:
        """The arguments of each call: all items in one call, and each in a call of its own, because one item may reject its call."""
        for known_part in (known, *(Known([item], known.keys, [box], known.at) for item, box in _pairs(known))):
            yield tuple(self.given(name, project, known_part) for name, _ in self.parameters)

    def _columns(self) -> list[Column]:
        """The columns of its lists of requests."""
        definition = KERNEL.get(self.name)
        return [] if definition is None else [each for cast in definition.casts for each in definition.columns_at(cast)]

    def given(self, name: str, project: str, known: Known) -> Any:
        """The value of a parameter; an item keeps only the keys that this function accepts."""
        columns = [column for column in self._columns() if name == f"p_{column.name}"]
        if columns:
            values, *_ = arrays_of(  # a function that also claims has two columns of some names
                columns, [{column.name: item.get(column.name) for column in columns} for item in known.items], encoded
            )
            return values
        value = PARAMETERS[name](project, known)
        if self.name not in REQUESTS or name not in ITEMS:
            return value
        if self.name == "beat":
            value = [
                {**item, "status": "healthy", "version": "1"} for item in value
            ]  # of a worker; the others are of calls
        return [{key: item[key] for key in item if key in shape_of(REQUESTS[self.name])} for item in value]


def _pairs(known: Known) -> Iterator[tuple[Item, str]]:
    return ((item, known.boxes[n % len(known.boxes)]) for n, item in enumerate(known.items))


# The value of each parameter in an outsider's call; `known` has the ids of the other project.
PARAMETERS: dict[str, Callable[[str, Known], Any]] = {
    "p_project": lambda project, _: project,
    "p_items": lambda _, known: known.items,
    "p_messages": lambda _, known: known.items,
    "p_runs": lambda _, known: known.items,
    "p_targets": lambda *_: [TARGET],
    "p_claim_target": lambda *_: [TARGET],
    "p_claim_pool": lambda *_: [None],
    "p_claim_agents": lambda *_: [None],
    "p_claim_run_id": lambda *_: [None],
    "p_tools": lambda *_: ["search"],
    "p_names": lambda *_: ["text:delta"],
    "p_seq": lambda *_: 1,
    "p_tool": lambda *_: "search",
    "p_busy": lambda *_: [],
    "p_kind": lambda *_: "tool",
    "p_name": lambda *_: "search",
    "p_keys": lambda _, known: known.keys,
    "p_bytes": lambda *_: 1_000_000,
    "p_limits": lambda *_: {"queue_max": 3},
    "p_worker": lambda *_: "thief",
    "p_subscriber": lambda *_: "thief",
    "p_limit": lambda *_: 1000,
    "p_lease_seconds": lambda *_: 30.0,
    "p_older_seconds": lambda *_: 0.0,
    "p_visible_seconds": lambda *_: 0.0,
    "p_hidden_seconds": lambda *_: 30.0,
    "p_quiescent": lambda *_: True,
    "p_now": lambda _, known: known.at,
    "p_before": lambda _, known: known.at - timedelta(seconds=1),
    "p_before_seq": lambda *_: 1_000_000,
    "p_run_id": lambda _, known: known.items[0]["run_id"],
    "p_signal_id": lambda _, known: f"sig_{known.items[0]['run_id']}_1",
    "p_subject": lambda _, known: known.items[0]["run_id"],
    "p_turn_id": lambda _, known: known.items[0]["turn_id"],
    "p_call_id": lambda _, known: known.items[0]["call_id"],
    "p_token": lambda _, known: known.items[0]["token"],
    "p_status": lambda *_: "success",
    "p_result": lambda *_: {"answer": "the outsider's"},
    "p_box_id": lambda _, known: known.boxes[0],
    "p_target": lambda *_: TARGET,
    "p_after_agent": lambda *_: "",
    "p_after": lambda *_: 0,
    "p_wire": lambda *_: "nats",
    "p_query": lambda *_: "secret",
    "p_agent": lambda *_: None,
    "p_patterns": lambda *_: ["**"],
    "p_pattern": lambda *_: "**",
    "p_since": lambda *_: "start",
    "p_positions": lambda *_: {},
    "p_role": lambda *_: "pg_monitor",  # a role that every server has, and that has nothing to do with us
}


async def functions(connection: asyncpg.Connection) -> list[Function]:
    """Every public function of the installed schema."""
    return [
        Function(r["name"], tuple(zip(r["arguments"], r["types"], strict=False)), r["source"], r["is_definer"],
                 frozenset(r["settings"]))
        for r in await connection.fetch(FUNCTIONS)
    ]  # fmt: skip


async def known(kernel: Kernel, token: str, later_seconds: float) -> Known:
    """All ids that a project has, as its own worker would use them; by `later_seconds` everything in it is due."""
    turns = await kernel.connection.fetch(
        "select t.agent_turn_id as turn_id, t.agent_id, t.run_id, h.agent_name as agent, h.turn_epoch as epoch,"
        "       (select r.version from heliograph.runs r where r.project_id = t.project_id and r.run_id = t.run_id) as version,"
        "       coalesce(w.tool_call_id, 'call_new') as call_id, t.output_box_id, coalesce(c.card_id, 'card_new') as card_id"
        "  from heliograph.agent_turns t join heliograph.agent_state_head h using (project_id, agent_id)"
        "  left join heliograph.turn_waiting_tools w using (project_id, agent_turn_id)"
        "  left join heliograph.cards c using (project_id, agent_turn_id)"
        " where t.project_id = $1 order by t.agent_turn_id, call_id, card_id", kernel.project,
    )  # fmt: skip
    keys = [row["key"] for row in await kernel.rows("outbox", "key")]
    boxes = [row["box_id"] for row in await kernel.rows("boxes", "box_id")]
    return Known(
        [_item(dict(turn), token, n) for n, turn in enumerate(turns)], keys,
        [*boxes, *sorted({turn["output_box_id"] for turn in turns})], kernel.now + timedelta(seconds=later_seconds),
    )  # fmt: skip


def _item(turn: Item, token: str, number: int) -> Item:
    """An item for one turn, with the keys of every function."""
    signal = draft(
        "outsider:came", "sig_run_a_1", payload={"from": "the outsider"}, agent=turn["agent"], is_pending=True
    )
    agents = {"agents": [turn["agent"]], "target": TARGET, "request_hash": "the outsider's"}
    limits = {"priority": 1, "max_attempts": 3, "ttl_seconds": 600.0, "timeout_seconds": 60.0, "delay_seconds": 1.0}
    version = turn.pop("version")
    waking = [activation(turn["agent"], f"turn_new_{number}", 1)]
    return {
        **turn, **agents, **limits, "token": token, "status": "success", "result": {"from": "the outsider"}, "error": None,
        "mode": "force", "reason": "the outsider's", "actor": "the outsider", "name": "mail:came", "payload": {}, "cause": None,
        "outcome": "success", "content": {"text": "the outsider's"}, "phase": "act", "signals_emitted": 0, "signals": [signal, signal],
        "version": version, "reaction": {"state": {}, "memory": {}, "activations": waking},
        "cards": [{"card_id": turn["card_id"], "kind": "note", "content": {}}], "step_id": None, "tool": "search", "kind": "tool",
        "effect": "pure", "join": "all", "after_execution": "suspend", "box_id": f"box of {number}",
        "base_box_id": turn["output_box_id"], "context_box_id": "context_1", "deferrals_max": None,
        "calls": [{"call_id": turn["call_id"], "tool": "search", "kind": "tool", "timeout_seconds": 60.0, "token": token}],
        "message_type": "turn", "result_fields": None, "parent_turn_id": turn["turn_id"], "writer_turn_id": turn["turn_id"],
        "memory_id": f"memory_{number}", "text": "the outsider's", "metadata": {}, "budget": {"tokens": 1}, "budgets": ["turn_c"], "reserve": {"tokens": 1},
        "used": {"tokens": 1}, "callback_id": f"callback_{number}", "attempt": 1, "state": "delivered", "again_seconds": None,
        "worker": "worker-1", "position": 1,
    }  # fmt: skip
