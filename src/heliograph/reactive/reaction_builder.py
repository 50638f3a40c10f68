"""A reaction under construction: activations, guards, limits, state changes and the end of the run. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from heliograph.codes import MAX_ACTIVATIONS, NOTHING_RAN, RESULT_MISSING
from heliograph.definitions.agent import AgentSpec, decided
from heliograph.errors import format_exception
from heliograph.ids import signal_id
from heliograph.reactive.ending import Ending
from heliograph.reactive.state_taint import (
    END_WHEN_RAISED,
    GUARD_RAISED,
    is_value_untrusted,
    mark_untrusted,
    quotes_exception,
    untrusted_keys,
)
from heliograph.reactive.state_update import updated_state
from heliograph.reactive.workflow import Workflow
from heliograph.records import Outcome, RunStatus, RunView
from heliograph.signals.model import Draft
from heliograph.signals.payload import copied
from heliograph.types import Json, JsonObject

END_WHEN = "end_when"  # the reason of a run whose goal is met


@dataclass(slots=True)
class Reaction:
    """The drafts, in log order, and the changes of the run that commit together.

    stops: the open turns that a terminating run stops: {turns, reason}, where turns is `all`, or `people` for the turns that
    only wait for people. keeps_taint: the kernel keeps the untrusted keys that the run has recorded, because the reaction may
    have been computed without the run's memory.
    """

    version: int
    drafts: list[Draft] = field(default_factory=list)
    state: JsonObject | None = None
    memory: dict[str, Any] | None = None
    status: RunStatus | None = None
    outcome: Outcome | None = None
    activations: list[dict[str, Any]] = field(default_factory=list)
    stops: JsonObject | None = None
    keeps_taint: bool = False

    def to_item(self) -> dict[str, Any]:
        """The `reaction` part of a kernel call's item, without the unchanged parts."""
        item: dict[str, Any] = {"version": self.version, "activations": self.activations}
        for key in ("state", "memory", "status", "outcome", "stops"):
            value = getattr(self, key)
            if value is not None:
                item[key] = value
        if self.keeps_taint:
            item["keeps_taint"] = True
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


class ReactionBuilder:
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
        self.memory: dict[str, Any] = {**new_memory(workflow, now), **copied(view.memory)}
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


def new_memory(workflow: Workflow, now: datetime) -> dict[str, Any]:
    """The memory of a new run: its agents, its joins and its counters."""
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
