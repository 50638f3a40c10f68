"""React to the start of a run, to the end of a turn, and to recorded signals. Pure.

A reaction is computed against one version of a run and commits only against that version; after a conflict it is
computed again. Its order is fixed, so the same run view and ending always give the same reaction: the turn's drafts,
agent:completed or agent:failed, state changes, the agent's own signals, and then the activations that each of these causes,
ordered by the agents' names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from heliograph.definitions.agent import AgentSpec
from heliograph.errors import AgentFailed, InvalidInput
from heliograph.ids import signal_id
from heliograph.reactive.ending import Ending
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.reaction_builder import ReactionBuilder
from heliograph.reactive.run_memory import SESSION, count_ending, new_memory
from heliograph.reactive.state_taint import (
    mark_untrusted,
    readable_untrusted_keys,
)
from heliograph.reactive.workflow import Workflow
from heliograph.records import PendingRun, RunFailure, RunView
from heliograph.signals.model import Draft
from heliograph.signals.payload import truncated
from heliograph.types import Json, JsonObject


def react_to_start(
    workflow: Workflow, run_id: str, state: JsonObject, now: datetime, new_id: Callable[[str], str],
    caller: Mapping[str, Any] | None = None,
) -> Reaction:  # fmt: skip
    """The first reaction of a run: workflow:start {state}, and the agents that it activates.

    caller: what its memory keeps of a trace; of a session also that it is one. A session's start activates nobody: it waits for messages.
    """
    view = RunView(run_id, "running", 0, state, {**new_memory(workflow, now), **(caller or {})}, 0, 0, 0)
    builder = ReactionBuilder(workflow, view, now, new_id, closing=0, base=0)
    builder.reaction.state = state
    if builder.memory.get(SESSION) is None:
        builder.add(Draft("workflow:start", {"state": state}, at=now))
    else:
        builder.reaction.drafts.append(Draft("workflow:start", {"state": state, SESSION: True}, at=now))
    return builder.finished()


def react_to_ending(
    workflow: Workflow,
    view: RunView,
    ending: Ending,
    now: datetime,
    new_id: Callable[[str], str],
    failure: RunFailure | None = None,
) -> Reaction:
    """The reaction to the end of a turn.

    failure: let the run fail for this reason, without its state in workflow:end. The stored state remains.
    Raises AgentFailed if the output does not match the state; the caller then ends the turn as failed.
    """
    if failure is not None:
        view = msgspec.structs.replace(view, state={})
    builder = ReactionBuilder(workflow, view, now, new_id, closing=1)
    if failure is not None:
        builder.stop_because, builder.memory["code"] = failure.message, failure.code
    builder.add_all(ending.drafts)
    count_ending(builder.memory, ending)
    if ending.outcome in ("success", "partial"):  # an output that a limit cut short is still the agent's output
        agent = workflow.agents[ending.agent]
        done = builder.add(_completed(ending, now))
        is_partial = ending.outcome == "partial"
        try:
            if not is_partial or ending.output not in (None, ""):  # the limit may come before any output
                builder.update(
                    agent, ending.output, parent=done, is_untrusted=ending.is_untrusted, is_payload=not ending.emitted
                )
        except AgentFailed:
            if not is_partial:  # a partial output changes the state only if it matches
                raise
        for name, payload in ending.emitted or _output_signals(workflow, agent, ending):
            builder.add(Draft(name, payload, ending.agent, done, now, ending.is_untrusted))
    else:
        failed: JsonObject = {"agent": ending.agent, "outcome": ending.outcome, "error": ending.error,
                              "deliverable_card_id": ending.card_id}  # fmt: skip
        builder.add(Draft("agent:failed", failed, ending.agent, ending.activation_id, now, ending.is_untrusted))
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
        memory = new_memory(workflow, now)
        mark_untrusted(memory, readable_untrusted_keys(run.memory, run.state))
        run = msgspec.structs.replace(run, memory=memory)
    builder = ReactionBuilder(workflow, run, now, new_id, closing=0, pending=0)
    if failure is not None:
        builder.stop_because, builder.memory["code"] = failure.message, failure.code
        builder.reaction.keeps_taint = True
    for signal in pending.signals:
        if signal.name == "agent:failed":
            builder.memory["turns"] += 1
            is_canceled = isinstance(signal.payload, dict) and signal.payload.get("outcome") == "canceled"
            builder.memory["failed"] += not is_canceled
        parent = signal_id(pending.run.run_id, signal.seq)
        builder.matched.append((parent, {"seq": signal.seq}, signal.name, signal.payload, signal.agent))
    return builder.finished()


def _completed(ending: Ending, now: datetime) -> Draft:
    payload: JsonObject = {"agent": ending.agent, **_truncated_output(ending)}
    return Draft("agent:completed", payload, ending.agent, ending.activation_id, now, ending.is_untrusted)


def _output_signals(workflow: Workflow, agent: AgentSpec, ending: Ending) -> list[tuple[str, Json]]:
    """The declared signals, with the output: it is the whole payload of a signal that has a definition.

    A partial output that does not match the definition emits no such signal.
    """
    found: list[tuple[str, Json]] = []
    for name in agent.emits:
        if name not in workflow.signals:
            found.append((name, _truncated_output(ending)))
            continue
        try:
            found.append((name, workflow.output_payload(name, ending.output)))
        except InvalidInput as error:
            if ending.outcome != "partial":
                raise AgentFailed(error.message) from None
    return found


def _truncated_output(ending: Ending) -> JsonObject:
    """The output for a signal, with its card; an output that is too large for the log is only in the card."""
    return {"output": truncated(ending.output), "deliverable_card_id": ending.card_id}
