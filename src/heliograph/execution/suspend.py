"""Give a turn back: until its calls are answered, or until it is due again. The gated calls `suspend` and `defer`."""

from __future__ import annotations

from typing import Any, cast

from heliograph.definitions.agent import PRIORITIES
from heliograph.definitions.budgets import least_of
from heliograph.execution.owned_turn import Held
from heliograph.execution.ownership import gate_of, owned
from heliograph.execution.project_services import Kit
from heliograph.execution.step_events import tell_step
from heliograph.execution.steps import Steps, lack_of
from heliograph.records import Claimed, Written
from heliograph.signals.model import Draft
from heliograph.signals.payload import carried
from heliograph.turn.calls import DELEGATION, Asked
from heliograph.turn.events import Postpone, Suspend
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.types import JsonObject

RELAY = "slot:relay"  # rung in this process alone: its own watchdog puts the commands on the wire


async def suspend(held: Held, effect: Suspend) -> Written:
    """Open the calls and give the turn back, in one commit with what was said (K3).

    Answers 'suspended'; 'resolved' with all waits, and the turn is still ours (K16); 'stopped' when somebody wanted that
    and the kernel has ended the turn; 'refused'. Raises TurnLost.
    """
    claimed, kit = held.claimed, held.kit
    items = [_call_item(held, asked) for asked in effect.calls]
    cards = [_card(held, asked) for asked in effect.calls if asked.kind in ("tool", "human")]

    async def send(said: int, drafts: list[dict[str, object]], first: int) -> Written:
        _place(items, drafts, first)
        return await kit.ledger.suspend({
            **gate_of(claimed), "phase": held.voice.phase, "said": said, "signals": drafts, "cards": cards,
            "join": effect.join, "calls": items, "seen": max((w.resolved_position or 0 for w in claimed.waits), default=0),
        })  # fmt: skip

    await kit.world.point("before_suspend")
    written = await held.voice.commit(send, [draft for asked in effect.calls for draft in _announced(held, asked)])
    if written.outcome == "suspended" and (tools := {asked.tool for asked in effect.calls if asked.kind == "tool"}):
        kit.ring(*([RELAY] if kit.sends_commands else sorted(f"calls:{tool}" for tool in tools)))
    if written.outcome == "suspended":
        for step_id in dict.fromkeys(asked.step_id for asked in effect.calls):
            tell_step(kit.world, claimed, step_id, held.voice.phase)
        # by call, the newest last; a turn may suspend again for calls that it has opened before
        waiting = {w.call_id: w.tool for w in claimed.waits if w.kind != "inline" and w.state == "open"}
        waiting |= {asked.call_id: asked.tool for asked in effect.calls}
        kit.state_events.emit(kit.world, claimed, "awaiting_tool_result", list(waiting.values())[-1], len(waiting))
    if written.outcome == "stopped":
        _tell_of_end(held)
    return written


async def refuse_calls(held: Held, effect: Suspend, written: Written) -> None:
    """Record those tools as not called for which the turn's budget has nothing left. Raises TurnLost, AgentFailed.

    The others may be called: its agent goes on, and asks for them again. Not so those of a step that fails fast: the first
    refusal is its failure, for which the agent finds all others of the step canceled.
    """
    assert written.budget is not None
    steps, error = Steps(held), lack_of(written)
    has_failed: set[str] = set()
    for asked in [asked for asked in effect.calls if asked.kind == "tool"][written.budget.left :]:
        if asked.step_id not in has_failed:
            await steps.refuse(asked, error)
        if asked.fails_fast:
            has_failed.add(asked.step_id)


async def postpone(held: Held, effect: Postpone) -> Written:
    """Say what is still to be said, and put the turn off (L0-64).

    Answers 'deferred', or 'exhausted' or 'stopped': then the kernel has ended the turn. Raises TurnLost.
    """
    claimed, kit = held.claimed, held.kit
    await held.voice.flush()
    await kit.world.point("before_defer")
    trust: JsonObject = {"trust": UNTRUSTED} if held.taint.marks else {}  # the reason may quote what the turn has read
    written = owned(await kit.ledger.defer({
        **gate_of(claimed), "reason": effect.reason, "delay_seconds": effect.seconds, "defers_max": effect.at_most, **trust,
    }))  # fmt: skip
    if written.outcome in ("exhausted", "stopped"):
        _tell_of_end(held)
    return written


def _tell_of_end(held: Held) -> None:
    """The kernel has ended the turn: somebody follows its run, its run owes a reaction, and a parent may wait for it."""
    claimed = held.claimed
    held.kit.ring(f"log:{claimed.run_id}", f"owed:{claimed.target}", f"report:{claimed.target}")


