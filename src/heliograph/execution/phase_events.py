"""The events of one turn's phases for handlers, derived from the effects of the turn machine.

They are sent after the commit that they belong to, so a worker that has lost its turn sends none.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from heliograph.definitions.phase_handlers import METRIC, PHASE_COMPLETED, PHASE_STARTED, TURN_COMPLETED, PhaseHandler
from heliograph.execution.handler_queues import HandlerQueues
from heliograph.records import Claimed
from heliograph.turn.events import Deliver, Effect, Emit, RecordPhase
from heliograph.turn.phase_signals import Turn
from heliograph.turn.phases import Phase
from heliograph.world.seam import World

if TYPE_CHECKING:
    from heliograph.telemetry.metrics_signals import TurnMetrics

_COMPLETES = {
    "ready": Phase.INIT,
    "plan_ready": Phase.PLAN,
    "action_complete": Phase.ACT,
    "reflection_complete": Phase.REFLECT,
}


class PhaseEvents:
    """The phases of one owned turn. A phase that is interrupted by a suspension continues with the next claim.

    duration_ms is the time since the phase began, even if another worker ran its beginning. The kernel records both times.
    """

    def __init__(
        self, handlers: Sequence[PhaseHandler], queues: HandlerQueues, claimed: Claimed, world: World, *, has_hooks: bool,
        metrics: TurnMetrics | None = None,
    ):  # fmt: skip
        self._handlers = handlers
        self._metrics = metrics
        self._queues = queues
        self._claimed = claimed
        self._world = world
        self._has_hooks = has_hooks
        self._phase: Phase | None = None
        self._since = 0.0
        self._turn_since = 0.0
        self._end_status = ""  # of the signal `terminated`
        self._saved: tuple[Phase | None, float] = (None, 0.0)
        self._pending: list[tuple[str, dict[str, Any]]] = []  # for handlers
        self._counted: list[
            tuple[Phase, int | None]
        ] = []  # for metrics: the start of a phase, or its duration at its end

    def begin(self, phase: Phase, began_at: datetime | None, *, is_new: bool) -> None:
        """Begin with the first phase of this claim. is_new: the turn has not been in it before.

        began_at: the end of the phase before it, if that is recorded; otherwise the phase began with the turn.
        """
        self._turn_since = self._world.monotonic() - self._claimed.age_seconds
        self._enter(phase)
        if began_at is not None:
            self._since -= max((self._world.now() - began_at).total_seconds(), 0.0)
        elif self._has_hooks:
            self._since = self._turn_since
        if not is_new:
            self._clear()
        self.send()

    def advance(self, effects: Sequence[Effect], turn: Turn) -> None:
        """Note the phases that the turn has left and entered; `send` sends them, `discard` deletes them."""
        self._saved = self._phase, self._since
        status = _status(effects, turn)
        for effect in effects:
            for draft in effect.drafts if isinstance(effect, Emit | RecordPhase) else ():
                if draft.name == "terminated" and isinstance(draft.payload, dict):
                    self._end_status = str(draft.payload["status"])
                if draft.name in _COMPLETES:
                    self._enter(_COMPLETES[draft.name], status)
                    self._complete("success")
        if self._phase is not turn.phase:
            self._enter(turn.phase, status)

    def send(self) -> None:
        """Send the noted events to the handlers and the metrics."""
        if self._metrics is not None:
            for phase, duration_ms in self._counted:
                self._metrics.phase(self._claimed.agent, phase, duration_ms)
        for event, values in self._pending:
            for handler in self._handlers:
                if handler.event == event:
                    self._queues.put(self._world, handler, values)
        self._clear()

    def end(self, delivered: Deliver) -> None:
        """Send the noted events, the end of the last phase, and that of the turn, which has been delivered."""
        self._complete("success")
        if self._handlers:
            self._pending.append((TURN_COMPLETED, {
                **self._of_turn(), "duration_ms": self._ms_since(self._turn_since), "status": self._end_status,
                "result": delivered.output, "error": delivered.error,
            }))  # fmt: skip
        self.send()

    def discard(self) -> None:
        """Delete the noted events, because the step of the machine was not committed."""
        self._clear()
        self._phase, self._since = self._saved

    def _clear(self) -> None:
        self._pending.clear()
        self._counted.clear()

    def _enter(self, phase: Phase, status: str = "failed") -> None:
        if self._phase is phase:
            return
        if self._phase is not None:
            self._complete(status)
        is_whole_turn = phase is Phase.ACT and not self._has_hooks
        self._phase, self._since = phase, self._turn_since if is_whole_turn else self._world.monotonic()
        self._counted.append((phase, None))
        if self._handlers:
            self._note(PHASE_STARTED, "started", 1)

    def _complete(self, status: str) -> None:
        if self._phase is None:
            return
        duration_ms = self._ms_since(self._since)
        self._counted.append((self._phase, duration_ms))
        if self._handlers:
            self._note(PHASE_COMPLETED, "duration", duration_ms, duration_ms=duration_ms, status=status)
        self._phase = None

    def _note(self, event: str, metric: str, value: int, **more: Any) -> None:
        values = {"phase": str(self._phase), **self._of_turn()}
        self._pending.append((event, {**values, **more}))
        self._pending.append((METRIC, {**values, "name": f"agent.lifecycle.{self._phase}.{metric}", "value": value}))

    def _of_turn(self) -> dict[str, Any]:
        claimed = self._claimed
        return {
            "agent_id": claimed.agent_id,
            "agent": claimed.agent,
            "run_id": claimed.run_id,
            "turn_id": claimed.turn_id,
        }

    def _ms_since(self, since: float) -> int:
        return round((self._world.monotonic() - since) * 1000)


def _status(effects: Sequence[Effect], turn: Turn) -> str:
    """The status of a phase that ends without its signal: failed, or how the turn ends."""
    ends = [effect.outcome for effect in effects if isinstance(effect, Deliver)]
    if turn.rounds is not None and turn.rounds.end is not None:
        ends.append(turn.rounds.end.deliver.outcome)
    return next((outcome for outcome in ends if outcome in ("timeout", "canceled")), "failed")
