"""Reactions: the agents that new signals activate, the changes of the state, and the end of the run. Pure.

A reaction is computed against one version of a run and commits only against that version (K24); after a conflict it is
computed again. Its order is fixed, so the same run view and ending always give the same reaction: the turn's drafts,
agent:completed or agent:failed, state changes, the agent's own signals, and then the activations that each of these causes,
ordered by the agents' names (G-47).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from heliograph.codes import MAX_ACTIVATIONS, NOTHING_RAN, RESULT_MISSING
from heliograph.definitions.agent import AgentSpec, decided
from heliograph.errors import AgentFailed, format_exception
from heliograph.ids import signal_id
from heliograph.reactive.state_taint import (
    END_WHEN_RAISED,
    GUARD_RAISED,
    is_value_untrusted,
    mark_untrusted,
    quotes_exception,
    readable_untrusted_keys,
    untrusted_keys,
)
from heliograph.reactive.state_update import updated_state
from heliograph.reactive.workflow import Workflow
from heliograph.records import Outcome, PendingRun, RunFailure, RunStatus, RunView
from heliograph.signals.model import Draft
from heliograph.signals.payload import copied, truncated
from heliograph.types import Json, JsonObject

END_WHEN = "end_when"  # the reason of a run whose goal is met


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a turn, as reported by its owner.

    drafts: signals that the turn emitted and that are not recorded yet. emitted: the agent's own signals; if empty, all
    declared signals are emitted with the output. is_untrusted: the turn has read untrusted content, so its output is
    untrusted.
    """

    agent: str
    turn_id: str
    activation_id: str
    outcome: Outcome
    card_id: str
    output: Json = None
    error: JsonObject | None = None
    drafts: tuple[Draft, ...] = ()
    emitted: tuple[tuple[str, Json], ...] = ()
    usage: tuple[int, int] = (0, 0)
    is_untrusted: bool = False


@dataclass(slots=True)
class Reaction:
    """The drafts, in log order, and the changes of the run that commit together.

    stops: the open turns that a terminating run stops: {turns, reason}, where turns is `all`, or `people` for the turns that
    only wait for people.
    """

    version: int
    drafts: list[Draft] = field(default_factory=list)
    state: JsonObject | None = None
    memory: dict[str, Any] | None = None
    status: RunStatus | None = None
    outcome: Outcome | None = None
    activations: list[dict[str, Any]] = field(default_factory=list)
    stops: JsonObject | None = None

    def to_item(self) -> dict[str, Any]:
        """The `reaction` part of a kernel call's item, without the unchanged parts."""
        item: dict[str, Any] = {"version": self.version, "activations": self.activations}
        for key in ("state", "memory", "status", "outcome", "stops"):
            value = getattr(self, key)
            if value is not None:
                item[key] = value
        return item

    def applied_to(self, view: RunView, closed: int) -> RunView:
        """The run view after this reaction has committed and ended `closed` turns."""
        return RunView(
            view.run_id,
            self.status or view.status,
            view.version + 1,
            view.state if self.state is None else self.state,
            view.memory if self.memory is None else self.memory,
            view.open_turns - closed + len(self.activations),
            view.owed,
            view.activations + len(self.activations),
        )


def react_to_start(
    workflow: Workflow, run_id: str, state: JsonObject, now: datetime, new_id: Callable[[str], str]
) -> Reaction:
    """The first reaction of a run: workflow:start {state}, and the agents that it activates."""
    view = RunView(run_id, "running", 0, state, _new_memory(workflow, now), 0, 0, 0)
    builder = _Builder(workflow, view, now, new_id, closing=0)
    builder.reaction.state = state
    builder.add(Draft("workflow:start", {"state": state}, at=now))
    return builder.finished()


