"""Types that all packages use."""

from __future__ import annotations

from typing import NewType, TypeAlias

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
JsonObject: TypeAlias = dict[str, Json]

ProjectId = NewType("ProjectId", str)
RunId = NewType("RunId", str)
AgentId = NewType("AgentId", str)
TurnId = NewType("TurnId", str)
SignalId = NewType("SignalId", str)
CardId = NewType("CardId", str)
