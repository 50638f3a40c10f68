"""What an agent's function is given: the state, the signal that woke it, a way to speak, and a way to wait."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import Any

from heliograph.errors import InvalidInput, repr_of, safe_repr
from heliograph.execution.calls import Calls
from heliograph.execution.cleanup import Cleanups
from heliograph.execution.memory import LedgerMemory, check_memory, check_search
from heliograph.execution.owned_turn import OwnedTurn
from heliograph.ids import idempotency_key
from heliograph.ports import Memory, MemoryHit
from heliograph.records import Card, Cause
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_payload, copied
from heliograph.signals.values import to_json
from heliograph.turn.calls import DELEGATION, CallRequest, Journal
from heliograph.turn.untrusted import UNTRUSTED
from heliograph.types import Json, JsonObject

_MEMORY_ID_MAX = 200  # a caller may choose a long turn id; its end distinguishes it from other turn ids


class Context(Calls):
    """One turn, as its agent sees it.

    state: the run's state when this turn was claimed, as the application's type; a copy, changed only by `updates`.
    document: the same state as the JSON object it was.
    signal: what woke the agent: `.name`, `.payload`, `.agent`, `.id`.
    task: what the agent is to do: what was delegated to it, else the payload of `signal`.
    task_context: the object `context` of a delegation; empty where none was given.
    idempotency_key: the same for every attempt of this turn, and for no other turn of any project or application:
        `project/application/turn`. Pass it to every receiver that must not act twice.
    attempt: 1, and one more for each time the turn lost its worker.
    deferrals: how often the turn was put off.
    context_box_id: the box that it was given to read; None for none. See `context`.
    """

    def __init__(self, owned: OwnedTurn, journal: Journal):
        super().__init__(owned, journal)
        claimed, document = owned.claimed, owned.claimed.run.state
        self._spec = owned.spec
        self._signals = owned.signals
        self._world = owned.services.world
        self.activation_id = claimed.activation_id
        self._taint = owned.taint
        self._document: JsonObject = copied(document)
        self._state: Any = owned.workflow.shape.load(document)
        self._cause = claimed.cause
        self.agent: str = claimed.agent
        self.run_id: str = claimed.run_id
        self.turn_id: str = claimed.turn_id
        self.idempotency_key = idempotency_key(owned.services.project, claimed.target, claimed.turn_id)
        self.attempt: int = claimed.attempts + 1
        self.deferrals: int = claimed.defers
        self.context_box_id: str | None = claimed.context_box_id
        self._ledger = owned.services.ledger
        self._memory: Memory = owned.workflow.memory or LedgerMemory(self._ledger)
        self._cards = list(owned.resources.cards)
        self.emitted: list[tuple[str, Json]] = []
        self._cleanups = Cleanups()

    # Reading an untrusted value taints the turn, so these reads are recorded.

    @property
    def state(self) -> Any:
        self._taint.read_state()
        return self._state

    @property
    def document(self) -> JsonObject:
        self._taint.read_state()
        return self._document

    @property
    def signal(self) -> Cause:
        self._taint.read_signal()
        return self._cause

    @property
    def task(self) -> Any:
        delegation = self._delegated
        return self.signal.payload if delegation is None else delegation.get("task")

    @property
    def task_context(self) -> JsonObject:
        context = (self._delegated or {}).get("context")
        return copied(context) if isinstance(context, dict) else {}

    @property
    def _delegated(self) -> JsonObject | None:
        payload = self.signal.payload
        return payload if self._cause.name == DELEGATION and isinstance(payload, dict) else None

    @property
    def is_replaying(self) -> bool:
        """Whether the function is still in a part that it has run before; its progress is not told again."""
        return self._journal.is_replaying

    async def context(self) -> list[Card]:
        """The cards of the box that this turn was given, in order; none where it was given no box.

        It is a snapshot: nobody writes to it, and it is the same each time that the function runs, unless the box was
        replaced meanwhile. No other box can be read from here (L0-94). The content of a card is data from elsewhere.
        """
        self._taint.read_cards(self._cards)
        return copy.deepcopy(self._cards)

    def remember(self, text: str, /, **metadata: Any) -> Coroutine[Any, Any, None]:
        """Keep a text beyond this turn and run, as this agent's; once, however often the turn runs.

        metadata: JSON values to be kept beside it; `trust="untrusted"` marks it as untrusted, which the runtime does itself
        once the turn has read untrusted content. Raises InvalidInput, ToolFailed where it is refused.
        """
        self._check_may_wait("remember")
        check_memory(text)
        given = to_json(metadata, "/metadata")
        assert isinstance(given, dict)
        if self._taint.marks:
            given["trust"] = UNTRUSTED
        request = self._inline("remember", "idempotent")
        memory_id = f"{self.turn_id}-{request.call_id}"[-_MEMORY_ID_MAX:]
        project = self._ledger.project
        return self._replay.step(request, self._memory.store, (project, memory_id, self.agent, text, given))

    def recall(self, query: str, limit: int = 5, *, everywhere: bool = False) -> Coroutine[Any, Any, list[MemoryHit]]:
        """The memories of this agent and of the project that fit best; `everywhere`: of all agents of the project.

        What was found is recorded, and is found again when the turn runs again. One untrusted memory among them makes what
        the turn writes untrusted. Raises InvalidInput, ToolFailed.
        """
        self._check_may_wait("recall")
        check_search(query, limit)
        return self._recall(self._inline("recall", "pure"), None if everywhere else self.agent, query, limit)

    async def _recall(self, request: CallRequest, agent: str | None, query: str, limit: int) -> list[MemoryHit]:
        async def search() -> list[JsonObject]:
            found = await self._memory.search(self._ledger.project, agent, query, limit)
            return [asdict(each) for each in found]

        hits = [MemoryHit(**each) for each in await self._replay.step(request, search, ())]
        if any(hit.trust == UNTRUSTED for hit in hits):
            self._taint.read("memory")
        return hits

    def emit(self, name: str, payload: Any = None) -> None:
        """Emit one of the agent's declared signals, with this turn's commit.

        An agent that emits nothing itself has all its `emits` emitted for it, with its output, when it is done.
        Raises InvalidInput: `undeclared_signal`, `payload_too_large`, or what is wrong with the payload.
        """
        if name not in self._spec.emits:
            declared = ", ".join(self._spec.emits) or "nothing"
            raise InvalidInput(f"agent {self.agent} emits {declared}; declare {name!r} in emits first",
                               code="undeclared_signal", path=f"/agents/{self.agent}/emits")  # fmt: skip
        self.emitted.append((name, check_payload(to_json(payload))))

    def on_cleanup(self, function: Callable[..., Any], /, *args: Any) -> None:
        """Run `function(*args)`, plain or async, when this turn ends: by success, failure, timeout or graceful stop.

        The last registered runs first; what one raises is logged. None runs when the turn suspends or is deferred (the
        function registers them again), after a forced halt, or when the worker is lost. Raises InvalidInput.
        """
        self._cleanups.add(function, args)

    def progress(self, fraction: float, message: str = "") -> None:
        """Tell whoever watches how far the work is: `fraction` from 0 to 1. Sent soon, in batches."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidInput(
                f"progress is a number from 0 to 1, not {safe_repr(repr_of(fraction))}", code="out_of_range"
            )
        payload: Json = {"agent": self.agent, "fraction": float(fraction), "message": str(message)}
        check_payload(payload)
        if not self.is_replaying:
            self._signals.add_urgent(
                Draft("agent:progress", payload, self.agent, self.activation_id, self._world.now())
            )

    async def sleep(self, seconds: float) -> None:
        """Wait in this worker, which holds the turn meanwhile; under the simulator, in its time. See `pause`."""
        await self._world.sleep(seconds)