def react_to_ending(
    workflow: Workflow, view: RunView, ending: Ending, now: datetime, new_id: Callable[[str], str]
) -> Reaction:
    """The reaction to the end of a turn.

    Raises AgentFailed if the output does not match the state; the caller then ends the turn as failed.
    """
    builder = _Builder(workflow, view, now, new_id, closing=1)
    for draft in ending.drafts:
        builder.add(draft)
    builder.count(ending)
    if ending.outcome in ("success", "partial"):  # an output that a limit cut short is still the agent's output
        agent = workflow.agents[ending.agent]
        done = builder.add(_completed(ending, now))
        is_partial = ending.outcome == "partial"
        try:
            if not is_partial or ending.output not in (None, ""):  # the limit may come before any output
                builder.update(agent, ending.output, parent=done, is_untrusted=ending.is_untrusted)
        except AgentFailed:
            if not is_partial:  # a partial output changes the state only if it matches
                raise
        for name, payload in ending.emitted or [(name, _truncated_output(ending)) for name in agent.emits]:
            builder.add(Draft(name, payload, ending.agent, done, now, ending.is_untrusted))
    else:
        failure: JsonObject = {"agent": ending.agent, "outcome": ending.outcome, "error": ending.error,
                               "deliverable_card_id": ending.card_id}  # fmt: skip
        builder.add(Draft("agent:failed", failure, ending.agent, ending.activation_id, now, ending.is_untrusted))
    return builder.finished()


def react_to_pending(
    workflow: Workflow,
    pending: PendingRun,
    now: datetime,
    new_id: Callable[[str], str],
    failure: RunFailure | None = None,
) -> Reaction:
    """The reaction to recorded signals without a reaction. The kernel itself ended the turn of each agent:failed among them.

    failure: ignore the signals, and let the run fail for this reason: the way out if the store keeps rejecting a run's
    reaction, or if the run's memory is damaged. The run gets a new memory, which keeps only the untrusted keys of the state.
    """
    run = pending.run
    if failure is not None:
        memory = _new_memory(workflow, now)
        mark_untrusted(memory, readable_untrusted_keys(run.memory, run.state))
        run = msgspec.structs.replace(run, memory=memory)
    builder = _Builder(workflow, run, now, new_id, closing=0, pending=0)
    if failure is not None:
        builder.stop_because, builder.memory["code"] = failure.message, failure.code
    for signal in pending.signals:
        if signal.name == "agent:failed":
            builder.memory["turns"] += 1
            is_canceled = isinstance(signal.payload, dict) and signal.payload.get("outcome") == "canceled"
            builder.memory["failed"] += not is_canceled
        parent = signal_id(pending.run.run_id, signal.seq)
        builder.matched.append((parent, {"seq": signal.seq}, signal.name, signal.payload, signal.agent))
    return builder.finished()


