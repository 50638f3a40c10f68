"""The part of the client that sends messages to agents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from heliograph.client.arguments import (
    check_id,
    check_message,
    check_text,
)
from heliograph.client.replies import enqueue_rejection
from heliograph.client.signal_client import SignalClient
from heliograph.control.pool_names import DEFAULT_POOL
from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import amounts_of, check_budget
from heliograph.definitions.fields import check_fields
from heliograph.definitions.pools import check_pool
from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.error_text import safe_repr
from heliograph.errors import HeliographError, InvalidInput
from heliograph.run_options import check_callback
from heliograph.turn.interruptions import check_seconds

_TRACE_SECONDS = 1.0  # a read for the span of a message that is sent already


class MessageClient(SignalClient):
    """Sends messages in one project; see `Client`."""

    async def enqueue(
        self, run_id: str, agent: str, payload: Any = None, *, name: str | SignalDefinition[Any] = "user:message", turn_id: str | None = None,
        priority: str = "normal", pool: str = DEFAULT_POOL, max_attempts: int = 5, ttl_seconds: float = 3600.0,
        result_fields: Sequence[Mapping[str, Any]] = (), context_box_id: str | None = None, ui_action: bool = False,
        actor: str | None = None, callback_url: str | None = None, budget: Mapping[str, int | float] | None = None,
        parent_turn_id: str | None = None,
    ) -> str:  # fmt: skip
        """Send a message to an agent of a run, as signal `name` with `payload`. Returns the id of the turn that handles it.

        name: a name, or a definition of `define_signal`, which checks the payload; a client does not know the definitions of applications.
        Sending the same message with the same turn_id again has no effect. pool: the pool of workers that may run the turn, usually
        that of the agent, which `Heliograph.enqueue` passes. result_fields: the fields that the deliverable must have. context_box_id: the box that the agent reads with `ctx.context()`, see `boxes`. ui_action: the agent
        handles the message at once or not at all. callback_url: receives a signed POST when the turn ends, see
        `callbacks`. budget: limits the turn and everything that it delegates: tokens, usd, model_calls, tool_calls.
        parent_turn_id: the turn that sends the message, of this run or another one, for example `ctx.turn_id`: `why` then continues
        there, and messages that answer each other reach the limit of delegations.

        Raises NotFound (`unknown_agent`, `unknown_turn`), Rejected (`run_ended`, `id_conflict`, `agent_busy`, `queue_full`,
        `unknown_box`, `box_in_use`, `recursion_depth_exceeded`, `egress_rejected`), InvalidInput (`payload_too_large` and
        others).
        """
        check_id(run_id, "a run id", "/run_id")
        check_id(agent, "the name of an agent", "/agent")
        if priority not in PRIORITIES:
            raise InvalidInput(f"priority must be one of {', '.join(PRIORITIES)}, not {safe_repr(priority)}", code="invalid_enum",
                               path="/priority")  # fmt: skip
        if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or not 1 <= max_attempts <= 1000:
            raise InvalidInput(f"max_attempts must be from 1 to 1000, not {safe_repr(max_attempts)}", code="out_of_range",
                               path="/max_attempts")  # fmt: skip
        signal, content = check_message(name, payload)
        allowed = check_budget(budget)
        chosen = self._open.world.new_id("turn") if turn_id is None else check_id(turn_id, "a turn id", "/turn_id")
        tracer, began_at = await self._sender_trace(), self._open.world.now()
        [result] = await self._open.ledger.enqueue([{
            "run_id": run_id, "agent": agent, "turn_id": chosen, "name": signal, "payload": content,
            "priority": PRIORITIES.index(priority),
            **({} if check_pool("pool", pool, "/pool") == DEFAULT_POOL else {"pool": pool}), "max_attempts": max_attempts,
            "ttl_seconds": check_seconds("ttl_seconds", ttl_seconds),
            "result_fields": check_fields(result_fields) or None,
            "context_box_id": None if context_box_id is None else check_id(context_box_id, "a box id", "/context_box_id"),
            "message_type": "ui_action" if ui_action else "turn", "actor": check_text(actor, "an actor", "/actor"),
            "callback_url": None if callback_url is None else check_callback(callback_url),
            **({} if allowed is None else {"budget": amounts_of(allowed)}),
            **({} if parent_turn_id is None else {"parent_turn_id": check_id(parent_turn_id, "a turn id", "/parent_turn_id")}),
        }])  # fmt: skip
        if (rejection := enqueue_rejection(result, run_id, agent, self._name)) is not None:
            raise rejection
        if tracer.is_on and result["outcome"] == "queued":
            with suppress(HeliographError, TimeoutError):  # the message is sent: its span is worth no error and no wait
                async with asyncio.timeout(_TRACE_SECONDS):
                    memory = await self._open.reader.trace_of_run(run_id)
                tracer.enqueued(run_id, memory, agent, chosen, began_at)
        return chosen
