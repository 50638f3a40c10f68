"""What came of a call, as whoever made it takes it: a result that is not what was declared is none. Pure.

The ledger keeps what was reported. Whoever called is told of a failure with the code `result_schema`, so that a turn goes on
with it as with any other error of a tool, each time that it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heliograph.codes import RESULT_SCHEMA
from heliograph.definitions.forms import problems_in, schema_of, validator_of
from heliograph.errors import ToolFailed, shown
from heliograph.records import Wait
from heliograph.turn.calls import Asked, CallResult, Misfits, result_of
from heliograph.types import Json, JsonObject

_MESSAGE_MAX = 2000


def misfits_of(tool: str, result_schema: Any, path: str) -> Misfits | None:
    """What finds out why a result of `tool` does not fit. Raises InvalidInput for what is no schema."""
    if result_schema is None:
        return None
    what = f"the result_schema of {tool}"
    validator = validator_of(what, schema_of(what, result_schema, path), path)
    return lambda output: problems_in(validator, output, "result")


def check_result(tool: str, misfits: Misfits | None, output: Json) -> Json:
    """`output`. Raises ToolFailed (`result_schema`)."""
    if misfits is not None and (problems := misfits(output)):
        raise ToolFailed(_message(tool, problems), code=RESULT_SCHEMA, tool=tool)
    return output


def heard(asked: Asked, wait: Wait) -> CallResult:
    """The recorded result of a call, checked by what was declared for it."""
    result = result_of(wait)
    if result.status != "success" or asked.misfits is None or not (problems := asked.misfits(result.output)):
        return result
    error: JsonObject = {"code": RESULT_SCHEMA, "message": _message(asked.tool, problems), "recoverable": False}
    return CallResult(result.call_id, "failed", None, error)


def _message(tool: str, problems: Sequence[str]) -> str:
    return shown(f"the result of {tool} does not fit: {'; '.join(problems)}", _MESSAGE_MAX)
