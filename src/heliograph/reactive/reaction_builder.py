"""A reaction under construction: which agents new signals activate, by their patterns, joins, guards and limits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from heliograph.codes import MAX_ACTIVATIONS
from heliograph.definitions.agent import AgentSpec, decided
from heliograph.error_text import format_exception
from heliograph.ids import signal_id
from heliograph.reactive.guard import NO_GUARD, GuardResult, evaluate_guard
from heliograph.reactive.joined_signals import JoinedSignals
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.run_end import END_WHEN, end_of_run
from heliograph.reactive.run_memory import (
    OPEN,
    SESSION,
    STOPPED_BY,
    complete_memory,
    counted_activations,
    is_active,
    metrics_of,
    stored_memory,
)
from heliograph.reactive.state_taint import (
    END_WHEN_RAISED,
    is_value_untrusted,
    mark_untrusted,
    quotes_exception,
    untrusted_keys,
)
from heliograph.reactive.state_update import updated_state
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.signals.model import Draft
from heliograph.signals.payload import copied
from heliograph.signals.state_change import change_payload
from heliograph.signals.value_parts import is_unchanged
from heliograph.types import Json, JsonObject


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
        base: int | None = None,
    ):
        """base: the position before the first draft, for the first reaction of a run; of others it is known when they commit."""
        self.workflow = workflow
        self._wakes = workflow.wakes.match
        self.view = view
        self.now = now
        self.new_id = new_id
        self.open_turns = view.open_turns - closing
        self.pending = view.pending_reactions if pending is None else pending
        self.state = view.state
        self.memory = complete_memory(view.memory, workflow, now)
        self._joined = JoinedSignals(self.memory, view.run_id)
        self._base = base
        self.stop_because: str | None = None
        self.reaction = Reaction(view.version)
        # signals to react to: (parent of their consequences, cause for an activation, name, payload, agent)
        self.matched: list[tuple[int | str, Any, str, Json, str | None]] = []

    def add(self, draft: Draft) -> int:
        """Add a signal to the reaction, and react to it as well; return its index."""
        index = len(self.reaction.drafts)
        self.reaction.drafts.append(draft)
        if self._wakes(draft.name):  # most signals wake no agent
            self.matched.append((index, index, draft.name, draft.payload, draft.agent))
        return index

    def add_all(self, drafts: Sequence[Draft]) -> None:
        """Add signals as `add` does."""
        first = len(self.reaction.drafts)
        self.reaction.drafts += drafts
        for index, draft in enumerate(drafts, first):
            if self._wakes(draft.name):
                self.matched.append((index, index, draft.name, draft.payload, draft.agent))

    def update(self, agent: AgentSpec, output: Json, parent: int, *, is_untrusted: bool, is_payload: bool) -> None:
        """Change the state by the output of a turn. is_payload: as of `fold_changes`. Raises AgentFailed for an output that does not match the state."""
        folded, after = updated_state(self.workflow, agent, self.state, output, is_payload=is_payload)
        kept = {key: value for key, value in self.state.items() if key in after and is_unchanged(value, after[key])}
        after = {**after, **kept}  # also the form of their numbers: nothing in the log would change 1 to 1.0
        before = untrusted_keys(self.memory)
        untrusted = set(before & after.keys())
        for key in sorted(after):
            if key in kept:
                continue
            is_marked = is_value_untrusted(
                key, before, is_untrusted=is_untrusted,
                is_reduced=key in agent.updates and key in self.workflow.reducers,
                is_derived=key not in agent.updates or after[key] != folded.get(key),
            )  # fmt: skip
            untrusted = untrusted | {key} if is_marked else untrusted - {key}
            change = change_payload(self.state.get(key), after[key])
            self.add(Draft(f"state:{key}:changed", change, agent.name, parent, self.now, is_marked))
            self.reaction.state = after
        if untrusted != before:
            mark_untrusted(self.memory, untrusted)
        self.state = after

    def activate(
        self,
        agent: AgentSpec,
        parent: int | str,
        cause: Any,
        turn: Mapping[str, Any] | None = None,
        guard: GuardResult = NO_GUARD,
        joined: Mapping[str, Json] = {},
    ) -> None:
        """Activate an agent. turn: the id and the options of its turn, if they are not those of the agent. guard: that let it run."""
        payload: JsonObject = {"agent": agent.name, **joined, **guard.record}
        activation = self.add(Draft("agent:activated", payload, agent.name, parent, self.now, guard.is_untrusted))
        own = {"turn_id": self.new_id("turn")} if turn is None else turn
        self.reaction.activations.append(
            {"agent": agent.name, "cause": cause, "activation": activation, **agent.limits, **own}
        )

    def finished(self) -> Reaction:
        """React to all signals in order, then decide whether the run is over."""
        works = is_active(self.view)
        reason = self.stop_because
        if reason is None and works and self.workflow.end_when is not None:
            reason = self._stop_reason(self.workflow.end_when)
        index = 0
        while index < len(self.matched) and works and reason is None:
            reason = self._match(*self.matched[index])
            index += 1
        if reason is None and works:
            reason = self._limit_reason(0)  # delegations are turns that no signal activated
        if reason is not None:
            self.reaction.status = "terminating"
            self.memory[STOPPED_BY] = reason
            open_turns = self.open_turns + len(self.reaction.activations)
            if open_turns:
                self.reaction.stops = {"turns": "human_waits" if reason == END_WHEN else "all", "reason": reason}
            if open_turns + self.pending:  # a run that ends later: its log shows from here on that it does
                is_untrusted = quotes_exception(reason)
                self.add(
                    Draft("workflow:terminating", {"reason": reason}, None, self._last_parent(), self.now, is_untrusted)
                )
        is_open = works and reason is None and self.memory.get(SESSION) == OPEN  # it waits for messages
        if not is_open and self.open_turns + len(self.reaction.activations) == 0 and self.pending == 0:
            self._end()
        self._joined.store(self.memory, self._base)
        self.reaction.memory = stored_memory(self.memory, is_over=self.reaction.status == "ended")
        return self.reaction

    def _stop_reason(self, end_when: Callable[[Any], Any]) -> str | None:
        try:
            return END_WHEN if decided(end_when(self.workflow.shape.load(self.state))) else None
        except Exception as error:
            return f"{END_WHEN_RAISED} {format_exception(error)}"

    def _match(self, parent: int | str, cause: Any, name: str, payload: Json, agent: str | None) -> str | None:
        """Activate or skip the agents subscribed to this signal. Returns the reason to stop the run, if there is one."""
        subscribed = self.workflow.wakes.match(name)
        if not subscribed:
            return None
        for woken in sorted({w[0] for w in subscribed}):
            if name in ("agent:activated", "agent:skipped") and agent == woken:
                continue  # an agent's own activation does not activate it again
            joined = self._due(woken, [n for w, n in subscribed if w == woken], parent)
            if joined is None:
                continue
            guard = self._guard(self.workflow.agents[woken], parent, name, payload, agent)
            if guard.reason is not None:
                if name == "agent:skipped":
                    continue  # a skip does not cause a skip: two agents that skip each other would loop forever
                self.memory["skipped"] += 1
                skip: JsonObject = {"agent": woken, "reason": guard.reason, **joined, **guard.record}
                self.add(Draft("agent:skipped", skip, woken, parent, self.now, guard.is_untrusted))
            elif (limit := self._limit_reason(1)) is not None:
                return limit
            else:
                self.activate(self.workflow.agents[woken], parent, cause, guard=guard, joined=joined)
        return None

    def _limit_reason(self, more: int) -> str | None:
        """The reason to stop a run that activates `more` turns, if it exceeds its limit: a guard against loops.

        A message from outside resets the count, so a conversation may last for any number of turns.
        """
        if counted_activations(self.view) + len(self.reaction.activations) + more <= self.workflow.max_activations:
            return None
        self.memory["code"] = MAX_ACTIVATIONS
        return f"activation limit of {self.workflow.max_activations} reached"

    def _due(self, name: str, met: list[int], signal: int | str) -> JsonObject | None:
        """What the payload says about the join of an agent that is due; None if it is not.

        One pattern of activate_on is enough; the patterns of activate_when_all are collected until all have matched.
        """
        if -1 in met:
            return {}
        joins: dict[str, list[int]] = self.memory["joins"]
        collected = sorted({*joins.get(name, []), *met})
        patterns = self.workflow.agents[name].activate_when_all
        is_complete = len(collected) == len(patterns)
        joins[name] = [] if is_complete else collected
        self._joined.add(name, met, signal)
        return self._joined.take(name, patterns, len(self.reaction.drafts)) if is_complete else None

    def _guard(self, agent: AgentSpec, parent: int | str, name: str, payload: Json, source: str | None) -> GuardResult:
        """Decide whether the agent may run."""
        if agent.name not in self.memory["agents"]:
            return GuardResult("added after this run began")
        if agent.when is None:
            return NO_GUARD

        def signal() -> Draft:  # a copy, because a guard may change it
            return Draft(name, self.workflow.loaded(name, copied(payload)), source, parent, self.now)

        return evaluate_guard(agent, self.workflow.shape, self.state, untrusted_keys(self.memory), signal)

    def _last_parent(self) -> int | str:
        """The parent of the end: the newest draft, or else the last signal to react to, or else the root."""
        if self.reaction.drafts:
            return len(self.reaction.drafts) - 1
        return self.matched[-1][0] if self.matched else signal_id(self.view.run_id, 1)

    def _end(self) -> None:
        end = end_of_run(self.workflow, self.memory, self.reaction.drafts)
        self.reaction.status, self.reaction.outcome = "ended", end.outcome
        activations = self.view.activations + len(self.reaction.activations)
        metrics = metrics_of(self.memory, activations, self.now)
        payload: JsonObject = {"state": self.state, "outcome": end.outcome, "metrics": metrics}
        if end.reason is not None:
            payload["reason"] = end.reason
        if end.code is not None:
            payload["code"] = end.code
        is_untrusted = bool(untrusted_keys(self.memory)) or quotes_exception(end.reason)
        self.add(Draft("workflow:end", payload, None, self._last_parent(), self.now, is_untrusted))
