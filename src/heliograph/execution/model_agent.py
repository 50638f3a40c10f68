"""What the execution of a turn requires of the agent loop: the function that runs an agent with a prompt, and its answer."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it. is_partial: a limit was met before the model was done. limit: which one, as an error says it."""

    output: Json
    is_partial: bool = False
    limit: JsonObject | None = None
