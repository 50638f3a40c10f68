"""The inputs of a turn: the signal that woke it, the state, the task and the deps. Reading an untrusted one taints the turn."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, Generic

from heliograph.execution.call_replay import CallReplay
from heliograph.execution.call_requests import CallRequests
from heliograph.execution.cleanup import Cleanups
from heliograph.execution.memory import TurnMemory
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.execution.turn_logger import TurnLogger
from heliograph.ids import idempotency_key
from heliograph.ports import Memory
from heliograph.records import Card, Cause
from heliograph.signals.payload import copied
from heliograph.turn.calls import delegation_of, task_of
from heliograph.type_variables import Deps_co, State_co
from heliograph.types import Json, JsonObject


class TurnContext(Generic[State_co, Deps_co]):
    """The inputs of one turn. `Context` adds the actions."""

    phase: str = "act"

    def __init__(self, owned: OwnedTurn, replay: CallReplay, cleanups: Cleanups, memory: Memory):
        claimed, document = owned.claimed, owned.claimed.run.state
        self._replay = replay
        self._requests = CallRequests(replay.journal, owned.workflow, claimed)
        self._cleanups = cleanups
        self._spec = owned.spec
        self._definitions = owned.workflow.signals
        self._signals = owned.signals
        self._world = owned.world
        self.activation_id = claimed.activation_id
        self._taint = owned.taint
        self._document = document
        self._own_document: JsonObject | None = None  # most functions do not read it
        self._state: State_co = owned.workflow.shape.load(document)
        self.deps: Deps_co = owned.workflow.deps
        self._cause = claimed.cause
        self.agent: str = claimed.agent
        self.run_id: str = claimed.run_id
        self.turn_id: str = claimed.turn_id
        self._key_parts = owned.project, claimed.target, claimed.turn_id
        self.attempt: int = claimed.attempts + 1
        self.deferrals: int = claimed.defer_count
        self.context_box_id: str | None = claimed.context_box_id
        self._ttl_seconds = claimed.ttl_seconds
        self._own_memory = memory, owned
        self._cards = list(owned.resources.cards)
        self.emitted: list[tuple[str, Json]] = []
        self._agent_id, self._phase_of_records = claimed.agent_id, owned.signals.phase
        self._logger: TurnLogger | None = None  # most functions log nothing

    @cached_property
    def idempotency_key(self) -> str:
        return idempotency_key(*self._key_parts)

    @cached_property
    def _memory(self) -> TurnMemory:
        return TurnMemory(*self._own_memory, self._replay, self._requests)

    @property
    def state(self) -> State_co:
        self._taint.read_state()
        return self._state

    @property
    def document(self) -> JsonObject:
        self._taint.read_state()
        if self._own_document is None:
            self._own_document = copied(self._document)
        return self._own_document

    @property
    def signal(self) -> Cause:
        self._taint.read_signal()
        return self._cause

    @property
    def task(self) -> Any:
        return task_of(self.signal)

    @property
    def task_context(self) -> JsonObject:
        context = (delegation_of(self.signal) or {}).get("context")
        return copied(context) if isinstance(context, dict) else {}

    @property
    def logger(self) -> TurnLogger:
        """A logger whose records name this turn and its phase; see `TurnLogger`."""
        if self._logger is None:
            fields = {"run_id": self.run_id, "turn_id": self.turn_id, "agent_id": self._agent_id, "agent": self.agent,
                      "phase": self._phase_of_records, "attempt": self.attempt}  # fmt: skip
            self._logger = TurnLogger(self.agent, fields, lambda: self.is_replaying)
        return self._logger

    @property
    def is_replaying(self) -> bool:
        """Whether the function repeats a part that it ran before; progress from there is not sent again."""
        return self._replay.journal.is_replaying

    async def context(self) -> list[Card]:
        """The cards of this turn's context box, in order; empty without a box.

        The box is a snapshot: every run of the function reads the same cards, unless someone replaces the box. A turn can read no
        other box. The content of a card is data from outside.
        """
        self._taint.read_cards(self._cards)
        return copy.deepcopy(self._cards)
