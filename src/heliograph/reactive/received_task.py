"""The first reaction of a run that executes one task from another system. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.reactive.reaction import Reaction
from heliograph.reactive.reaction_builder import ReactionBuilder
from heliograph.reactive.run_memory import RECEIVED_TRACE_ID, new_memory
from heliograph.reactive.workflow import Workflow
from heliograph.records import RunView
from heliograph.signals.model import Draft


def react_to_task(
    workflow: Workflow, run_id: str, agent: AgentSpec, task: Draft, turn: Mapping[str, Any], now: datetime,
    new_id: Callable[[str], str], *, trace_id: str, caller: Mapping[str, Any],
) -> Reaction:  # fmt: skip
    """The reaction to the signal `task`, which activates one agent.

    The log begins with workflow:start, like that of any run. It activates nobody, because the application's own work does not
    start. turn: the id and the options of the turn. trace_id: that of the sender; the run's own requests to other systems have it.
    caller: what its memory keeps of the sender's span.
    """
    state = workflow.shape.dump({})
    memory = {**new_memory(workflow, now), RECEIVED_TRACE_ID: trace_id, **caller}
    view = RunView(run_id, "running", 0, state, memory, 0, 0, 0)
    builder = ReactionBuilder(workflow, view, now, new_id, closing=0, base=0)
    builder.reaction.state = state
    builder.reaction.drafts += [Draft("workflow:start", {"state": state}, at=now), task]
    builder.activate(agent, parent=1, cause=1, turn=turn)
    return builder.finished()
