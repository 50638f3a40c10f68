"""What an agent's function is given: the state, the signal that woke it, and a way to speak."""

from __future__ import annotations

import copy
from typing import Any

from heliograph.errors import InvalidInput
from heliograph.reactive.agent import AgentSpec
from heliograph.reactive.state import to_json
from heliograph.reactive.workflow import Workflow
from heliograph.records import Cause, Claimed
from heliograph.signals.model import Draft
from heliograph.signals.payload import check_payload
from heliograph.types import Json, JsonObject
from heliograph.worker.voice import Voice
from heliograph.world import World


class Context:
    """One turn, as its agent sees it.

    state: the run's state when this turn was claimed, as the application's type; a copy, changed only by `updates`.
    document: the same state as the JSON object it was.
    signal: what woke the agent: `.name`, `.payload`, `.agent`, `.id`.
    idempotency_key: the same for every attempt of this turn and for no other turn; hand it to whatever must not
        happen twice.
    attempt: 1, and one more for each time the turn lost its worker.
    """

    def __init__(self, claimed: Claimed, spec: AgentSpec, workflow: Workflow, voice: Voice, world: World):
        self._spec = spec
        self._voice = voice
        self._world = world
        self.activation_id = claimed.activation_id
        self.document: JsonObject = copy.deepcopy(claimed.run.state)
        self.state: Any = workflow.shape.load(claimed.run.state)
        self.signal: Cause = claimed.cause
        self.agent: str = claimed.agent
        self.run_id: str = claimed.run_id
        self.turn_id: str = claimed.turn_id
        self.idempotency_key: str = claimed.turn_id
        self.attempt: int = claimed.attempts + 1
        self.emitted: list[tuple[str, Json]] = []

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

    def progress(self, fraction: float, message: str = "") -> None:
        """Tell whoever watches how far the work is: `fraction` from 0 to 1. Sent soon, in batches."""
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
            raise InvalidInput(f"progress is a number from 0 to 1, not {fraction!r}", code="out_of_range")
        payload: Json = {"agent": self.agent, "fraction": float(fraction), "message": str(message)}
        check_payload(payload)
        self._voice.say_now(Draft("agent:progress", payload, self.agent, self.activation_id, self._world.now()))

    async def sleep(self, seconds: float) -> None:
        """Wait; under the simulator, in its time."""
        await self._world.sleep(seconds)
