"""State updates: an agent's output goes into the keys that it updates, through reducers and the state's type. Pure."""

from __future__ import annotations

from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.error_text import format_exception, safe_repr
from heliograph.errors import AgentFailed, HeliographError
from heliograph.reactive.workflow import Workflow
from heliograph.signals.payload import copied
from heliograph.types import Json, JsonObject


def updated_state(
    workflow: Workflow, agent: AgentSpec, state: JsonObject, output: Json
) -> tuple[JsonObject, JsonObject]:
    """The state with `output` in the keys that `agent` updates: before and after validation by the state's type.

    Raises AgentFailed if the output does not match the state.
    """
    try:
        folded = fold_changes(workflow.reducers, agent, state, output)
        return folded, workflow.shape.dump(workflow.shape.load(folded)) if folded is not state else folded
    except AgentFailed:
        raise
    except HeliographError as error:
        raise AgentFailed(f"the output of agent {agent.name} does not match the state: {error.message}") from error
    except Exception as error:
        raise AgentFailed(f"the reducer for {', '.join(agent.updates)} raised {format_exception(error)}") from error


def fold_changes(reducers: Any, agent: AgentSpec, state: JsonObject, output: Json) -> JsonObject:
    """The state document after `agent` has put `output` into the keys that it updates."""
    if not agent.updates:
        return state
    if agent.updates_one:
        values: dict[str, Json] = {agent.updates[0]: output}
    elif isinstance(output, dict) and set(agent.updates) <= set(output):
        values = {key: output[key] for key in agent.updates}
    else:
        raise AgentFailed(f"agent {agent.name} updates {', '.join(agent.updates)}, so it must return an object with "
                          f"these keys, not {safe_repr(output)}")  # fmt: skip
    after = dict(state)
    for key, value in values.items():
        reducer = reducers.get(key)
        # a reducer receives copies, because the document may be needed again after a conflict
        after[key] = value if reducer is None else reducer(copied(state.get(key)), copied(value))
    return after
