"""Run one owned turn until it delivers, or turns out to be another worker's by now. The only caller of `advance`."""

from __future__ import annotations

import logging

from heliograph.errors import AgentFailed, InvalidInput, KernelRefused, shown
from heliograph.reactive.reaction import Ending
from heliograph.records import Claimed
from heliograph.turn.events import Act, Deliver, Emit, Event, Hydrated, Raised
from heliograph.turn.machine import Turn, advance
from heliograph.types import Json
from heliograph.worker.act import act
from heliograph.worker.context import Context
from heliograph.worker.deliver import card_id, deliver
from heliograph.worker.kit import Kit
from heliograph.worker.voice import Voice

log = logging.getLogger("heliograph.worker")


class Drive:
    """One turn in this worker's hands."""

    def __init__(self, claimed: Claimed, kit: Kit):
        self.claimed = claimed
        self.kit = kit
        self.workflow = kit.workflows[claimed.target]
        self.spec = self.workflow.agents[claimed.agent]
        self.voice = Voice(claimed, self.workflow, kit)
        self.turn = Turn(claimed.agent, self.spec.version, claimed.activation_id)
        self.emitted: tuple[tuple[str, Json], ...] = ()
        self.usage = (0, 0)

    @property
    def phase(self) -> str:
        return str(self.turn.phase)

    async def run(self) -> None:
        """Raises TurnLost when the kernel refused a write; then nothing more may be written."""
        event: Event | None = self._first_event()
        while event is not None:
            before, mark = self.turn, self.voice.mark()
            try:
                event = await self._advance(event)
            except (AgentFailed, KernelRefused) as error:
                if isinstance(event, Raised):
                    raise  # the failure itself is refused: the lease runs out, and in the end the kernel delivers (K23)
                # a reducer that took the output a moment ago refuses it against the newer state, or the store refuses
                # what was said: trying the same again would end the same, so the turn ends as failed
                self.turn = before
                self.voice.rewind(mark)
                event = Raised("failed", "ACTION_FAILED", _told(self.claimed.turn_id, error))

    def _first_event(self) -> Event:
        """The inbox says what is owed; a turn that it knows nothing of is refused, never made up (L0-42)."""
        if not any(row.message_type == "turn" for row in self.claimed.inbox):
            log.error("%s was dispatched without a message of type turn in the inbox", self.claimed.turn_id)
            return Raised("failed", "INIT_FAILED", "protocol error: the inbox holds no message for this turn")
        return Hydrated(
            recoveries=self.claimed.attempts,
            may_run_again=self.spec.effect != "once",
            is_run_over=self.claimed.run.status != "running",
        )

    async def _advance(self, event: Event) -> Event | None:
        """One step of the machine; the next event, or None when the turn has ended."""
        self.turn, effects = advance(self.turn, event, self.kit.world.now())
        self.voice.phase = self.phase
        for effect in effects:
            match effect:
                case Emit(drafts):
                    for draft in drafts:
                        self.voice.say(draft)
                case Act():
                    return await self._act()
                case Deliver():
                    await self._deliver(effect)
        return None

    async def _act(self) -> Event:
        try:
            context = Context(self.claimed, self.spec, self.workflow, self.voice, self.kit.world)
        except InvalidInput as error:  # the state was written by another version of the application
            return Raised("failed", "ACTION_FAILED", shown(error.message, 2000))
        await self.kit.world.point("before_act")
        event, self.usage = await act(
            self.claimed, self.spec, self.workflow, self.voice, context, self.kit.world, self.kit.harness_of
        )
        self.emitted = tuple(context.emitted)
        return event

    async def _deliver(self, effect: Deliver) -> None:
        ending = Ending(
            agent=self.claimed.agent, turn_id=self.claimed.turn_id, activation_id=self.claimed.activation_id,
            outcome=effect.outcome, card_id=card_id(self.claimed), output=effect.output, error=effect.error,
            drafts=await self.voice.take(), emitted=self.emitted, usage=self.usage,
        )  # fmt: skip
        await deliver(self.claimed, ending, effect.content, self.kit)


def _told(turn_id: str, error: AgentFailed | KernelRefused) -> str:
    """What the turn's error says. A refusal of the store names constraints and tables: that is for the log (S20)."""
    if isinstance(error, AgentFailed):
        return error.message
    log.error("%s: %s", turn_id, error.message)
    return "the store refused what this turn was to write; the worker's log says why"
