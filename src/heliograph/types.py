"""The types of JSON values, which all packages use, and the mark of an option that is not given."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
JsonObject: TypeAlias = dict[str, Json]


class NotGiven(Enum):
    """The default of an option whose None has a meaning of its own: a wider setting, or the default of the runtime, applies."""

    NOT_GIVEN = "not given"

    def __repr__(self) -> str:
        return self.name


NOT_GIVEN = NotGiven.NOT_GIVEN
