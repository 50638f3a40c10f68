"""The types of JSON values, which all packages use, the mark of an option that is not given, and the choice among given settings."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias, TypeVar

__all__ = ["NOT_GIVEN", "Json", "JsonObject", "NotGiven", "Timeout"]

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
JsonObject: TypeAlias = dict[str, Json]


T = TypeVar("T")


class NotGiven(Enum):
    """The default of an option whose None has a meaning of its own: a wider setting, or the default of the runtime, applies."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN = NotGiven.NOT_GIVEN

Timeout: TypeAlias = float | None | NotGiven  # in seconds; None for no limit


def first_given(*settings: T | None) -> T | None:
    """Return the first setting that is not None; of settings that override each other, the narrowest one comes first."""
    for setting in settings:
        if setting is not None:
            return setting
    return None
