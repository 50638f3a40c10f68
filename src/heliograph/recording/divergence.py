"""The first place where a replay differs from its recording, with both sides, for programs and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from heliograph.error_text import counted
from heliograph.json_differences import ABSENT, Difference
from heliograph.types import JsonObject

Kind = Literal["signal", "request", "call", "arguments", "end", "error"]
_VALUE_MAX = 200
_DIFFERENCES_MAX = 20


@dataclass(frozen=True, slots=True)
class Divergence:
    """A difference.

    kind: signal, the replay gives another signal than the log has; request, a model would receive another request; call, the turn
    makes another call; arguments, a step would receive other arguments; end, the turn ends or waits elsewhere; error, the application cannot be replayed. seq: the position of the
    signal in the log, or of the first signal that would follow. differences: left is the recording, right the replay. request: the model
    request that led to it, as it is now.
    """

    kind: Kind
    part: str
    agent: str | None
    seq: int
    message: str
    recorded: Any = None
    replayed: Any = None
    differences: tuple[Difference, ...] = ()
    request: JsonObject | None = field(default=None, repr=False)

    def line(self) -> str:
        """The divergence in one line, for CI."""
        where = f" of {self.agent}" if self.agent else ""
        return f"diverged at signal {self.seq}, {self.part}{where}: {self.difference}"

    @property
    def difference(self) -> str:
        """What differs, without the place."""
        first = f": {_described(self.differences[0])}" if self.differences else ""
        return f"{self.message}{first}"

    def lines(self) -> Iterator[str]:
        """The divergence for people: both sides, and what differs."""
        yield self.line()
        for title, value in (("recorded", self.recorded), ("replayed", self.replayed)):
            yield f"  {title}: {_short(value, 4 * _VALUE_MAX)}"
        for difference in self.differences[:_DIFFERENCES_MAX]:
            yield f"  {_described(difference)}"
        if len(self.differences) > _DIFFERENCES_MAX:
            yield f"  and {counted(len(self.differences) - _DIFFERENCES_MAX, 'more difference')}"
        if self.request is not None:
            yield "  the model request before it:"
            for key, value in self.request.items():
                if value not in (None, [], ()):
                    yield f"    {key}: {_short(value, 4 * _VALUE_MAX)}"

    def as_json(self) -> JsonObject:
        """Return the divergence for programs; a difference lacks the key of a side without a value."""
        return {
            "kind": self.kind, "part": self.part, "agent": self.agent, "seq": self.seq, "message": self.message,
            "recorded": self.recorded, "replayed": self.replayed, "request": self.request,
            "differences": [each.as_json("recorded", "replayed") for each in self.differences],
        }  # fmt: skip


def named_attempt(divergence: Divergence, action: str) -> Divergence:
    """Name the attempt of the code to reach the outside, which a replay forbids: what differs may follow from the error."""
    message = f"the code {action} outside of a step, which a replay forbids, so put it into a step; then: {divergence.message}"
    return replace(divergence, message=message)


def _described(difference: Difference) -> str:
    return f"{difference.path or '/'} was {_short(difference.left)}, and is {_short(difference.right)} now"


def _short(value: Any, most: int = _VALUE_MAX) -> str:
    if value is ABSENT:
        return "absent"
    # sorted, so that both sides are easy to compare
    text = json.dumps(value, ensure_ascii=False, default=str, sort_keys=True)
    return text if len(text) <= most else f"{text[: most - 1]}…"
