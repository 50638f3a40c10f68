"""State updates: an agent's output goes into the keys that it updates, through reducers and the state's type. Pure."""

from __future__ import annotations

from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.signal_definition import SignalDefinition
from heliograph.error_text import format_exception, safe_repr
from heliograph.errors import AgentFailed, HeliographError, InvalidInput
from heliograph.reactive.workflow import Workflow
from heliograph.signals.payload import copied
from heliograph.signals.values import to_json
from heliograph.types import Json, JsonObject


def updated_state(
    workflow: Workflow, agent: AgentSpec, state: JsonObject, output: Json, *, is_payload: bool = False
) -> tuple[JsonObject, JsonObject]:
    """The state with `output` in the keys that `agent` updates: before and after validation by the state's type.

    is_payload: as of `fold_changes`. Raises AgentFailed if the output does not match the state.
    """
    try:
        folded = fold_changes(workflow, agent, state, output, is_payload=is_payload)
        return folded, workflow.shape.dump(workflow.shape.load(folded)) if folded is not state else folded
    except AgentFailed:
        raise
    except HeliographError as error:
        raise AgentFailed(f"the output of agent {agent.name} does not match the state: {error.message}") from error
    except Exception as error:
        raise AgentFailed(f"the reducer for {', '.join(agent.updates)} raised {format_exception(error)}") from error


def fold_changes(
    workflow: Workflow, agent: AgentSpec, state: JsonObject, output: Json, *, is_payload: bool = False
) -> JsonObject:
    """The state document after `agent` has put `output` into the keys that it updates.

    is_payload: the output is also the payload of the agent's signals. If its only signal has a definition, reducers receive the model.
    """
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
        reducer = workflow.reducers.get(key)
        if reducer is None:
            after[key] = value
        elif is_payload and (definition := _only_definition(workflow, agent)) is not None:
            after[key] = to_json(reducer(copied(state.get(key)), _model(definition, value)), f"/state/{key}")
        else:  # a reducer receives copies, because the document may be needed again after a conflict
            after[key] = reducer(copied(state.get(key)), copied(value))
    return after


def _only_definition(workflow: Workflow, agent: AgentSpec) -> SignalDefinition[Any] | None:
    """The definition of the agent's only signal, if the agent updates one key with its whole output."""
    return workflow.signals.get(agent.emits[0]) if len(agent.emits) == 1 and agent.updates_one else None


def _model(definition: SignalDefinition[Any], output: Json) -> Any:
    try:
        return definition.load(definition.dump(output))
    except InvalidInput as error:  # the emit of this output would fail as well
        raise AgentFailed(error.message) from None
