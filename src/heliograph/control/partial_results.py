"""The recorded result of a delegation through a gateway: the output, and its outcome if the task ended as partial. Pure.

A report has no place for an outcome, so a partial output is recorded as {outcome, result}. A complete output that has exactly
these two keys is recorded in the same form, so that reading is unambiguous.
"""

from __future__ import annotations

from heliograph.types import Json, JsonObject

_KEYS = {"outcome", "result"}


def with_outcome(output: Json, *, is_partial: bool) -> Json:
    """Return the form in which an output is recorded."""
    if not is_partial and not _is_recorded_form(output):
        return output
    recorded: JsonObject = {"outcome": "partial" if is_partial else "success", "result": output}
    return recorded


def without_outcome(recorded: Json) -> tuple[Json, bool]:
    """Return the output in a recorded form, and whether it is partial."""
    if isinstance(recorded, dict) and _is_recorded_form(recorded):
        return recorded["result"], recorded["outcome"] == "partial"
    return recorded, False


def _is_recorded_form(value: Json) -> bool:
    return isinstance(value, dict) and set(value) == _KEYS