class _Builder:
    """One reaction under construction."""

    def __init__(
        self,
        workflow: Workflow,
        view: RunView,
        now: datetime,
        new_id: Callable[[str], str],
        *,
        closing: int,
        pending: int | None = None,
    ):
        self.workflow = workflow
        self.view = view
        self.now = now
        self.new_id = new_id
        self.open_turns = view.open_turns - closing
        self.pending = view.owed if pending is None else pending
        self.state = view.state
        # a memory of an earlier version, or one that was edited, may lack entries: these are as in a new run
        self.memory: dict[str, Any] = {**_new_memory(workflow, now), **copied(view.memory)}
        self.stop_because: str | None = None
        self.reaction = Reaction(view.version)
        # signals to react to: (parent for what it causes, cause for an activation, name, payload, agent)
        self.matched: list[tuple[int | str, Any, str, Json, str | None]] = []

    def add(self, draft: Draft) -> int:
        index = len(self.reaction.drafts)
        self.reaction.drafts.append(draft)
        self.matched.append((index, index, draft.name, draft.payload, draft.agent))
        return index

    def count(self, ending: Ending) -> None:
        self.memory["turns"] += 1
        self.memory["failed"] += ending.outcome not in ("success", "partial", "canceled")
        is_lacking = ending.outcome == "partial" or (ending.error or {}).get("code") == RESULT_MISSING
        self.memory["partial"] = self.memory.get("partial", 0) + is_lacking
        usage = self.memory["usage"]
        usage["inputTokens"] += ending.usage[0]
        usage["outputTokens"] += ending.usage[1]

    def update(self, agent: AgentSpec, output: Json, parent: int, *, is_untrusted: bool) -> None:
        folded, after = updated_state(self.workflow, agent, self.state, output)
        before = untrusted_keys(self.memory)
        untrusted = set(before & after.keys())
        for key in sorted(after):
            if key in self.state and after[key] == self.state[key]:
                continue
            is_marked = is_value_untrusted(
                key, before, is_untrusted=is_untrusted,
                is_reduced=key in agent.updates and key in self.workflow.reducers,
                is_derived=key not in agent.updates or after[key] != folded.get(key),
            )  # fmt: skip
            untrusted = untrusted | {key} if is_marked else untrusted - {key}
            self.add(Draft(f"state:{key}:changed", {"value": after[key]}, agent.name, parent, self.now, is_marked))
            self.reaction.state = after
        if untrusted != before:
            mark_untrusted(self.memory, untrusted)
        self.state = after

    def finished(self) -> Reaction:
        """React to all signals in order, then decide whether the run is over."""
        is_running = self.view.status == "running"
        reason = self.stop_because or (self._stop_reason() if is_running else None)
        index = 0
        while index < len(self.matched) and is_running and reason is None:
            reason = self._match(*self.matched[index])
            index += 1
        if reason is None and is_running:
            reason = self._limit_reason(0)  # delegations are turns that no signal activated
        if reason is not None:
            self.reaction.status = "terminating"
            self.memory["stopped_by"] = reason
            if self.open_turns + len(self.reaction.activations):
                self.reaction.stops = {"turns": "people" if reason == END_WHEN else "all", "reason": reason}
                is_untrusted = quotes_exception(reason)
                self.add(
                    Draft("workflow:terminating", {"reason": reason}, None, self._last_parent(), self.now, is_untrusted)
                )
        if self.open_turns + len(self.reaction.activations) == 0 and self.pending == 0:
            self._end()
        self.reaction.memory = self.memory
        return self.reaction

    def _stop_reason(self) -> str | None:
        end_when = self.workflow.end_when
        if end_when is None:
            return None
        try:
            return END_WHEN if decided(end_when(self.workflow.shape.load(self.state))) else None
        except Exception as error:
            return f"{END_WHEN_RAISED} {format_exception(error)}"

    def _match(self, parent: int | str, cause: Any, name: str, payload: Json, agent: str | None) -> str | None:
        """Activate or skip the agents subscribed to this signal. Returns the reason to stop the run, if there is one."""
        wanted = self.workflow.wakes.match(name)
        if not wanted:
            return None
        for woken in sorted({w[0] for w in wanted}):
            if name in ("agent:activated", "agent:skipped") and agent == woken:
                continue  # an agent's own activation does not activate it again
            if not self._is_due(woken, [n for w, n in wanted if w == woken]):
                continue
            reason = self._guard(self.workflow.agents[woken], parent, name, payload, agent)
            if reason is not None:
                if name == "agent:skipped":
                    continue  # a skip does not cause a skip: two agents that skip each other would loop for ever
                self.memory["skipped"] += 1
                skip: JsonObject = {"agent": woken, "reason": reason}
                self.add(Draft("agent:skipped", skip, woken, parent, self.now, quotes_exception(reason)))
            elif (limit := self._limit_reason(1)) is not None:
                return limit
            else:
                self._activate(self.workflow.agents[woken], parent, cause)
        return None

    def _limit_reason(self, more: int) -> str | None:
        """The reason to stop a run that activates `more` turns, if it exceeds its limit: a guard against loops.

        A message from outside resets the count, so a conversation may last for any number of turns.
        """
        before = self.memory.get("activations_before", 0)
        if self.view.activations + len(self.reaction.activations) - before + more <= self.workflow.max_activations:
            return None
        self.memory["code"] = MAX_ACTIVATIONS
        return f"activation limit of {self.workflow.max_activations} reached"

    def _is_due(self, name: str, met: list[int]) -> bool:
        """One pattern of activate_on is enough; the patterns of activate_when_all are collected until all have matched."""
        if -1 in met:
            return True
        joins: dict[str, list[int]] = self.memory["joins"]
        collected = sorted({*joins.get(name, []), *met})
        is_complete = len(collected) == len(self.workflow.agents[name].activate_when_all)
        joins[name] = [] if is_complete else collected
        return is_complete

    def _guard(self, agent: AgentSpec, parent: int | str, name: str, payload: Json, source: str | None) -> str | None:
        """None if the agent may run, otherwise the reason for skipping it."""
        if agent.name not in self.memory["agents"]:
            return "added after this run began"
        if agent.when is None:
            return None
        try:
            state = self.workflow.shape.load(self.state)
            # a copy, because a guard may change it
            signal = Draft(name, copied(payload), source, parent, self.now)
            allowed = decided(agent.when(state) if agent.when_arity == 1 else agent.when(state, signal))
        except Exception as error:
            return f"{GUARD_RAISED} {format_exception(error)}"
        return None if allowed else "when guard false"

    def _activate(self, agent: AgentSpec, parent: int | str, cause: Any) -> None:
        activation = self.add(Draft("agent:activated", {"agent": agent.name}, agent.name, parent, self.now))
        self.reaction.activations.append({
            "agent": agent.name, "turn_id": self.new_id("turn"), "cause": cause, "activation": activation,
            **agent.limits,
        })  # fmt: skip

    def _last_parent(self) -> int | str:
        """The parent of the end: the newest draft, or else the last signal to react to, or else the root."""
        if self.reaction.drafts:
            return len(self.reaction.drafts) - 1
        return self.matched[-1][0] if self.matched else signal_id(self.view.run_id, 1)

    def _end(self) -> None:
        stopped_by, code = self.memory.get("stopped_by"), self.memory.get("code")
        outcome: Outcome
        if self.memory.get("is_canceled"):  # the kernel recorded that a person stopped the run
            outcome = "canceled"
        elif stopped_by != END_WHEN and (stopped_by is not None or self.memory["failed"]):
            outcome = "failed"
        elif stopped_by is None and not self.memory["turns"]:
            outcome, code, stopped_by = "failed", NOTHING_RAN, self._why_nothing_ran()
        else:  # a goal that was not met (G-12) and a turn without its whole result make the run partial
            is_met = stopped_by == END_WHEN or self.workflow.end_when is None
            outcome = "success" if is_met and not self.memory.get("partial") else "partial"
        self.reaction.status = "ended"
        self.reaction.outcome = outcome
        payload: JsonObject = {"state": self.state, "outcome": outcome, "metrics": self._metrics()}
        if stopped_by is not None:
            payload["reason"] = stopped_by
        if code is not None:
            payload["code"] = code
        is_untrusted = bool(untrusted_keys(self.memory)) or quotes_exception(stopped_by)
        self.add(Draft("workflow:end", payload, None, self._last_parent(), self.now, is_untrusted))

    def _why_nothing_ran(self) -> str:
        skipped: list[Any] = [draft.payload for draft in self.reaction.drafts if draft.name == "agent:skipped"]
        if skipped:
            return "no agent ran: " + ", ".join(f"{each['agent']} was skipped ({each['reason']})" for each in skipped)
        return "no agent ran: none is activated by workflow:start"

    def _metrics(self) -> JsonObject:
        started_at = datetime.fromisoformat(self.memory["started_at"])
        return {
            "turns": self.memory["turns"], "failed": self.memory["failed"], "skipped": self.memory["skipped"],
            "activations": self.view.activations + len(self.reaction.activations), "usage": dict(self.memory["usage"]),
            "duration_ms": max(0, round((self.now - started_at).total_seconds() * 1000)),
        }  # fmt: skip


def _new_memory(workflow: Workflow, now: datetime) -> dict[str, Any]:
    return {
        "started_at": now.isoformat(),
        "agents": sorted(workflow.agents),  # a run keeps the agents that it started with, also after a deployment
        "joins": {},
        "turns": 0,
        "failed": 0,
        "partial": 0,
        "skipped": 0,
        "usage": {"inputTokens": 0, "outputTokens": 0},
    }


def _completed(ending: Ending, now: datetime) -> Draft:
    payload: JsonObject = {"agent": ending.agent, **_truncated_output(ending)}
    return Draft("agent:completed", payload, ending.agent, ending.activation_id, now, ending.is_untrusted)


def _truncated_output(ending: Ending) -> JsonObject:
    """The output for a signal, with its card; an output that is too large for the log is only in the card."""
    return {"output": truncated(ending.output), "deliverable_card_id": ending.card_id}
