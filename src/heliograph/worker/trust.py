"""What a turn has read that strangers wrote, and what it may do after that without being asked (S9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from heliograph.ports import ToolCall, ToolMessage
from heliograph.reactive.tool import DELEGATE, Tool
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.worker.held import Held

_SHOWN_MAX = 5


class Trust:
    """Of one turn. It follows from the recorded results in their order, so it is the same wherever the turn goes on."""

    def __init__(self, held: Held):
        payload = held.claimed.cause.payload
        self._asks = held.spec.after_untrusted == "confirm"
        self._may_read = bool(held.spec.agents)
        # in the order in which they were read
        self._sources: dict[str, None] = {}
        if isinstance(payload, Mapping) and payload.get("trust") == UNTRUSTED:
            self._sources["its task"] = None

    @property
    def has_read(self) -> bool:
        return bool(self._sources)

    @property
    def may_have_read(self) -> bool:
        """Whether a result from outside is, or may come to be, in its conversation."""
        return self._may_read or self.has_read

    def offer(self, tool: Tool) -> None:
        """The turn may call this tool."""
        self._may_read |= not tool.trusted

    def hear(self, calls: Sequence[ToolCall], answers: Mapping[int, ToolMessage]) -> None:
        """The turn is told these answers."""
        self._sources |= {call.tool: None for n, call in enumerate(calls) if answers[n].is_untrusted}

    def must_ask(self, tool: Tool) -> bool:
        """Whether a person has to grant a call, whatever the tool itself says."""
        return self._asks and self.has_read and tool.effect != "pure"

    @property
    def told(self) -> str:
        """What it has read, for whoever is asked."""
        names = [name.removeprefix(DELEGATE) for name in self._sources]
        more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
        return f"{', '.join(names[:_SHOWN_MAX])}{more}"


def is_untrusted(tools: Mapping[str, Any], call: ToolCall) -> bool:
    """Of what a call answers. A tool that is not there any more was maybe not trusted."""
    return call.tool not in tools or not tools[call.tool].tool.trusted
