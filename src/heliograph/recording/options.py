"""How a run is recorded: the name and the tags of its recording in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.error_text import safe_repr
from heliograph.errors import InvalidInput
from heliograph.types import JsonObject

_NAME_BYTES_MAX = 200
_TAGS_MAX = 50


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """Record a run. name, tags: of the recording, by which `helio record list` finds it.

    Raises InvalidInput (`out_of_range`, `wrong_type`) for a name or a tag of no or over 200 bytes, and over 50 tags.
    """

    name: str | None = None
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.tags, str) or len(self.tags) > _TAGS_MAX:
            raise InvalidInput(f"tags must be a list of at most {_TAGS_MAX} texts, not {safe_repr(self.tags)}",
                               code="wrong_type", path="/tags")  # fmt: skip
        for path, text in (("/name", self.name), *(("/tags", tag) for tag in self.tags)):
            if text is None:
                continue
            if not isinstance(text, str) or not 1 <= len(text.encode("utf-8", "replace")) <= _NAME_BYTES_MAX:
                raise InvalidInput(f"the {path[1:]} of a recording must be a text of 1 to {_NAME_BYTES_MAX} bytes, not "
                                   f"{safe_repr(text)}", code="out_of_range", path=path)  # fmt: skip

    def item(self) -> JsonObject:
        """The keys of a kernel call's field `recording`, without those that are not given."""
        item: JsonObject = {} if self.name is None else {"name": self.name}
        return {**item, "tags": list(self.tags)} if self.tags else item
