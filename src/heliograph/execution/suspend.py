"""Release a turn: suspend it until its calls have results, or defer it to a later time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import least_of
from heliograph.definitions.circuit_breakers import breaker_item
from heliograph.execution.call_routes import destination_of_call, is_tool_call, priority_of_delegation, rates_of_call
from heliograph.execution.gateway_calls import gateway_command, gateway_pool
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.project_services import ProjectServices
from heliograph.execution.step_events import emit_step_event
from heliograph.execution.step_recorder import StepRecorder, budget_error, circuit_error, rate_error
from heliograph.records import Claimed, WriteResult
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.turn.calls import DELEGATION, GATEWAY, CallRequest, attempt_of
from heliograph.turn.events import DeferTurn, SuspendTurn
from heliograph.turn.taint import Taint
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.types import JsonObject
from heliograph.world.seam import World

if TYPE_CHECKING:
    from heliograph.control.routing import Destination  # slow to import, and most applications have no routes

RELAY = "slot:relay"  # rung in this process only: its watchdog sends the commands


async def suspend(owned: OwnedTurn, services: ProjectServices, effect: SuspendTurn) -> WriteResult:
    """Open the calls and release the turn, in one commit with the pending signals.

    The outcome is 'suspended'; 'resolved', with all waits, where this worker still owns the turn because all results are
    there; 'stopped', where the kernel ended the turn; 'stopping', where this worker has to end it; or 'rejected'. Raises TurnLost.
    """
    claimed, world = owned.claimed, owned.world
    destinations = {request.call_id: destination_of_call(owned.workflow, request) for request in effect.calls}
    items = [_call_item(owned, request, destinations[request.call_id]) for request in effect.calls]
    cards = [_card(claimed, owned.taint, request) for request in effect.calls if request.kind in ("tool", "human")]

    async def send(signals_emitted: int, drafts: list[dict[str, object]], first: int) -> WriteResult:
        _place(items, drafts, first)
        return await owned.ledger.suspend({
            "phase": owned.signals.phase, "signals_emitted": signals_emitted, "signals": drafts, "cards": cards, "join": effect.join,
            "calls": items, "seen": max((w.resolved_position or 0 for w in claimed.waits), default=0), **owned.termination,
        })  # fmt: skip

    await world.failpoint("before_suspend")
    result = await owned.signals.commit(
        send,
        [draft for request in effect.calls for draft in _call_signals(owned, request, destinations[request.call_id])],
    )
    if result.outcome == "suspended" and (tools := {item["tool"] for item in items if item["kind"] == "tool"}):
        services.ring(*([RELAY] if services.sends_commands else []),
                      *sorted(f"calls:{tool}" for tool in tools if tool == GATEWAY or not services.sends_commands))  # fmt: skip
    if result.outcome == "suspended":
        for item in items:
            if (child := item["child"]) is not None:
                owned.trace.delegated(item["call_id"], child["agent"], child["turn_id"])
        for step_id in dict.fromkeys(request.step_id for request in effect.calls):
            emit_step_event(world, claimed, step_id, owned.signals.phase)
        # by call, the newest last; a turn may suspend again for calls that it opened before
        waiting = {w.call_id: w.tool for w in claimed.waits if w.kind != "inline" and w.state == "open"}
        waiting |= {request.call_id: request.tool for request in effect.calls}
        owned.state_events.emit(world, claimed, "awaiting_tool_result", list(waiting.values())[-1], len(waiting))
    if result.outcome == "stopped":
        _ring_for_end(services, claimed)
    return result


async def reject_calls(owned: OwnedTurn, effect: SuspendTurn, result: WriteResult) -> None:
    """Record the rejection of the tool calls that exceed the turn's budget. Raises TurnLost, AgentFailed.

    The agent continues and makes the other calls again. In a step that fails fast, the first rejection is the failure that
    cancels the rest.
    """
    assert result.budget is not None
    steps, error = StepRecorder(owned), budget_error(result)
    has_failed: set[str] = set()
    for request in [each for each in effect.calls if is_tool_call(owned.workflow, each)][result.budget.remaining :]:
        if request.step_id not in has_failed:
            await steps.reject(request, error)
        if request.fails_fast:
            has_failed.add(request.step_id)


async def reject_not_admitted(owned: OwnedTurn, effect: SuspendTurn, result: WriteResult) -> None:
    """Record the rejection of the calls that their circuit breakers or rate limits do not admit. Raises TurnLost, AgentFailed.

    As in `reject_calls`, the agent continues and makes the other calls again.
    """
    steps = StepRecorder(owned)
    has_failed: set[str] = set()
    for request in effect.calls:
        if (rejected := result.calls.get(request.call_id)) is None:
            continue
        if request.step_id not in has_failed:
            await steps.reject(request, rate_error(rejected.message, rejected.rate) if rejected.rate is not None else
                               circuit_error(rejected.message, rejected.circuit))  # fmt: skip
        if request.fails_fast and request.fallback is None:
            has_failed.add(request.step_id)


async def defer(owned: OwnedTurn, services: ProjectServices, effect: DeferTurn) -> WriteResult:
    """Commit the pending signals, and defer the turn.

    The outcome is 'deferred'; 'exhausted' or 'stopped', where the kernel ended the turn; or 'stopping', where this worker has
    to end it. Raises TurnLost.
    """
    await owned.signals.flush()
    await owned.world.failpoint("before_defer")
    trust: JsonObject = {"trust": UNTRUSTED} if owned.taint.is_tainted else {}  # the reason may quote untrusted content
    result = await owned.ledger.defer({
        "reason": effect.reason, "delay_seconds": effect.seconds, "deferrals_max": effect.at_most, **trust, **owned.termination,
    })  # fmt: skip
    if result.outcome in ("exhausted", "stopped"):
        _ring_for_end(services, owned.claimed)
    return result


def _ring_for_end(services: ProjectServices, claimed: Claimed) -> None:
    """Announce that the kernel ended the turn: to observers of the run, to reactions, and to a waiting parent."""
    services.ring(f"log:{claimed.run_id}", f"reaction:{claimed.target}", f"report:{claimed.target}")


def _call_signals(owned: OwnedTurn, request: CallRequest, destination: Destination | None) -> list[Draft]:
    """The signals of a call. The activation of a child follows its delegation."""
    claimed, now = owned.claimed, owned.world.now()
    gateway: JsonObject = {} if destination is None or destination.gateway is None else {"gateway": destination.gateway}
    if request.kind != "child":
        payload: JsonObject = {
            "id": request.call_id,
            "name": request.tool,
            "input": truncated(request.input),
            **gateway,
        }
        return [Draft("tool:call", payload | attempt_of(request), claimed.agent, claimed.activation_id, now)]
    task: JsonObject = {"id": request.call_id, "target_agent": request.tool, "task": request.input, "status": "accepted",
                        **_priority(owned, request, destination), **gateway, **attempt_of(request)}  # fmt: skip
    if request.context is not None:
        task["context"] = request.context
    if owned.taint.is_tainted:
        task["trust"] = UNTRUSTED
    sent = Draft(DELEGATION, task, claimed.agent, claimed.activation_id, now)
    if gateway:
        return [sent]
    return [sent,
            Draft("agent:activated", {"agent": request.tool}, request.tool, claimed.activation_id, now)]  # fmt: skip


def _priority(owned: OwnedTurn, request: CallRequest, destination: Destination | None) -> JsonObject:
    """The priority of a delegation; the gateway decides about one without."""
    if destination is not None and destination.gateway is not None and request.priority is None:
        return {}
    return {"priority": PRIORITIES[priority_of_delegation(owned.workflow, request, destination)]}


def _place(items: list[dict[str, Any]], drafts: list[dict[str, object]], first: int) -> None:
    """Point each child at its delegation and activation among the drafts from `first` on."""
    children = (item["child"] for item in items if item["child"] is not None)
    for place in range(first, len(drafts)):
        if drafts[place]["name"] == DELEGATION and "gateway" not in cast(JsonObject, drafts[place]["payload"]):
            child = next(children)
            child["cause"], child["activation"] = place, place + 1
            drafts[place]["payload"] = {**cast(JsonObject, drafts[place]["payload"]), "task_id": child["turn_id"]}
            drafts[place + 1]["parent"] = place


def _call_item(owned: OwnedTurn, request: CallRequest, destination: Destination | None) -> dict[str, Any]:
    """The kernel's item for one call and its route; `_place` adds the place of a child's delegation."""
    item: dict[str, Any] = {
        "call_id": request.call_id, "step_id": request.step_id, "tool": request.tool, "kind": request.kind,
        "effect": request.effect, "timeout_seconds": request.timeout_seconds, "token": None,
        "after_execution": request.after, "may_override": request.may_override, "fails_fast": request.fails_fast,
        "is_trusted": request.is_trusted, "taint": list(owned.taint.sources) or None,
        "command": None, "child": None,
    }  # fmt: skip
    if request.circuit_breaker is not None:
        item["circuit_breaker"] = breaker_item(request.circuit_breaker, request.kind, request.tool)
    if rates := rates_of_call(owned.workflow, request, destination):
        item["rates"] = [rate.item() for rate in rates]
    if destination is not None and destination.gateway is not None:
        body = _command(owned, request) | gateway_command(owned, request, destination)
        return item | {
            "kind": "tool", "tool": GATEWAY, "token": _new_token(owned.world),
            "command": {"subject": None, "body": body, "pool": gateway_pool(destination.gateway)},
            "is_trusted": request.is_trusted and request.kind == "tool",
        }  # fmt: skip
    if request.kind == "tool":
        item["token"] = _new_token(owned.world) if request.needs_token else None
        item["command"] = {
            # also without a wire in this worker: another worker may have it
            "subject": f"cmd.tool.{request.tool}", "body": _command(owned, request) | _route_of_command(destination),
            "pool": None if destination is None else destination.queue,
            "priority": None if destination is None or destination.priority is None else PRIORITIES.index(destination.priority),
        }  # fmt: skip
    elif request.kind == "child":
        limits = owned.workflow.agents[request.tool].limits
        if (budget := least_of(limits.pop("budget", None), request.budget)) is not None:
            limits["budget"] = budget
        item["child"] = {
            "agent": request.tool, "instance": request.instance, "turn_id": owned.world.new_id("turn"),
            "context_box_id": request.context_box_id, **limits, "callback_url": request.callback_url,
            "priority": priority_of_delegation(owned.workflow, request, destination),
            **({} if destination is None or destination.queue is None else {"pool": destination.queue}),
        }  # fmt: skip
    return item


def _command(owned: OwnedTurn, request: CallRequest) -> JsonObject:
    """The command for a tool (L0-51). The kernel adds what its call has, and the token while the call is open.

    trace: headers, if this worker has telemetry.
    """
    headers = owned.trace.headers_of(request.call_id)
    command: JsonObject = {"arguments": request.input}
    return {**command, "trace": {**headers}} if headers else command


def _route_of_command(destination: Destination | None) -> JsonObject:
    """The queue and the priority of a routed command, for tools behind a message system."""
    if destination is None or destination.queue is None:
        return {}
    route: JsonObject = {"queue": destination.queue}
    return route if destination.priority is None else {**route, "priority": destination.priority}


def _card(claimed: Claimed, taint: Taint, request: CallRequest) -> JsonObject:
    """The card of a call (L0-50); its id is the same when the commit is repeated."""
    content: JsonObject = {
        "tool_call_id": request.call_id, "step_id": request.step_id, "tool_name": request.tool, "arguments": request.input,
        "after_execution": request.after,
    }  # fmt: skip
    if taint.is_tainted:
        content["trust"] = UNTRUSTED
    return {
        "card_id": f"card_{claimed.turn_id}_{claimed.epoch}_{request.call_id}", "kind": "tool.call", "content": content,
    }  # fmt: skip


def _new_token(world: World) -> str:
    """A secret of 160 random bits (S14), made of two ids: recordings of earlier versions have two, so they remain valid."""
    return world.new_id("token") + world.new_id("token")[-16:]