def _announced(held: Held, asked: Asked) -> list[Draft]:
    """What the log says of a call. A delegation is followed by the activation of its child, which answers to it."""
    claimed, now = held.claimed, held.kit.world.now()
    if asked.kind != "child":
        said: JsonObject = {"id": asked.call_id, "name": asked.tool, "input": carried(asked.input)}
        return [Draft("tool:call", said, claimed.agent, claimed.activation_id, now)]
    task: JsonObject = {"id": asked.call_id, "target_agent": asked.tool, "task": asked.input, "status": "accepted",
                        "priority": PRIORITIES[_priority(held, asked)]}  # fmt: skip
    if asked.context is not None:
        task["context"] = asked.context
    if held.taint.marks:
        task["trust"] = UNTRUSTED
    return [Draft(DELEGATION, task, claimed.agent, claimed.activation_id, now),
            Draft("agent:activated", {"agent": asked.tool}, asked.tool, claimed.activation_id, now)]  # fmt: skip


def _place(items: list[dict[str, Any]], drafts: list[dict[str, object]], first: int) -> None:
    """Point each child at its delegation and activation, which stand among the drafts from `first` on, in order."""
    children = (item["child"] for item in items if item["child"] is not None)
    for place in range(first, len(drafts)):
        if drafts[place]["name"] == DELEGATION:
            child = next(children)
            child["cause"], child["activation"] = place, place + 1
            drafts[place]["payload"] = {**cast(JsonObject, drafts[place]["payload"]), "task_id": child["turn_id"]}
            drafts[place + 1]["parent"] = place


def _call_item(held: Held, asked: Asked) -> dict[str, Any]:
    """One call as the kernel takes it; where a child's delegation stands is filled in by `_place`."""
    kit = held.kit
    item: dict[str, Any] = {
        "call_id": asked.call_id, "step_id": asked.step_id, "tool": asked.tool, "kind": asked.kind,
        "effect": asked.effect, "timeout_seconds": asked.timeout_seconds, "token": None,
        "after_execution": asked.after, "may_override": asked.may_override, "fails_fast": asked.fails_fast,
        "is_trusted": asked.is_trusted, "taint": list(held.taint.sources) or None,
        "command": None, "child": None,
    }  # fmt: skip
    if asked.kind == "tool":
        item["token"] = _new_token(kit) if asked.needs_token else None
        item["command"] = {
            # also where this worker has no wire for it: another one may have it
            "subject": f"cmd.tool.{asked.tool}", "body": _command(held.claimed, asked),
        }  # fmt: skip
    elif asked.kind == "child":
        limits = held.workflow.agents[asked.tool].limits
        if (budget := least_of(limits.pop("budget", None), asked.budget)) is not None:
            limits["budget"] = budget
        item["child"] = {
            "agent": asked.tool, "instance": asked.instance, "turn_id": kit.world.new_id("turn"),
            "context_box_id": asked.context_box_id, **limits, "priority": _priority(held, asked),
            "callback_url": asked.callback_url,
        }  # fmt: skip
    return item


def _priority(held: Held, asked: Asked) -> int:
    return held.workflow.agents[asked.tool].priority if asked.priority is None else asked.priority


def _command(claimed: Claimed, asked: Asked) -> JsonObject:
    """What a tool is told (L0-51); the kernel adds the token, for as long as the call is open."""
    return {
        "tool_call_id": asked.call_id, "agent_turn_id": claimed.turn_id, "turn_epoch": claimed.epoch,
        "agent_id": claimed.agent_id, "run_id": claimed.run_id, "step_id": asked.step_id, "tool_name": asked.tool,
        "arguments": asked.input, "after_execution": asked.after,
    }  # fmt: skip


def _card(held: Held, asked: Asked) -> JsonObject:
    """The card of a call (L0-50), under an id that a second try derives again."""
    claimed = held.claimed
    content: JsonObject = {
        "tool_call_id": asked.call_id, "step_id": asked.step_id, "tool_name": asked.tool, "arguments": asked.input,
        "after_execution": asked.after,
    }  # fmt: skip
    if held.taint.marks:
        content["trust"] = UNTRUSTED
    return {
        "card_id": f"card_{claimed.turn_id}_{claimed.epoch}_{asked.call_id}", "kind": "tool.call", "content": content,
    }  # fmt: skip


def _new_token(kit: Kit) -> str:
    """Two ids hold 160 random bits between them: enough to be a secret (S14)."""
    return kit.world.new_id("token") + kit.world.new_id("token")[-16:]
