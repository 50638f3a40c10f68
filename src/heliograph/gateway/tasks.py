"""Tasks that other systems send: each is a run with one turn, whose ids follow from the task's key.

The commit that starts the run is the only one that accepts a task. A repeated request finds the run, from any process, and the
kernel compares the hash of both requests. The result remains with the turn until it is pruned, an hour after its end at the earliest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from heliograph.client.arguments import check_text
from heliograph.control.envelope import Envelope
from heliograph.control.payloads import DelegationPayload, ToolCallPayload
from heliograph.control.wildcard import Wildcard
from heliograph.errors import Conflict, InvalidInput, NotFound, Rejected
from heliograph.gateway.priorities import choose_priority
from heliograph.gateway.received import correlation_id_of, task_hash, task_key, turn_of_task
from heliograph.gateway.responses import RESULT_PRUNED, is_ended, response_to
from heliograph.gateway.targets import Target
from heliograph.ledger.rows import TurnRow
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.received_task import react_to_task
from heliograph.run_options import check_callback
from heliograph.runtime import Runtime
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_payload
from heliograph.turn.calls import DELEGATION
from heliograph.turn.drafts import draft_items
from heliograph.types import JsonObject
from heliograph.world.cancellation import cancel
from heliograph.world.seam import bell_keys

_DEPTH_MAX = 10_000  # above the limit of any project, and a small number for the database
_POLL_SECONDS = 0.5  # the delay of an end whose ring was lost


class Tasks:
    """Accepts tasks for one project, and waits for their ends.

    trusted: the senders vouch for the content of their tasks. critical_sources: those whose tasks may be critical.
    """

    def __init__(self, runtime: Runtime, *, trusted: bool, critical_sources: Sequence[Wildcard]):
        self._runtime = runtime
        self._trusted = trusted
        self._critical_sources = critical_sources

    async def accept(self, target: Target, envelope: Envelope, headers: Sequence[tuple[bytes, bytes]] = ()) -> str:
        """Start the turn of a task, unless an earlier request has started it; return the turn's id. headers: of the request.

        Raises Conflict (`id_conflict`) if the earlier request had another content, InvalidInput, Rejected, StoreUnavailable.
        """
        project = self._runtime.settings.project
        key = task_key(project, target.key, envelope.source, correlation_id_of(envelope))
        turn_id, run_id = turn_of_task(key), f"gateway_{key}"
        reaction = self._reaction(target, envelope, run_id, turn_id, headers)
        answer = await self._runtime.ledger.start_run(_start_item(target, envelope, run_id, reaction))
        if answer["outcome"] == "started":
            self._runtime.tracer.started(target.workflow.name, run_id, reaction)
        if answer["outcome"] == "conflict":
            raise Conflict("an earlier request with this correlation id had another content; choose another correlation id",
                           code="id_conflict", path="/envelope/signal/payload/correlation_id")  # fmt: skip
        if answer["outcome"] == "rejected":
            kind = InvalidInput if answer["code"] == "payload_too_large" else Rejected
            raise kind(answer["message"], code=answer["code"], path="/envelope/signal/payload")
        return turn_id

    async def wait_for_end(self, turn_id: str, seconds: float) -> TurnRow:
        """Return the turn once it has ended, or as it is after `seconds`. Raises NotFound (`result_pruned`), StoreUnavailable."""
        run_id = turn_id.removeprefix("turn_")
        subscription = self._runtime.world.subscribe(bell_keys(self._runtime.ledger.project, [f"log:{run_id}"]))
        until = self._runtime.world.monotonic() + seconds
        try:
            while True:
                subscription.clear()
                turn = await self._turn(turn_id)
                remaining = until - self._runtime.world.monotonic()
                if is_ended(turn) or remaining <= 0:
                    return turn
                await subscription.wait(min(remaining, _POLL_SECONDS))
        finally:
            subscription.close()

    async def respond(self, request: Envelope, turn: TurnRow) -> Envelope:
        """Build the response for a turn. Raises StoreUnavailable."""
        cards = await self._runtime.reader.cards(turn.turn_id) if is_ended(turn) else []
        content: Any = next((card.content for card in cards if card.card_id == turn.deliverable_card_id), {})
        return response_to(request, turn, content, self._runtime.world.now())

    async def _turn(self, turn_id: str) -> TurnRow:
        try:
            return await self._runtime.reader.turn(turn_id)
        except NotFound:
            raise NotFound("the task of this correlation id has ended, and its result is pruned; choose another correlation id",
                           code=RESULT_PRUNED) from None  # fmt: skip

    def _reaction(
        self, target: Target, envelope: Envelope, run_id: str, turn_id: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Reaction:
        workflow, world = target.workflow, self._runtime.world
        task = Draft(
            DELEGATION, _logged(target, envelope, turn_id), parent=0, at=world.now(), is_untrusted=not self._trusted
        )
        return react_to_task(
            workflow, run_id, target.agent, task, _turn_options(envelope, turn_id, self._critical_sources), world.now(),
            world.new_id, trace_id=envelope.trace_id, caller=self._runtime.tracer.memory_of_start(headers),
        )  # fmt: skip


def _start_item(target: Target, envelope: Envelope, run_id: str, reaction: Reaction) -> dict[str, Any]:
    workflow = target.workflow
    return {
        "run_id": run_id, "target": workflow.name, "request_hash": task_hash(envelope), "agents": sorted(workflow.agents),
        "signals": draft_items(reaction.drafts), "reaction": reaction.to_item(),
        "wakes_on_results": workflow.wakes_on_results,
    }  # fmt: skip


def _turn_options(envelope: Envelope, turn_id: str, critical_sources: Sequence[Wildcard]) -> JsonObject:
    """The parts of a turn that the request chooses. Raises EgressRejected for a malformed callback."""
    payload = envelope.signal.payload
    assert isinstance(payload, DelegationPayload | ToolCallPayload)
    options: JsonObject = {
        "turn_id": turn_id, "actor": check_text(envelope.source, "the source", "/envelope/source"), "depth": 1 + min(payload.depth or 0, _DEPTH_MAX),
    }  # fmt: skip
    if isinstance(payload, DelegationPayload):
        if payload.callback is not None:
            options["callback_url"] = _callback(payload.callback)
        if payload.priority is not None:
            options["priority"] = choose_priority(payload.priority, envelope.source, critical_sources)
    return options


def _callback(url: str) -> str:
    """Return the URL of a callback in its normal form. Raises EgressRejected, with the place of the URL."""
    try:
        return check_callback(url)
    except Rejected as error:
        error.path = "/envelope/signal/payload/callback"
        raise


def _logged(target: Target, envelope: Envelope, turn_id: str) -> JsonObject:
    """The payload of the signal `delegation` that activates the turn. Raises InvalidInput (`payload_too_large`)."""
    payload = envelope.signal.payload
    assert isinstance(payload, DelegationPayload | ToolCallPayload)
    task = payload.task if isinstance(payload, DelegationPayload) else payload.parameters
    logged: JsonObject = {
        "id": envelope.id, "target_agent": target.agent.name, "task": task, "task_id": turn_id, "status": "accepted",
        "correlation_id": correlation_id_of(envelope),
        "envelope": {"id": envelope.id, "source": envelope.source, "trace_id": envelope.trace_id, "span_id": envelope.span_id},
    }  # fmt: skip
    if isinstance(payload, DelegationPayload) and payload.context is not None:
        logged["context"] = payload.context
    if payload.parent_correlation_id is not None:
        logged["parent_correlation_id"] = payload.parent_correlation_id
    check_payload(logged, "/envelope/signal/payload")
    return logged


async def either(work: asyncio.Task[TurnRow], gone: asyncio.Task[None]) -> TurnRow | None:
    """Return the result of `work`; None if the client has gone before. Both tasks are finished afterwards."""
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        await cancel((work, gone))
