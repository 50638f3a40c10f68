"""Taint: the untrusted content that one turn has read, the marks on its writes, and the tools that then need approval.

A turn becomes tainted when it reads a tainted value: a result, its task, a state key, its signal, a memory, a card, or the
description of a tool. Everything that it writes from then on is recorded with the mark, unless its author vouches for the agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heliograph.definitions.agent import AgentSpec
from heliograph.definitions.tool import DELEGATE, Tool
from heliograph.ports import ToolCall, ToolMessage
from heliograph.reactive.state_taint import untrusted_keys
from heliograph.records import Card, Claimed, Wait
from heliograph.turn.calls import DELEGATION
from heliograph.turn.untrusted import UNTRUSTED, is_marked, untrusted
from heliograph.types import Json

_LISTED_MAX = 5
_TASK = "its task"


class Taint:
    """The taint of one run of a turn.

    When the turn resumes, its function or its conversation runs again from the start, and reads the same content again. Each
    recorded call also restores the sources that had been read before it. So the taint is the same on any worker, even if the
    state has changed since.
    """

    def __init__(self, claimed: Claimed, spec: AgentSpec):
        self._cause = claimed.cause
        self._state: Mapping[str, Json] = claimed.run.state
        self._confirms = spec.after_untrusted == "confirm"
        self._is_trusted_agent = spec.trusted
        self._may_read = bool(spec.agents)
        self._sources: dict[str, Json] = {}  # in the order of reading, with the values that prompts need
        self.keys = untrusted_keys(claimed.run.memory)
        if is_marked(self._cause.payload) or (self._cause.name == DELEGATION and self._cause.trust == UNTRUSTED):
            self.read(_TASK, self._cause.payload)

    # ── Sources and marks ──

    @property
    def sources(self) -> tuple[str, ...]:
        """The origins of the untrusted content, in the order in which it was read."""
        return tuple(self._sources)

    @property
    def values(self) -> Mapping[str, Json]:
        """The values that were read from the state and from the signal, by source; None for other sources."""
        return self._sources

    @property
    def has_read(self) -> bool:
        """Whether it has read untrusted content."""
        return bool(self._sources)

    @property
    def is_tainted(self) -> bool:
        """Whether everything that the turn writes from now on is marked as untrusted."""
        return bool(self._sources) and not self._is_trusted_agent

    @property
    def may_have_read(self) -> bool:
        """Whether the model has read untrusted content, or may read some without a further check."""
        return self._may_read or self.has_read

    @property
    def source_names(self) -> str:
        """The sources as text, for the person who approves a call."""
        names = list(self._sources)
        more = f" and {len(names) - _LISTED_MAX} more" if len(names) > _LISTED_MAX else ""
        return f"{', '.join(names[:_LISTED_MAX])}{more}"

    def needs_approval(self, tool: Tool) -> bool:
        """Whether a call of `tool` needs approval because of the taint, beyond the tool's own rule."""
        return self._confirms and self.has_read and tool.effect != "pure"

    # ── Reading ──

    def read(self, source: str, value: Json = None) -> None:
        """Record that untrusted content from `source` was read."""
        self._sources.setdefault(source, value)

    def read_state(self, key: str | None = None) -> None:
        """Read one key of the state; without a key, the whole state."""
        for each in sorted(self.keys if key is None else self.keys & {key}):  # the same order in every process
            if each in self._state:
                self.read(f"state.{each}", self._state[each])

    def read_signal(self) -> None:
        """Read the payload of the signal that woke the turn."""
        if self._cause.trust == UNTRUSTED:
            self.read(f"signal {self._cause.name}", self._cause.payload)

    def rendered(self, name: str, value: Any) -> Any:
        """The value that a template shows for `name`: an untrusted value stands in a frame, and taints the turn."""
        if name in ("signal.payload", "message", "task") and (self._cause.trust == UNTRUSTED or _TASK in self._sources):
            self.read_signal()
            return untrusted(value, _TASK if _TASK in self._sources else f"signal {self._cause.name}")
        if name.removeprefix("state.") in self.keys and name.startswith("state."):
            self.read_state(name.removeprefix("state."))
            return untrusted(value, name)
        return value

    def read_cards(self, cards: Iterable[Card]) -> None:
        """Read cards of a box."""
        for card in cards:
            if is_marked(card.content):
                self.read(f"card {card.kind}")

    def offer(self, tool: Tool) -> None:
        """Let the turn call this tool."""
        self._may_read |= not tool.trusted

    def read_messages(self, calls: Sequence[ToolCall], messages: Mapping[int, ToolMessage]) -> None:
        """Read the messages that answer a model's calls."""
        for n, call in enumerate(calls):
            if messages[n].is_untrusted:
                self.read(call.tool.removeprefix(DELEGATE))

    def resume(self, wait: Wait) -> None:
        """Restore the sources that had been read when this call was opened."""
        for source in wait.taint or ():
            self.read(source)

    def read_result(self, wait: Wait) -> None:
        """Read the result of a call that the turn has waited for."""
        if wait.state == "resolved" and wait.kind in ("tool", "child") and is_marked(wait.content):
            self.read(wait.tool)

    def absorb(self, waits: Iterable[Wait]) -> None:
        """Read all recorded results: of a turn that ends by one of them, without another run."""
        for wait in waits:
            self.resume(wait)
            self.read_result(wait)
