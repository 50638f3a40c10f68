"""The result that a turn requires: a call of submit_result or of another tool, an output type, or any text."""

from __future__ import annotations

from heliograph.codes import RESULT_MISSING
from heliograph.definitions.tool import SUBMIT_RESULT
from heliograph.errors import AgentFailed
from heliograph.execution.model_agent import AgentOutput
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.types import Json, JsonObject


def submits(owned: OwnedTurn) -> bool:
    """Whether the model must end with submit_result, because a text cannot contain the result fields."""
    return owned.spec.must_end_with == SUBMIT_RESULT or (
        owned.spec.must_end_with is None and owned.spec.output is None and bool(owned.required_fields)
    )


def required_result(owned: OwnedTurn) -> str | None:
    """The required result, as text for a message; None if a plain text is enough."""
    if submits(owned):
        return f"a call of {SUBMIT_RESULT}"
    if owned.spec.must_end_with is not None:
        return f"a call of {owned.spec.must_end_with}"
    return None if owned.spec.output is None else "an answer of its output type"


def cut_short(owned: OwnedTurn, output: Json, limit: JsonObject) -> AgentOutput:
    """The last output of a turn that meets a limit. Raises AgentFailed (RESULT_MISSING) where the turn requires another result."""
    if (required := required_result(owned)) is not None:
        raise AgentFailed(f"agent {owned.spec.name} must end with {required}, and did not: {limit['message']}",
                          code=RESULT_MISSING)  # fmt: skip
    return AgentOutput(output, is_partial=True, limit=limit)
